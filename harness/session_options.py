"""What the command line of a session says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_SPEC = "specs/local.json"
DEFAULT_ARTIFACTS = "artifacts"


@dataclass(frozen=True)
class Options:
    """The command line, checked for shape only.

    Attributes:
        root: the project's root, whose files gates are bound to.
        spec_path: ``--spec``.
        service: ``--service``, or None for the one the spec was written for.
        arms: ``--arm``, each an arm's name or its advantage mode; empty means all.
        artifacts: ``--artifacts``.
        gsm8k_dir: ``--gsm8k-dir``.
        fresh: ``--fresh``.
        parallel: ``--parallel``, how many arms may train at once.
        mirror: ``--mirror``, or None for no copy of the steps elsewhere.
    """

    root: Path
    spec_path: Path
    service: str | None = None
    arms: tuple[str, ...] = ()
    artifacts: Path = Path(DEFAULT_ARTIFACTS)
    gsm8k_dir: Path | None = None
    fresh: bool = False
    parallel: int = 1
    mirror: str | None = None
