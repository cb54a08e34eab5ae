"""Watching a stage on a clock that is given: death, bill, refusal and stall each end it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_capacity import HandClock

from harness.capacity import CapacityError, CapacityState
from harness.errors import ServiceError
from harness.stage_watch import StageWatch
from harness.stall_watch import ANSWERS, STEPS, Pace
from harness.store import append_jsonl


class Scene:
    """A stage being watched: what the service and the stage do is set by hand."""

    def __init__(self, folder: Path, pace: Pace | None = STEPS) -> None:
        self.hand = HandClock()
        self.failure: str | None = None
        self.steps = 0
        self.answers = folder / "answers.jsonl"
        self.state = CapacityState(seed=0)
        self.watch = StageWatch(
            "arm gs1",
            self.answers,
            lambda: self.failure,
            self.state,
            lambda: self.steps,
            self.hand.clock(),
            pace=pace,
            count_own=None if pace == ANSWERS else self.done,
        )

    def done(self) -> int:
        return self.steps

    def pass_s(self, seconds: float, polls: int = 1) -> None:
        for _ in range(polls):
            self.hand.at_s += seconds / polls
            self.watch.poll()

    def says(self, **row: Any) -> None:
        append_jsonl(self.answers, row)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_dead_service_is_noticed_in_seconds(scene: Scene) -> None:
    scene.failure = "ConnectionRefusedError"
    with pytest.raises(ServiceError, match="4 failures in a row, the last: ConnectionRefused"):
        scene.pass_s(20.0, polls=80)
    assert scene.hand.at_s <= 10.0, f"noticed after {scene.hand.at_s} s"


def test_a_service_that_answers_again_is_not_dead(scene: Scene) -> None:
    for _ in range(5):
        scene.failure = "timed out"
        scene.pass_s(6.0, polls=3)
        scene.failure = None
        scene.pass_s(2.0)
    assert scene.watch.record()["health"] == {
        "interval_s": 2.0,
        "failures_allowed": 3,
        "asked": 20,
        "failed": 15,
    }


@pytest.mark.parametrize(
    ("fault", "words"), [("billing", "billing to be settled"), ("gone", "lost the session")]
)
def test_a_bill_or_a_lost_session_ends_the_stage_at_once(
    scene: Scene, fault: str, words: str
) -> None:
    scene.says(endpoint="asample", fault=fault, message="402 asample")
    with pytest.raises(ServiceError, match=words):
        scene.watch.poll()


def test_a_stall_is_noticed_by_the_longest_measured_step(scene: Scene) -> None:
    scene.pass_s(1700.0, polls=10)
    for _ in range(3):
        scene.steps += 1
        scene.pass_s(40.0)
    assert scene.watch.record()["stall"] == {
        "unit": "step",
        "limit_s": 800.0,
        "longest_s": 40.0,
    }
    scene.pass_s(799.0)
    with pytest.raises(ServiceError, match=r"no new step for 801 s after 3 steps"):
        scene.pass_s(2.0)


def test_quick_steps_do_not_make_the_watch_impatient(scene: Scene) -> None:
    for _ in range(3):
        scene.steps += 1
        scene.pass_s(0.5)
    scene.pass_s(599.0)
    with pytest.raises(ServiceError, match="within 600 s"):
        scene.pass_s(2.0)


def test_what_has_no_pace_cannot_stall(tmp_path: Path) -> None:
    scene = Scene(tmp_path, None)
    scene.pass_s(100_000.0, polls=3)
    assert scene.watch.record()["stall"] is None


def test_an_initial_state_stalls_by_the_first_answers_of_the_service(tmp_path: Path) -> None:
    scene = Scene(tmp_path, ANSWERS)
    for endpoint in ("create_session", "create_model"):
        scene.pass_s(1799.0, polls=10)
        scene.says(endpoint=endpoint, answered=True)
        scene.pass_s(1.0)
    # Answers come at no pace: the second came soon, and the third may still take half an hour.
    scene.says(endpoint="save_weights", answered=True)
    scene.pass_s(1.0)
    scene.pass_s(1799.0, polls=10)
    with pytest.raises(ServiceError, match=r"no new answer for 1801 s after 3 answers"):
        scene.pass_s(2.0)


def test_a_refusal_has_its_own_limit_and_is_no_stall(scene: Scene) -> None:
    scene.steps = 1
    scene.pass_s(1.0)
    scene.says(endpoint="asample", fault="capacity", message="429 asample")
    scene.pass_s(1799.0, polls=1799)
    with pytest.raises(CapacityError, match="429 asample"):
        scene.pass_s(3.0, polls=3)


def over_by_answer(scene: Scene) -> None:
    scene.says(endpoint="asample", answered=True)


def over_by_step(scene: Scene) -> None:
    scene.steps += 1


@pytest.mark.parametrize("over", [over_by_answer, over_by_step])
def test_a_refusal_that_is_over_ends_nothing(scene: Scene, over: Callable[[Scene], None]) -> None:
    scene.says(endpoint="asample", fault="capacity", message="429 asample")
    scene.pass_s(500.0)
    assert scene.state.refusal is not None
    over(scene)
    scene.pass_s(1.0)
    assert scene.state.refusal is None
    scene.pass_s(500.0)


def test_sessions_are_remembered_to_be_given_back(scene: Scene) -> None:
    scene.says(session="session-1")
    scene.says(session="session-2")
    scene.watch.poll()
    assert scene.watch.sessions == ["session-1", "session-2"]


def test_a_stage_that_ended_for_capacity_is_waited_for(scene: Scene) -> None:
    scene.says(endpoint="stage", fault="capacity", message="capacity exhausted")
    with pytest.raises(CapacityError, match="capacity exhausted"):
        scene.watch.poll()
    assert scene.state.refusal is not None
