"""Which files of a run may still grow while several of its trainings are at work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

_NUMBERED = re.compile(r"(?P<training>.+)-\d+\.(?:log|answers\.jsonl|watch\.json|jsonl)")
"""``NAME-01.log`` without the stage before it, ``NAME-01.jsonl`` of a part of a score."""


def growing_names(folder: Path, trainings: Iterable[str]) -> frozenset[str]:
    """Return the files that belong to trainings at work, by path inside the run.

    Files that begin with a dot are on their way to their own names, so they are not final either.

    Args:
        folder: the run's folder.
        trainings: names of the trainings at work; with none, nothing grows.
    """
    at_work = frozenset(trainings)
    names = _names(folder) if at_work else ()
    return frozenset(name for name in names if _owner(name) in at_work or "/." in f"/{name}")


def _names(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(folder).as_posix()


def _owner(name: str) -> str:
    """Return the training a file belongs to; "" for a file of the run as a whole."""
    path = PurePosixPath(name)
    place, _, inside = name.partition("/")
    if place == "arms":
        return inside.partition("/")[0]
    if place == "logs" or name.startswith("predictions/parts/"):
        stage = path.name.partition("-")[0] + "-" if place == "logs" else ""
        found = _NUMBERED.fullmatch(path.name.removeprefix(stage))
        return found["training"] if found else ""
    return path.stem if place == "predictions" else ""
