"""Which saved state an arm goes on from: the newest whole one that the service keeps."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker

from harness.errors import ServiceError
from harness.resume import SavedState, newest_kept, prepare_attempt, service_keeps

STEPS = 6


def attempt(
    arm: Path, number: int, saved: Collection[int], trained: range, *extra: dict[str, Any]
) -> None:
    """Write an attempt as a killed one leaves it."""
    folder = arm / f"attempt-{number:02d}"
    (folder / "cookbook").mkdir(parents=True, exist_ok=True)
    lines = [{"name": f"{at:06d}", "batch": at, "state_path": f"a{number}-{at}"} for at in saved]
    with (folder / "cookbook" / "checkpoints.jsonl").open("a") as listed:
        listed.writelines(json.dumps(row) + "\n" for row in (*lines, *extra))
    rows = [json.dumps({"step": step, "attempt": number}) + "\n" for step in trained]
    (folder / "steps.jsonl").write_text("".join(rows))


def continued(arm: Path, number: int, state: SavedState, saved: Collection[int], end: int) -> None:
    folder = arm / f"attempt-{number:02d}"
    folder.mkdir()
    prepare_attempt(folder, number, state)
    attempt(arm, number, saved, range(state.step, end))


def newest(arm: Path, *gone: str) -> tuple[SavedState | None, list[str]]:
    over: list[SavedState] = []
    state = newest_kept(arm, STEPS, lambda uri: uri not in gone, over.append)
    return state, [one.state_uri for one in over]


def test_the_newest_state_is_taken(tmp_path: Path) -> None:
    attempt(tmp_path, 1, [1, 2, 3], range(4))
    assert newest(tmp_path) == (SavedState(1, 3, "a1-3"), [])


def test_a_state_the_service_lost_is_passed_over_and_said(tmp_path: Path) -> None:
    attempt(tmp_path, 1, [1, 2, 3], range(4))
    assert newest(tmp_path, "a1-3") == (SavedState(1, 2, "a1-2"), ["a1-3"])
    assert newest(tmp_path, "a1-1", "a1-2", "a1-3")[0] is None


def test_a_torn_line_is_no_state(tmp_path: Path) -> None:
    attempt(tmp_path, 1, [1, 2], range(3))
    with (tmp_path / "attempt-01" / "cookbook" / "checkpoints.jsonl").open("a") as listed:
        listed.write('{"name": "000003", "batch": 3, "state_pa')
    assert newest(tmp_path) == (SavedState(1, 2, "a1-2"), [])


@pytest.mark.parametrize(
    "row", [{"batch": 3}, {"state_path": "x"}, {"batch": True, "state_path": "x"}, {"batch": 0}]
)
def test_a_line_that_is_not_whole_is_no_state(tmp_path: Path, row: dict[str, Any]) -> None:
    attempt(tmp_path, 1, [1], range(4), {"name": "x", **row})
    assert newest(tmp_path)[0] == SavedState(1, 1, "a1-1")


def test_a_state_of_steps_without_lines_does_not_count(tmp_path: Path) -> None:
    attempt(tmp_path, 1, [1, 2, 3], range(2))
    assert newest(tmp_path)[0] == SavedState(1, 2, "a1-2")


def test_a_continued_attempt_without_a_state_leaves_the_one_it_came_from(tmp_path: Path) -> None:
    attempt(tmp_path, 1, [1, 2], range(3))
    continued(tmp_path, 2, SavedState(1, 2, "a1-2"), [], 2)
    assert newest(tmp_path)[0] == SavedState(1, 2, "a1-2"), "of attempt 1, which saved it"
    continued(tmp_path, 3, SavedState(1, 2, "a1-2"), [3, 4], 5)
    assert newest(tmp_path)[0] == SavedState(3, 4, "a3-4")


def test_a_state_after_steps_that_were_taken_again_does_not_count(tmp_path: Path) -> None:
    """Attempt 2 had to go back to step 1 and trained on; attempt 1's later state came back."""
    attempt(tmp_path, 1, [1, 2, 3, 4], range(5))
    continued(tmp_path, 2, SavedState(1, 1, "a1-1"), [], 3)
    assert newest(tmp_path) == (SavedState(1, 1, "a1-1"), [])


def test_a_final_state_is_the_end_wherever_it_is_listed(tmp_path: Path) -> None:
    final = {"name": "final", "batch": STEPS, "state_path": "end", "sampler_path": "sampler"}
    last = {"name": "000006", "batch": STEPS, "state_path": "a1-6"}
    attempt(tmp_path, 1, [5], range(6), final, last)
    assert newest(tmp_path)[0] == SavedState(1, 6, "end", "sampler")
    assert newest(tmp_path, "sampler")[0] == SavedState(1, 6, "a1-6"), "weights are not enough"
    assert newest(tmp_path, "end", "a1-6")[0] == SavedState(1, 5, "a1-5")


class Answer:
    """A REST client that answers with one status."""

    def __init__(self, status: int) -> None:
        self.status = status

    def create_rest_client(self) -> Answer:
        return self

    def get_weights_info_by_tinker_path(self, _: str) -> Answer:
        return self

    def result(self) -> None:
        if self.status != 200:
            request = httpx.Request("POST", "http://127.0.0.1/api/v1/weights_info")
            response = httpx.Response(self.status, request=request)
            raise tinker.APIStatusError("no", response=response, body=None)


@pytest.mark.parametrize(("status", "kept"), [(200, True), (404, False), (410, False)])
def test_the_service_says_what_it_keeps(status: int, kept: bool) -> None:
    client: Any = Answer(status)
    assert service_keeps(client)("tinker://x/weights/1") is kept


@pytest.mark.parametrize("status", [400, 401, 500])
def test_another_answer_never_means_starting_over(status: int) -> None:
    client: Any = Answer(status)
    with pytest.raises(ServiceError, match=f"status {status}.*same command again later"):
        service_keeps(client)("tinker://x/weights/1")
