"""Where a run stands, read from its files alone while it may still be written.

Nothing is locked, changed or contacted; a torn last line is a row that is still being written.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.digest import parse_json
from harness.errors import DocumentError, StoreError
from harness.reading import read_regular
from harness.result import ResultDocument, read_result
from harness.run_files import PLAN_NAME, RESULT_NAME, SPEC_COPY_NAME
from harness.spec import parse_spec
from harness.spec_model import Arm
from harness.step_line import duration
from harness.steps_so_far import steps_so_far

RECENT_STEPS = 5
"""Steps whose mean time is the rate: the first ones are slower."""
METRIC = "accuracy"


@dataclass(frozen=True, slots=True)
class ArmState:
    """One training: an arm, or with several seeds an arm with one of them.

    Attributes:
        name: the training.
        attempt: the newest attempt, 0 before the first.
        steps_done: complete rows that count, over all its attempts.
        steps_planned: the spec's.
        step_s: mean seconds of its last steps; None before the first.
        is_trained: it has its final checkpoint.
        accuracy: its score, once it is posted.
    """

    name: str
    attempt: int
    steps_done: int
    steps_planned: int
    step_s: float | None
    is_trained: bool
    accuracy: float | None

    @property
    def left_s(self) -> float | None:
        """Seconds of training left at the present rate; None where there is no rate."""
        if self.step_s is None or self.is_trained:
            return None
        return self.step_s * (self.steps_planned - self.steps_done)


@dataclass(frozen=True, slots=True)
class RunState:
    """One run.

    Attributes:
        folder: the run's folder.
        spec: the spec's name.
        result: its result document.
        arms: every planned training, in the plan's order.
        gates: gates proven when the run was planned, and gates required then.
        quiet_s: seconds since a file of the run was last written.
    """

    folder: Path
    spec: str
    result: ResultDocument
    arms: tuple[ArmState, ...]
    gates: tuple[int, int]
    quiet_s: float

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will be written to the run."""
        return self.result.status != "running"

    @property
    def base_accuracy(self) -> float | None:
        """The base model's score, once it is posted."""
        return _score(self.result.metrics.model_dump())


def is_run(folder: Path) -> bool:
    """Return whether a folder is a run's."""
    return (folder / PLAN_NAME).is_file()


def read_run_state(folder: Path) -> RunState:
    """Read where a run stands.

    Raises:
        StoreError: when a file is missing or cannot be read.
        DocumentError: when a file is not what the contract allows.
    """
    folder = folder.resolve()
    try:
        plan = parse_json(read_regular(folder / PLAN_NAME), where=PLAN_NAME)
        copied = parse_json(read_regular(folder / SPEC_COPY_NAME), where=SPEC_COPY_NAME)
        result = read_result(folder / RESULT_NAME)
    except OSError as error:
        raise StoreError(
            "the run cannot be read",
            expected=f"a run's folder with {PLAN_NAME}, {SPEC_COPY_NAME} and {RESULT_NAME}",
            found=str(error.strerror or error),
            where=str(folder),
            fix="name a run's folder, such as artifacts/runs/local/latest",
        ) from error
    gates = [gate["outcome"] == "pass" for gate in plan.get("gates", {}).values()]
    spec = parse_spec(copied, where=SPEC_COPY_NAME)
    arms = tuple(
        _arm_state(folder / "arms" / arm.name, arm, result.metrics.arms.get(spec.arm_of(arm.name)))
        for arm in spec.trainings
    )
    return RunState(folder, plan["spec"], result, arms, (sum(gates), len(gates)), _quiet_s(folder))


def _arm_state(folder: Path, arm: Arm, numbers: dict[str, Any] | None) -> ArmState:
    attempts = sorted(folder.glob("attempt-*"))
    rows = steps_so_far(folder)
    recent = [row["step_s"] for row in rows[-RECENT_STEPS:] if "step_s" in row]
    return ArmState(
        name=arm.name,
        attempt=int(attempts[-1].name.rpartition("-")[2]) if attempts else 0,
        steps_done=len(rows),
        steps_planned=arm.steps,
        step_s=sum(recent) / len(recent) if recent else None,
        is_trained=(folder / "done.json").is_file(),
        accuracy=_score(numbers or {}),
    )


def _score(numbers: dict[str, Any]) -> float | None:
    value = numbers.get(METRIC)
    return None if value is None else float(value)


def _quiet_s(folder: Path) -> float:
    times = [path.stat().st_mtime for path in folder.rglob("*") if path.is_file()]
    if not times:
        raise DocumentError("the run's folder is empty", where=str(folder))
    return max(0.0, time.time() - max(times))


def run_lines(state: RunState) -> list[str]:
    """Return where the run stands, one line a subject."""
    proven, required = state.gates
    lines = [
        f"run {state.folder.name}: {state.result.status}, gates proven at its start: {proven} of"
        f" {required}, last written {duration(state.quiet_s)} ago"
    ]
    lines += [f"  {_arm_line(arm)}" for arm in state.arms]
    lines.append(f"  scores: {_scores(state)}")
    verdict = state.result.verdict
    if verdict is not None:
        lines.append(f"  verdict: {verdict} ({state.result.outcome_reason})")
    return [*lines, f"  {state.result.summary}"]


def _arm_line(arm: ArmState) -> str:
    if not arm.attempt:
        return f"{arm.name}: not begun, 0 of {arm.steps_planned} steps"
    again = f" (attempt {arm.attempt})" if arm.attempt > 1 else ""
    rate = "" if arm.step_s is None else f", {arm.step_s:.2f} s a step"
    left = "" if arm.left_s is None else f", {duration(arm.left_s)} of training left"
    word = "trained" if arm.is_trained else "training"
    return f"{arm.name}: {word}, {arm.steps_done} of {arm.steps_planned} steps{again}{rate}{left}"


def _scores(state: RunState) -> str:
    named = [("base model", state.base_accuracy), *((arm.name, arm.accuracy) for arm in state.arms)]
    return ", ".join(
        f"{name} {'not yet' if value is None else f'{value:.4f}'}" for name, value in named
    )
