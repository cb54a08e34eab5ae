"""Recorded revisions of a spec's numerical paths (contract §1, §4).

A spec is hashed before its reference exists, so it may say ``UNRESOLVED``; the revisions are then
recorded beside it in ``specs/<name>.pins.json``. A reference in this repository is named by the
git blob id of its file, so that changing one byte of it unpins it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from harness.digest import canonical_json, parse_json
from harness.errors import DocumentError, SpecError
from harness.spec_model import ExperimentSpec

UNRESOLVED = "UNRESOLVED"
"""How a revision begins that is not pinned."""

Revision = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class Pins(BaseModel):
    """Content of ``specs/<name>.pins.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    baseline_revision: Revision
    reference_revision: Revision
    implementation_revision: Revision


@dataclass(frozen=True, slots=True)
class PinnedPath:
    """The revisions under which one correctness path counts; ``None`` where not pinned."""

    path_id: str
    baseline_revision: str | None
    reference_revision: str | None
    implementation_revision: str | None

    @property
    def status(self) -> Literal["pinned", "unresolved"]:
        """Whether both revisions that a comparison needs are recorded."""
        both = self.baseline_revision is not None and self.reference_revision is not None
        return "pinned" if both else "unresolved"


def is_pinned(revision: str | None) -> bool:
    """Return whether a revision is recorded rather than left open."""
    return revision is not None and not revision.lstrip().startswith(UNRESOLVED)


def git_blob_id(path: Path) -> str:
    """Return the id git gives the file's content: SHA-1 of ``blob <bytes>\\0`` and the bytes.

    Raises:
        SpecError: when the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SpecError(
            "the file a revision names cannot be read",
            expected="a readable file",
            found=error.strerror or type(error).__name__,
            where=str(path),
            fix="restore the file, or record another revision in the pins file",
        ) from error
    header = b"blob %d\0" % len(content)
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


def pins_path(spec_path: Path) -> Path:
    """Return where the pins of a spec are recorded: ``<name>.pins.json`` beside it."""
    return spec_path.with_name(f"{spec_path.stem}.pins.json")


def load_pins(spec_path: Path) -> Pins | None:
    """Return the pins recorded beside a spec, or None where there is no such file.

    Raises:
        SpecError: when the file is there but is not the contract's pins document.
    """
    path = pins_path(spec_path)
    if not path.exists():
        return None
    try:
        document = parse_json(path.read_bytes(), where=str(path))
        return Pins.model_validate_json(canonical_json(document))
    except ValidationError as error:
        found = "; ".join(
            f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()
        )
        raise _refused(path, found) from error
    except (DocumentError, OSError) as error:
        raise _refused(path, str(error)) from error


def resolve_pins(spec: ExperimentSpec, pins: Pins | None) -> tuple[PinnedPath, ...]:
    """Return each correctness path with its revisions: the spec's own, else the recorded ones.

    Raises:
        SpecError: when a pin contradicts a revision that the hashed spec already fixes.
    """
    implementation = pins.implementation_revision if pins else None
    return tuple(
        PinnedPath(
            path_id=path.id,
            baseline_revision=_settled(
                path.id,
                "baseline_revision",
                path.baseline_revision,
                pins.baseline_revision if pins else None,
            ),
            reference_revision=_settled(
                path.id,
                "reference_revision",
                path.reference_revision,
                pins.reference_revision if pins else None,
            ),
            implementation_revision=implementation if is_pinned(implementation) else None,
        )
        for path in spec.correctness_preflight.paths
    )


def _settled(path_id: str, field: str, in_spec: str, recorded: str | None) -> str | None:
    if not is_pinned(in_spec):
        return recorded if is_pinned(recorded) else None
    if is_pinned(recorded) and recorded != in_spec:
        raise SpecError(
            "a pin contradicts the spec",
            expected=f"{in_spec!r}, as the spec fixes it",
            found=repr(recorded),
            where=f"pins {field}, correctness path {path_id!r}",
            fix="correct the pins file; a spec's own revision cannot be replaced",
        )
    return in_spec


def _refused(path: Path, found: str) -> SpecError:
    return SpecError(
        "the pins file is not what the contract allows",
        expected="an object of baseline_revision, reference_revision, implementation_revision",
        found=found,
        where=str(path),
        fix=f"write each revision as a string; begin it with {UNRESOLVED} while it is open",
    )
