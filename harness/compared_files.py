"""How two runs' files are read to be compared: a missing one is said by its place in the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness.comparison import Difference
from harness.digest import parse_json
from harness.reading import read_regular
from harness.store import read_jsonl

Comparer = Callable[[Path, Path], Iterator[Difference]]
"""Compares one part of two runs, given their folders."""


def document(path: Path) -> Any:
    """Return a JSON document.

    Raises:
        FileNotFoundError: when it is not there.
    """
    if not path.exists():
        raise FileNotFoundError(2, "no such file", str(path))
    return parse_json(read_regular(path), where=path.name)


def rows_of(path: Path) -> tuple[dict[str, Any], ...]:
    """Return a file's rows.

    Raises:
        FileNotFoundError: when it is not there.
    """
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    return read_jsonl(path)
