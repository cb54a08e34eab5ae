"""Rows of an interrupted score: kept when they still count, never counted twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import StoreError
from harness.evaluation_parts import FLUSH_ROWS, RowKeeper, kept_rows, parts_of
from harness.store import read_jsonl

ABOUT = {"arm": "gs1", "seed": 0, "checkpoint": "c", "metric": "accuracy", "evaluator_id": "e"}
ITEMS = [f"item-{number}" for number in range(100)]


def row(number: int, **changes: Any) -> dict[str, Any]:
    return {"item_id": f"item-{number}", **ABOUT, "value": 1.0, **changes}


def write(folder: Path, *rows: dict[str, Any], arm: str = "gs1") -> None:
    with RowKeeper(folder, arm) as keeper:
        for one in rows:
            keeper.keep(one)


def test_rows_of_every_try_are_kept(tmp_path: Path) -> None:
    write(tmp_path, row(0), row(1))
    write(tmp_path, row(2))
    write(tmp_path, row(3), arm="gs1-b")
    assert [path.name for path in parts_of(tmp_path, "gs1")] == ["gs1-01.jsonl", "gs1-02.jsonl"]
    assert list(kept_rows(tmp_path, "gs1", ABOUT, ITEMS)) == ["item-0", "item-1", "item-2"]


def test_nothing_is_kept_where_nothing_was_written(tmp_path: Path) -> None:
    assert kept_rows(tmp_path, "gs1", ABOUT, ITEMS) == {}
    write(tmp_path)
    assert parts_of(tmp_path, "gs1") == []


def test_rows_reach_the_disk_some_at_once(tmp_path: Path) -> None:
    with RowKeeper(tmp_path, "gs1") as keeper:
        for number in range(FLUSH_ROWS - 1):
            keeper.keep(row(number))
        assert not keeper.path.exists()
        keeper.keep(row(FLUSH_ROWS))
        assert len(read_jsonl(keeper.path)) == FLUSH_ROWS


def test_rows_of_a_try_that_failed_are_kept(tmp_path: Path) -> None:
    def failing() -> None:
        with RowKeeper(tmp_path, "gs1") as keeper:
            keeper.keep(row(0))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert list(kept_rows(tmp_path, "gs1", ABOUT, ITEMS)) == ["item-0"]


def test_a_torn_line_is_no_row(tmp_path: Path) -> None:
    write(tmp_path, row(0))
    with parts_of(tmp_path, "gs1")[0].open("a") as part:
        part.write('{"item_id": "item-1"')
    assert list(kept_rows(tmp_path, "gs1", ABOUT, ITEMS)) == ["item-0"]


@pytest.mark.parametrize("field", sorted(ABOUT))
def test_rows_about_something_else_are_asked_again(tmp_path: Path, field: str) -> None:
    write(tmp_path, row(0), row(1, **{field: "another"}))
    assert list(kept_rows(tmp_path, "gs1", ABOUT, ITEMS)) == ["item-0"]


@pytest.mark.parametrize(
    ("number", "words"), [(0, "item-0, twice"), (100, "which is none of them")]
)
def test_an_item_twice_or_unknown_is_refused(tmp_path: Path, number: int, words: str) -> None:
    write(tmp_path, row(0))
    write(tmp_path, row(number))
    with pytest.raises(StoreError, match=f"at most once.*{words}"):
        kept_rows(tmp_path, "gs1", ABOUT, ITEMS)
