"""Attempts put together: a step counts once, in the attempt that was taken last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.arm import attempt_folder
from harness.attempts import (
    Attempt,
    arm_restores,
    arm_steps,
    counted_rollouts,
    counted_steps,
    lineage,
    read_attempts,
)
from harness.errors import ArmError, StoreError

FIRST, SECOND, THIRD = Attempt(1), Attempt(2, 3, 1), Attempt(3, 4, 2)
STEPS = 6


def rows(attempt: int, steps: Sequence[int]) -> list[dict[str, Any]]:
    return [{"step": step, "attempt": attempt} for step in steps]


def counted(attempts: Sequence[Attempt], last: int, **found: Sequence[int]) -> list[int]:
    """Return the attempt that each step counts in; rows are given as a1=[…], a2=[…]."""
    by_attempt = {int(name[1:]): rows(int(name[1:]), steps) for name, steps in found.items()}
    merged = counted_steps(attempts, last, by_attempt, STEPS)
    assert [row["step"] for row in merged] == list(range(STEPS))
    return [row["attempt"] for row in merged]


def test_one_attempt_counts_whole() -> None:
    assert counted([FIRST], 1, a1=range(6)) == [1] * 6


def test_what_was_done_after_the_saved_state_is_superseded() -> None:
    found = counted([FIRST, SECOND, THIRD], 3, a1=range(5), a2=[3, 4, 5], a3=[4, 5])
    assert found == [1, 1, 1, 2, 3, 3]


def test_an_attempt_that_did_nothing_changes_nothing() -> None:
    again = Attempt(3, 3, 1)
    assert counted([FIRST, SECOND, again], 3, a1=range(5), a3=[3, 4, 5]) == [1, 1, 1, 3, 3, 3]


def test_an_attempt_that_started_over_counts_alone() -> None:
    assert counted([FIRST, Attempt(2)], 2, a1=range(5), a2=range(6)) == [2] * 6


def test_an_arm_cut_off_before_its_end_is_finished_without_a_step() -> None:
    assert counted([FIRST, Attempt(2, 6, 1)], 2, a1=range(6)) == [1] * 6


REFUSED = {
    "a step twice in one attempt": ([FIRST], 1, {"a1": [0, 1, 1, 2, 3, 4, 5]}, "found: step 1"),
    "a gap in one attempt": ([FIRST], 1, {"a1": [0, 1, 3, 4, 5]}, "found: step 3"),
    "a gap between attempts": ([FIRST, SECOND], 2, {"a1": [0, 1], "a2": [3, 4, 5]}, "found: 2 of"),
    "too few steps": ([FIRST], 1, {"a1": range(5)}, "found: 5 of"),
    "too many steps": ([FIRST], 1, {"a1": range(7)}, "found: step 6"),
    "a superseded step twice": (
        [FIRST, SECOND],
        2,
        {"a1": [0, 1, 2, 3, 3], "a2": [3, 4, 5]},
        "found: step 3",
    ),
    "a newer row of a step that counts elsewhere": (
        [FIRST, SECOND, Attempt(3, 5, 1)],
        3,
        {"a1": range(5), "a2": [3, 4], "a3": [5]},
        "it is in attempt 2",
    ),
    "a later attempt that is not the last": (
        [FIRST, Attempt(2)],
        1,
        {"a1": range(6), "a2": [0]},
        "in attempt 2",
    ),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_leaves_open_which_row_counts_is_refused(case: str) -> None:
    attempts, last, found, words = REFUSED[case]
    with pytest.raises(ArmError, match=rf"do not make one training run.*{words}.*--fresh"):
        counted(attempts, last, **found)


def test_a_row_of_another_attempt_is_refused() -> None:
    mixed = {1: [*rows(1, range(3)), *rows(2, [3, 4, 5])]}
    with pytest.raises(ArmError, match=r"rows of attempt 1 only.*step 3 of attempt 2"):
        counted_steps([FIRST], 1, mixed, STEPS)


@pytest.mark.parametrize(
    ("attempts", "last", "words"),
    [
        ([FIRST], 2, "found: attempts"),
        ([Attempt(2, 3, 1)], 2, "found: attempt 1"),
        ([FIRST, Attempt(2, 3, 2)], 2, "found: attempt 2"),
        ([Attempt(1, 2)], 1, "starts with step 0"),
        ([FIRST, Attempt(2, 4, 1), Attempt(3, 3, 2)], 3, "before its step 4"),
    ],
    ids=["missing", "lost parent", "its own parent", "no start", "back before its start"],
)
def test_a_line_that_does_not_hold_is_refused(
    attempts: list[Attempt], last: int, words: str
) -> None:
    with pytest.raises(ArmError, match=words):
        lineage(attempts, last)


def test_rollouts_follow_their_steps() -> None:
    """Attempt 1 was killed between its rollouts and the line of step 3."""
    found = {1: rows(1, [0, 0, 1, 1, 2, 2, 3]), 2: rows(2, [3, 3, 4, 4, 5, 5])}
    kept = counted_rollouts([FIRST, SECOND], 2, found, STEPS)
    assert [(row["step"], row["attempt"]) for row in kept] == [
        (step, 1 if step < 3 else 2) for step in range(STEPS) for _ in range(2)
    ]


def write(folder: Path, attempt: int, steps: Sequence[int], tail: str = "", **resumed: int) -> None:
    own = folder / f"attempt-{attempt:02d}"
    own.mkdir(parents=True)
    lines = [json.dumps(row) + "\n" for row in rows(attempt, steps)]
    (own / "steps.jsonl").write_text("".join(lines) + tail)
    if resumed:
        (own / "resumed.json").write_text(json.dumps({"attempt": attempt, **resumed}))


def test_files_are_read_back_and_a_torn_superseded_line_is_no_row(tmp_path: Path) -> None:
    write(tmp_path, 1, range(4), tail='{"step": 4, "att')
    write(tmp_path, 2, [3, 4, 5], step=3, continues=1)
    assert read_attempts(tmp_path) == (FIRST, SECOND)
    found = arm_steps(tmp_path, {"attempt": 2, "steps": STEPS})
    assert [row["attempt"] for row in found] == [1, 1, 1, 2, 2, 2]


def test_a_torn_line_that_should_count_is_missing(tmp_path: Path) -> None:
    write(tmp_path, 1, range(5), tail='{"step": 5')
    with pytest.raises(ArmError, match="found: 5 of"):
        arm_steps(tmp_path, {"attempt": 1, "steps": STEPS})


@pytest.mark.parametrize(
    "resumed", [{"step": 3}, {"step": 0, "continues": 1}, {"step": "3", "continues": 1}]
)
def test_an_attempt_that_does_not_say_where_it_continues_is_refused(
    tmp_path: Path, resumed: dict[str, Any]
) -> None:
    write(tmp_path, 2, [3], **resumed)
    with pytest.raises(StoreError, match="does not say where it continues"):
        read_attempts(tmp_path)


def test_restores_count_from_the_first_attempt_that_counts(tmp_path: Path) -> None:
    for number in (1, 2, 3, 4):
        write(tmp_path, number, [])
    for number in (2, 4):
        path = tmp_path / f"attempt-{number:02d}" / "restored.json"
        path.write_text(json.dumps({"attempt": number}))
    assert [row["attempt"] for row in arm_restores(tmp_path, 1)] == [2, 4]
    assert [row["attempt"] for row in arm_restores(tmp_path, 3)] == [4]


def test_the_folder_of_a_finished_arm_is_that_of_the_attempt_its_steps_count_in(
    tmp_path: Path,
) -> None:
    arm = tmp_path / "arms" / "gs1"
    write(arm, 1, range(5))
    write(arm, 2, [3, 4, 5], step=3, continues=1)
    done = {"attempt": 2, "steps": STEPS}
    (arm / "done.json").write_text(json.dumps(done))
    assert attempt_folder(tmp_path, "gs1") == arm / "attempt-02"
    assert arm_steps(arm, done)[-1]["attempt"] == 2
    (arm / "done.json").write_text(json.dumps({"attempt": 3, "steps": STEPS}))
    with pytest.raises(ArmError, match=r"expected: attempt 3 \| found: attempts \[1, 2\]"):
        attempt_folder(tmp_path, "gs1")
