"""The rows of a score that is not complete, kept so that no item is asked twice.

Every try writes a file of its own, ``predictions/parts/ARM-NN.jsonl``, and none is changed after
its process ended. ``predictions/ARM.jsonl`` is written once, when every item has its row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.attempts import whole_rows
from harness.errors import StoreError
from harness.store import append_jsonl

FLUSH_ROWS = 32
"""Rows written at once: an interruption costs fewer answers than that, and those in flight."""
Row = dict[str, Any]


def parts_of(run_folder: Path, arm_name: str) -> list[Path]:
    """Return the files of earlier tries, in order."""
    folder = run_folder / "predictions" / "parts"
    return [path for path in sorted(folder.glob("*.jsonl")) if _arm_of(path) == arm_name]


def _arm_of(path: Path) -> str:
    return path.stem.rpartition("-")[0]


def kept_rows(
    run_folder: Path, arm_name: str, about: Mapping[str, Any], items: Collection[str]
) -> dict[str, Row]:
    """Return the rows of earlier tries that still count, by item.

    Args:
        run_folder: the run.
        arm_name: the arm, or ``base``.
        about: arm, seed, checkpoint, metric and evaluator_id that a row must have to count.
        items: ids of the evaluation's items.

    Raises:
        StoreError: for an item twice, or one that is not of the evaluation.
    """
    rows = (row for path in parts_of(run_folder, arm_name) for row in whole_rows(path))
    return merged_rows(rows, about, items, where=f"predictions/parts/{arm_name}-*.jsonl")


def merged_rows(
    rows: Iterable[Row], about: Mapping[str, Any], items: Collection[str], *, where: str
) -> dict[str, Row]:
    """Return the rows that are about the same thing, by item; others have to be asked again.

    Raises:
        StoreError: for an item twice, or one that is not of the evaluation.
    """
    known = frozenset(items)
    merged: dict[str, Row] = {}
    for row in rows:
        if any(row.get(key) != value for key, value in about.items()):
            continue
        item = row["item_id"]
        if item in merged or item not in known:
            raise StoreError(
                "the rows of an interrupted score do not make one score",
                expected="each item of the evaluation at most once",
                found=f"{item}, {'twice' if item in merged else 'which is none of them'}",
                where=where,
                fix="start a new run with --fresh; this one stays as it is",
            )
        merged[item] = row
    return merged


class RowKeeper:
    """Writes rows to a new part, some at once; used in a with statement.

    Args:
        run_folder: the run.
        arm_name: the arm, or ``base``.
    """

    def __init__(self, run_folder: Path, arm_name: str) -> None:
        folder = run_folder / "predictions" / "parts"
        folder.mkdir(parents=True, exist_ok=True)
        number = len(parts_of(run_folder, arm_name)) + 1
        self.path = folder / f"{arm_name}-{number:02d}.jsonl"
        self._waiting: list[Row] = []

    def keep(self, row: Row) -> None:
        """Take one row."""
        self._waiting.append(row)
        if len(self._waiting) >= FLUSH_ROWS:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            append_jsonl(self.path, *self._waiting)
            self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._write()
