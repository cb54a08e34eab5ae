"""Prediction rows judged again: each grade from its text, each item from the data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from harness.answers import Grade, grade
from harness.digest import sha256_bytes
from harness.errors import HarnessError
from harness.evaluation_record import BASE_ARM
from harness.gates.verdict import Outcome
from harness.plan import PlannedRun
from harness.training_grader import FIELD as TRAINING_FIELD
from harness.training_grader import training_grader_correct

Rows = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Check:
    """One thing that was recomputed: what, how it came out, and the figures."""

    name: str
    outcome: Outcome
    detail: str


def passed(name: str, detail: str) -> Check:
    """Return a check that holds."""
    return Check(name, Outcome.PASS, detail)


def failed(name: str, detail: str) -> Check:
    """Return a check that is false."""
    return Check(name, Outcome.FAIL, detail)


def unknown(name: str, detail: str) -> Check:
    """Return a check that the files leave open."""
    return Check(name, Outcome.UNKNOWN, detail)


def grading_check(predictions: Rows) -> Check:
    """Grade every row's text again and compare prediction, value and text digest."""
    count = 0
    # Greedy arms often say the same to an item, and a grade depends on nothing else.
    grades, training_grades = cache(grade), cache(training_grader_correct)
    for arm, rows in predictions.items():
        for row in rows:
            count += 1
            if fault := _grading_fault(row, grades, training_grades):
                return failed("grading", f"{arm} {row['item_id']}: {fault}")
    if not count:
        return unknown("grading", "there are no prediction rows")
    return passed("grading", f"{count} texts give their recorded prediction and value again")


def _grading_fault(
    row: Mapping[str, Any],
    grades: Callable[..., Grade],
    training_grades: Callable[[str, str], bool],
) -> str:
    text = row["text"]
    if sha256_bytes(text.encode("utf-8", "surrogatepass")) != row["text_sha256"]:
        return "the text is not the one that was recorded"
    graded = grades(text, row["reference"], finished=row["finished"])
    value = 1.0 if graded.correct else 0.0
    if (graded.prediction, value) != (row["prediction"], row["value"]):
        return (
            f"recorded {row['prediction']!r} worth {row['value']},"
            f" the text gives {graded.prediction!r} worth {value}"
        )
    recorded = row.get(TRAINING_FIELD)
    if recorded is not None and recorded != training_grades(text, row["reference"]):
        return f"the training grader's verdict is not {recorded}"
    return ""


def items_check(run: PlannedRun, predictions: Rows) -> Check:
    """Compare every row's item and reference with the data set's own rows."""
    try:
        problems = run.test_problems()
    except HarnessError as error:
        return unknown("items", f"the test rows cannot be had here: {error.problem}")
    golds = {problem.item_id: problem.gold for problem in problems}
    names = {BASE_ARM, *(arm.name for arm in run.spec.arms)}
    missing_seeds: list[str] = []
    if strangers := sorted(predictions.keys() - names):
        return failed("items", f"rows of {strangers}, which the spec does not name")
    seeds = run.spec.decision_rule.seeds
    for arm, rows in predictions.items():
        scheduled = seeds[:1] if arm == BASE_ARM else seeds
        if unscheduled := sorted({row["seed"] for row in rows} - set(scheduled)):
            return failed("items", f"{arm}: rows of seeds {unscheduled}, scheduled {scheduled}")
        for seed in scheduled:
            found = [row["item_id"] for row in rows if row["seed"] == seed]
            if not found:
                missing_seeds.append(f"{arm} seed {seed}")
            elif sorted(found) != sorted(golds):
                text = f"{arm}: {len(found)} rows are not the {len(golds)} items once"
                return failed("items", text)
        wrong = [row["item_id"] for row in rows if row["reference"] != golds[row["item_id"]]]
        if wrong:
            return failed("items", f"{arm} {wrong[0]}: the reference is not the data set's")
    if missing := sorted([*(names - predictions.keys()), *missing_seeds]):
        return unknown("items", f"no rows of {missing}")
    return passed("items", f"{len(golds)} items once for each of {sorted(predictions)}")
