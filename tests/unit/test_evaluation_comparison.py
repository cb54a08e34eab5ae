"""Every arm, seed and the base model under one evaluator, or no comparison (contract §7)."""

from __future__ import annotations

from typing import Any

import pytest
from scored_rows import (
    ARMS,
    NEW,
    OLD,
    WHOLE,
    all_rows,
    evaluator,
    judged,
    record_of,
    reference_id,
    rows_of,
    scored,
)

from harness.evaluation_record import judge_evaluation
from harness.gates.verdict import Outcome


@pytest.mark.parametrize("left_out", ["base", *ARMS])
def test_the_base_model_and_each_arm_must_be_scored(left_out: str) -> None:
    files = scored(OLD, *(arm for arm in ("base", *ARMS) if arm != left_out))
    found = judged(files, OLD)
    assert found.outcome is Outcome.UNKNOWN
    assert left_out in found.incomplete[0]


def test_every_scheduled_seed_of_every_arm_must_be_scored() -> None:
    files = WHOLE | scored(OLD, *ARMS, seed=1)
    assert judged(files, OLD, seeds=[0, 1]).outcome is Outcome.PASS
    assert judged(WHOLE, OLD, seeds=[0, 1]).incomplete == (
        f"comparison of grpo and gs1 on accuracy: under {reference_id(OLD)[:12]} not scored: "
        "grpo seed 1, gs1 seed 1",
    )
    uneven = WHOLE | scored(OLD, "gs1", seed=1)
    assert "grpo seed 1" in judged(uneven, OLD).incomplete[0]
    assert judged(WHOLE, OLD, seeds=[]).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("rescored", [["gs1"], ARMS, ["base"], ["base", "gs1"]])
def test_after_a_change_everything_must_be_scored_again(rescored: list[str]) -> None:
    files = WHOLE | scored(NEW, *rescored)
    for options in ({}, {"current": reference_id(NEW)}):
        found = judged(files, OLD, NEW, **options)
        assert found.outcome is Outcome.UNKNOWN, (rescored, options, found)
        assert reference_id(NEW)[:12] in found.incomplete[0]
    assert "2 evaluators are mixed" in judged(files, OLD, NEW).incomplete[0]
    whole = WHOLE | scored(NEW, "base", *ARMS)
    assert judged(whole, OLD, NEW).outcome is Outcome.PASS, "old scores keep their own id"


def test_arms_under_two_evaluators_are_never_compared() -> None:
    files = scored(OLD, "base", "grpo") | scored(NEW, "gs1")
    for options in ({}, {"current": reference_id(OLD)}, {"current": reference_id(NEW)}):
        assert judged(files, OLD, NEW, **options).outcome is Outcome.UNKNOWN


def test_an_old_partial_evaluation_is_history_once_the_current_one_is_named() -> None:
    files = scored(OLD, "gs1") | scored(NEW, "base", *ARMS)
    assert judged(files, OLD, NEW).outcome is Outcome.UNKNOWN
    assert judged(files, OLD, NEW, current=reference_id(NEW)).outcome is Outcome.PASS


def test_rows_nobody_posted_a_score_for_are_incomplete() -> None:
    found = judge_evaluation(
        record_of(WHOLE, OLD), [*all_rows(WHOLE), *rows_of("gs1", NEW, values=[1.0] * 6)]
    )
    assert found.outcome is Outcome.UNKNOWN
    assert "rows without a score: arm gs1" in found.incomplete[0]


def test_a_decision_needs_explicit_items() -> None:
    listed = evaluator(items={"manifest_ref": "items.json", "manifest_sha256": "e" * 64})
    found = judged(scored(listed, "base", *ARMS), listed)
    assert found.outcome is Outcome.UNKNOWN
    assert "does not list its items" in found.incomplete[0]


@pytest.mark.parametrize(
    "comparisons", [[], [{"metric": "accuracy", "arms": ["gs1", "gs1"]}]], ids=["none", "itself"]
)
def test_comparing_nothing_proves_nothing(comparisons: list[dict[str, Any]]) -> None:
    record = record_of(WHOLE, OLD) | {"comparisons": comparisons}
    assert judge_evaluation(record, all_rows(WHOLE)).outcome is Outcome.UNKNOWN
    record["comparisons"] = [{"metric": "f1", "arms": ARMS}]
    found = judge_evaluation(record, all_rows(WHOLE))
    assert found.incomplete == ("comparison of grpo and gs1 on f1: nothing is scored",)
