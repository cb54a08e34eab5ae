"""Trainings at once: bounded, shown by one thread, ended together, and no file entered too soon."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mini_project import make_project
from test_experiment_run import experiment_of

from harness.capacity import CapacityExhaustedError
from harness.errors import ArmError, UsageError
from harness.experiment import Experiment
from harness.growing_files import growing_names
from harness.parallel_trainings import ParallelTrainings, Relay, StoppedError
from harness.session import HarnessSession, Options
from harness.stage_runner import StageRunner

LIMIT_S = 30.0


def test_no_more_than_so_many_run_together_and_all_of_these_do() -> None:
    lock, both_there = threading.Lock(), threading.Barrier(2, timeout=LIMIT_S)
    now, most = 0, 0

    def work(_: str) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        # Nobody passes alone: one after another would end in a broken barrier.
        both_there.wait()
        with lock:
            now -= 1

    names = ["a", "b", "c", "d"]
    trainings = ParallelTrainings(names, 2, work, Relay(lambda _: None), threading.Event())
    for name in names:
        trainings.wait_for(name)
    trainings.stop()
    assert most == 2, f"{most} trainings at once, allowed and expected 2"


def test_lines_are_shown_by_the_thread_that_waits_in_their_order() -> None:
    shown: list[tuple[str, int]] = []
    relay = Relay(lambda text: shown.append((text, threading.get_ident())))

    def work(name: str) -> None:
        for number in range(3):
            relay(f"{name} {number}")

    trainings = ParallelTrainings(["a"], 1, work, relay, threading.Event())
    trainings.wait_for("a")
    trainings.stop()
    me = threading.get_ident()
    assert shown == [("a 0", me), ("a 1", me), ("a 2", me)]


def test_what_ended_one_training_is_raised_where_it_is_waited_for() -> None:
    def work(name: str) -> None:
        if name == "a":
            raise ArmError("a broke")

    trainings = ParallelTrainings(["a", "b"], 2, work, Relay(lambda _: None), threading.Event())
    with pytest.raises(ArmError, match="a broke"):
        trainings.wait_for("a")
    trainings.wait_for("b")
    trainings.stop()


def test_stopping_ends_those_at_work_and_begins_no_other() -> None:
    stopping, begun = threading.Event(), threading.Event()
    ran: list[str] = []

    def work(name: str) -> None:
        ran.append(name)
        begun.set()
        if stopping.wait(LIMIT_S):
            raise StoppedError(name)

    trainings = ParallelTrainings(["a", "b"], 1, work, Relay(lambda _: None), stopping)
    assert begun.wait(LIMIT_S), "the first training was not begun"
    trainings.stop()
    assert ran == ["a"]
    with pytest.raises(StoppedError):
        trainings.wait_for("a")


def test_the_first_arm_without_capacity_ends_the_others(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, _ = experiment_of(make_project(pytester))
    first_waits = threading.Event()

    def train(_: Experiment, arm_name: str) -> None:
        if arm_name == "full":
            assert first_waits.wait(LIMIT_S)
            raise CapacityExhaustedError("429", 0, 600.0)
        first_waits.set()
        experiment.stages.supervision.clock.sleep(LIMIT_S)

    vars(experiment)["stages"] = stages_of(experiment)
    monkeypatch.setattr(Experiment, "_train", train)
    monkeypatch.setattr(Experiment, "_score", lambda *_: None)
    trainings = ParallelTrainings(
        ["waits", "full"], 2, experiment._train_and_score, experiment.say, experiment._stopping
    )
    with pytest.raises(CapacityExhaustedError):
        trainings.wait_for("full")
    with pytest.raises(StoppedError):
        trainings.wait_for("waits")
    trainings.stop()


def stages_of(experiment: Experiment) -> StageRunner:
    """Return the experiment's own runner of stages for a run that has no folder yet."""
    spec = SimpleNamespace(decision_rule=SimpleNamespace(seeds=(0,)))
    run: Any = SimpleNamespace(folder=Path("no-such-run"), plan={"spec": "small"}, spec=spec)
    return StageRunner(experiment.session, run, experiment.say, experiment._stopping)


def test_files_of_trainings_at_work_are_not_final(tmp_path: Path) -> None:
    theirs = {
        "arms/gs1/attempt-01/steps.jsonl",
        "arms/gs1/done.json",
        "logs/arm-gs1-01.log",
        "logs/arm-gs1-01.answers.jsonl",
        "logs/evaluate-gs1-12.watch.json",
        "predictions/gs1.jsonl",
        "predictions/parts/gs1-01.jsonl",
        "predictions/.gs1.jsonl.tmp",
    }
    final = {
        "plan.json",
        "arms/gs1-b/done.json",
        "logs/arm-gs1-1.seed0-01.log",
        "arms/gs1.seed1/done.json",
        "logs/arm-gs1-b-01.log",
        "logs/arm-gs1.seed1-01.log",
        "predictions/gs1-b.jsonl",
        "predictions/parts/gs1-b-01.jsonl",
        "predictions/base.jsonl",
    }
    for name in theirs | final:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert growing_names(tmp_path, ["gs1"]) == theirs
    seeded = growing_names(tmp_path, ["gs1.seed1"]) - {"predictions/.gs1.jsonl.tmp"}
    assert seeded == {"arms/gs1.seed1/done.json", "logs/arm-gs1.seed1-01.log"}
    assert growing_names(tmp_path, []) == frozenset()


@pytest.mark.parametrize("parallel", [0, -1])
def test_fewer_than_one_arm_at_once_is_refused(parallel: int) -> None:
    root = Path(__file__).parents[2]
    with pytest.raises(UsageError, match="at least 1"):
        HarnessSession(Options(root, root / "specs" / "local.json", parallel=parallel))
