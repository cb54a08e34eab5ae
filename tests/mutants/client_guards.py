"""What must catch a client-side defect: each guard returns its alarms, none on honest code.

Three kinds. A *gate*: its own measuring function, judged by the gate's own rule. A *run-time
guard*: what an arm, an evaluation, a decision or ``harness verify`` refuses. A *unit-test file*:
its tests, run in this process; it guards code that no gate measures.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.advantage_domain import DOMAINS
from harness.advantage_seam import arm_params
from harness.errors import HarnessError
from harness.evaluation_record import judge_evaluation
from harness.gates.advantage_identities import violations_of, worst_of
from harness.gates.prompt_activation import measure_prompts
from harness.gates.verdict import Outcome
from harness.problems import ProblemSet, load_problems
from tests.mutants import one_step
from tests.mutants.decision_rows import decision_alarms, frozen_rows_alarms
from tests.mutants.one_evaluation import evaluation_alarms
from tests.unit import scored_rows

TOLERANCE = 1e-12
"""Of the gate advantage_properties."""
WORDS = ("red", "blue", "Apples", "apples", "Tom", "Ann", "has", "more", "than", "the", "a", "7")
REWARDS = (1.0, 0.9, 0.0, -0.1)


def advantage_violations(seed: int, batches: int = 6) -> dict[str, float]:
    """Return the worst violations of the gate's identities over random batches, of every mode."""
    random = np.random.default_rng(seed)
    arm = next(arm for arm in one_step.local_spec().arms if arm.advantage_mode == "gs1")
    found: list[dict[str, float]] = []
    for _ in range(batches):
        size = int(random.integers(3, 13))
        prompts = [" ".join(random.choice(WORDS, size=random.integers(0, 7))) for _ in range(size)]
        for mode, domain in DOMAINS.items():
            # As many groups as rollouts in each, so that a mean over the wrong axis has a shape.
            shape = (size, domain.most_group_size or size)
            rewards = random.choice(REWARDS, size=shape).tolist()
            found.append(violations_of(mode, prompts, rewards, arm_params(arm)))
    return worst_of(found)


def advantage_alarms(folder: Path) -> list[str]:
    """Return the identities that do not hold to the gate's tolerance."""
    del folder
    worst = advantage_violations(seed=11)
    return [f"{name} = {value:.3g}" for name, value in worst.items() if not value <= TOLERANCE]


@cache
def train_rows() -> ProblemSet:
    """Return the local task's train rows."""
    return load_problems(one_step.local_spec(), "train", None)


def activation_alarms(folder: Path) -> list[str]:
    """Return the batch medians of the first ten steps outside the spec's range."""
    del folder
    spec = one_step.local_spec()
    arms = tuple(arm.model_copy(update={"steps": 10}) for arm in spec.arms)
    found = measure_prompts(spec.model_copy(update={"arms": arms}), train_rows())
    return [
        f"medians {result.measured.lowest:.2f} to {result.measured.highest:.2f}"
        for result in found
        if not _inside(result.measured.lowest, result.check)
        or not _inside(result.measured.highest, result.check)
    ]


def _inside(value: float, check: Any) -> bool:
    return check.min <= value <= check.max


def arm_alarms(folder: Path) -> list[str]:
    """Return how the two arms' own guards refuse their step."""
    alarms: list[str] = []
    for mode in one_step.SHAPES:
        try:
            one_step.run_step(mode, folder / mode)
        except HarnessError as error:
            alarms.append(f"{mode}: {type(error).__name__}: {error}")
    return alarms


def verify_alarms(folder: Path) -> list[str]:
    """Return what ``harness verify`` finds in the files of both arms' steps."""
    return [
        alarm
        for mode in one_step.SHAPES
        for alarm in one_step.failed_checks(one_step.run_step(mode, folder / mode))
    ]


def evaluated() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return an evaluation record and its rows, of the base model and both arms."""
    files = scored_rows.WHOLE
    return scored_rows.record_of(files, scored_rows.OLD), scored_rows.all_rows(files)


def record_alarms(folder: Path) -> list[str]:
    """Return what the judgement of an evaluation's record finds wrong or missing."""
    del folder
    record, rows = evaluated()
    judged = judge_evaluation(record, rows)
    return [] if judged.outcome is Outcome.PASS else [*judged.contradictions, *judged.incomplete]


def suite(name: str, least: int) -> Callable[[Path], list[str]]:
    """Return a guard that runs a unit-test file and reports its first failure."""

    def alarms(folder: Path) -> list[str]:
        ran = 0
        for label, case in _cases(importlib.import_module(f"tests.unit.{name}"), folder):
            ran += 1
            try:
                case()
            except (AssertionError, HarnessError, pytest.fail.Exception) as error:
                return [f"{label}: {str(error).partition(chr(10))[0]}"]
        if ran < least:
            raise ValueError(f"{name}: {ran} cases ran, at least {least} expected")
        return []

    return alarms


def _cases(module: Any, folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the file's cases that need nothing but parameters and a folder; no property tests."""
    for name, test in inspect.getmembers(module, inspect.isfunction):
        if not name.startswith("test_") or hasattr(test, "hypothesis"):
            continue
        wanted = set(inspect.signature(test).parameters)
        for number, parameters in enumerate(_parameter_sets(test)):
            values, missing = dict(parameters), wanted - parameters.keys()
            if missing == {"tmp_path"}:
                path = folder / f"{name}-{number}"
                path.mkdir()
                values["tmp_path"] = path
            elif missing:
                break
            yield f"{name}[{number}]", lambda test=test, values=values: test(**values)


def _parameter_sets(test: Any) -> list[dict[str, Any]]:
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    sets = [_expanded(*mark.args[:2]) for mark in marks]
    return [{k: v for part in chosen for k, v in part.items()} for chosen in product(*sets)]


def _expanded(names: Any, rows: Any) -> list[dict[str, Any]]:
    keys = [key.strip() for key in names.split(",")] if isinstance(names, str) else list(names)
    plain = [row for row in rows if not getattr(row, "marks", ())]
    values = [getattr(row, "values", row) if hasattr(row, "marks") else row for row in plain]
    single = len(keys) == 1
    return [
        dict(zip(keys, [row] if single and not hasattr(old, "marks") else row, strict=True))
        for row, old in zip(values, plain, strict=True)
    ]


GUARDS: dict[str, Callable[[Path], list[str]]] = {
    "advantage_properties": advantage_alarms,
    "dry_activation": activation_alarms,
    "arm_run_time": arm_alarms,
    "verify_training": verify_alarms,
    "evaluation_requests": evaluation_alarms,
    "evaluation_record": record_alarms,
    "decision_rows": decision_alarms,
    "frozen_observations": frozen_rows_alarms,
    "tests/unit/test_decision.py": suite("test_decision", 30),
    "tests/unit/test_answers.py": suite("test_answers", 60),
    "tests/unit/test_gate_evidence.py": suite("test_gate_evidence", 20),
    "tests/unit/test_gate_verdict.py": suite("test_gate_verdict", 20),
}
"""Every guard by the name that mutants use."""
