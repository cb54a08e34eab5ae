"""Evaluator ids and scores are recomputed, and a comparison needs one evaluator (contract §7)."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scored_rows import (
    ARMS,
    ITEMS,
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

from harness.errors import DocumentError
from harness.evaluation_record import (
    evaluator_id,
    judge_evaluation,
    parse_evaluation,
    score_row,
    unrounded_mean,
)
from harness.gates.verdict import Outcome

PROPERTY = settings(derandomize=True, deadline=None, max_examples=150)


def test_a_whole_evaluation_passes_with_the_recomputed_scores() -> None:
    found = judged(WHOLE, OLD)
    assert found.outcome is Outcome.PASS, found
    means = {key.arm: value for key, value in found.scores.items()}
    for name, rows in WHOLE.items():
        exact = float(sum(Fraction(row["value"]) for row in rows) / len(rows))
        assert means[rows[0]["arm"]] == exact, name


@PROPERTY
@given(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=6), st.randoms(use_true_random=False))
def test_scores_are_unrounded_means_in_any_row_order(values: list[float], shuffler: Any) -> None:
    files = WHOLE | {"gs1.jsonl": rows_of("gs1", OLD, values=values)}
    del files[f"{reference_id(OLD)[:4]}-gs1-0.jsonl"]
    record = record_of(files, OLD)
    posted = next(row["value"] for row in record["scores"] if row["arm"] == "gs1")
    # fsum rounds the sum once, the division once more: 2 half units in the last place.
    exact = sum(map(Fraction, values)) / len(values)
    largest = max(map(abs, values))
    assert abs(Fraction(posted) - exact) <= Fraction(largest) * Fraction(2, 2**53)
    rows = all_rows(files)
    shuffler.shuffle(rows)
    assert judge_evaluation(record, rows).outcome is Outcome.PASS


def test_small_values_are_not_lost_beside_large_ones() -> None:
    assert unrounded_mean([1e16, 1.0, -1e16, 1.0]) == 0.5
    assert unrounded_mean([0.1] * 10) == 0.1


def test_another_order_of_summation_is_no_contradiction() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5, 0.7]
    name = f"{reference_id(OLD)[:4]}-gs1-0.jsonl"
    files = WHOLE | {name: rows_of("gs1", OLD, values=values)}
    record = record_of(files, OLD)
    naive = 0.0
    for value in values:
        naive += value / len(values)
    exact, record["scores"][-1]["value"] = record["scores"][-1]["value"], naive
    assert naive != exact, "the example must differ in the last places to show anything"
    assert judge_evaluation(record, all_rows(files)).outcome is Outcome.PASS


def changed(path: str, value: Any) -> dict[str, Any]:
    obj = copy.deepcopy(OLD)
    target = obj
    *parents, last = path.split(".")
    for name in parents:
        target = target[name]
    target[last] = value
    return obj


CHANGES = {
    "code_sha256": "d" * 64,
    "prompt_template": "{question} ",
    "decoding.temperature": 1.0,
    "decoding.max_tokens": 81,
    "decoding.stop": ["2"],
    "parser": "other/1",
    "items.ids": ITEMS[::-1],
}


@pytest.mark.parametrize("path", sorted(CHANGES))
def test_any_change_of_the_evaluator_is_a_new_id(path: str) -> None:
    new = changed(path, CHANGES[path])
    assert evaluator_id(new) == reference_id(new)
    assert evaluator_id(new) != evaluator_id(OLD)


def test_an_id_is_of_the_object_as_written() -> None:
    whole, point = changed("decoding.temperature", 0), changed("decoding.temperature", 0.0)
    assert evaluator_id(whole) == reference_id(whole)
    assert evaluator_id(whole) != evaluator_id(point)
    files = scored(whole, "base", *ARMS)
    assert judged(files, whole).outcome is Outcome.PASS


@pytest.mark.parametrize("path", sorted(CHANGES))
def test_an_evaluator_edited_under_its_id_is_a_contradiction(path: str) -> None:
    record = record_of(WHOLE, OLD)
    record["evaluators"] = {reference_id(OLD): changed(path, CHANGES[path])}
    found = judge_evaluation(record, all_rows(WHOLE))
    assert found.outcome is Outcome.FAIL
    assert "is listed under" in found.contradictions[0]


@pytest.mark.parametrize("delta", [1e-9, -1e-9, 1e-11, 0.001, float(2**20)])
def test_a_score_that_is_not_its_rows_mean_is_a_contradiction(delta: float) -> None:
    for at in range(3):
        record = record_of(WHOLE, OLD)
        record["scores"][at]["value"] += delta
        found = judge_evaluation(record, all_rows(WHOLE))
        assert found.outcome is Outcome.FAIL, f"score {at} changed by {delta}"
        assert "is not its rows' mean" in found.contradictions[0]
        assert f"arm {record['scores'][at]['arm']}" in found.contradictions[0]


def test_a_rounded_score_is_a_contradiction() -> None:
    files = WHOLE | scored(OLD, "gs1")
    name = f"{reference_id(OLD)[:4]}-gs1-0.jsonl"
    files[name] = rows_of("gs1", OLD, values=[1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    record = record_of(files, OLD)
    record["scores"][-1]["value"] = 0.1667
    assert judge_evaluation(record, all_rows(files)).outcome is Outcome.FAIL


@pytest.mark.parametrize("at", range(18))
def test_each_missing_row_is_named(at: int) -> None:
    rows = all_rows(WHOLE)
    gone = rows.pop(at)
    found = judge_evaluation(record_of(WHOLE, OLD), rows)
    assert found.outcome is Outcome.FAIL
    told = " | ".join(found.contradictions)
    assert "1 items have no row" in told
    assert f"arm {gone['arm']}" in told
    assert gone["item_id"] in told


def row_with(**changes: Any) -> list[dict[str, Any]]:
    rows = all_rows(WHOLE)
    return [*rows[:-1], rows[-1] | changes]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([*all_rows(WHOLE), all_rows(WHOLE)[0]], "have several rows"),
        (row_with(item_id="other"), "rows are of other items"),
        (row_with(checkpoint="elsewhere"), "several checkpoints"),
        (row_with(value=float("nan")), "no canonical JSON"),
        (row_with(value=True), "value"),
        (row_with(value="1"), "value"),
        (row_with(value=1e300), "magnitude"),
        (row_with(value=10**400), "magnitude"),
        (row_with(seed="0"), "seed"),
        (row_with(evaluator_id="new"), "evaluator_id"),
        ([], "a score without rows"),
    ],
)
def test_rows_that_do_not_carry_their_score_are_a_contradiction(
    rows: list[dict[str, Any]], named: str
) -> None:
    found = judge_evaluation(record_of(WHOLE, OLD), rows)
    assert found.outcome is Outcome.FAIL
    assert any(named in told for told in found.contradictions), found.contradictions


def test_a_score_made_twice_or_without_its_evaluator_is_a_contradiction() -> None:
    record = record_of(WHOLE, OLD)
    record["scores"].append(record["scores"][0])
    assert "scored 2 times" in judge_evaluation(record, all_rows(WHOLE)).contradictions[0]
    found = judged(WHOLE)
    assert found.outcome is Outcome.FAIL
    assert "not in evaluators" in found.contradictions[0]
    twice = evaluator(items={"ids": [*ITEMS, ITEMS[0]]})
    assert (
        "items listed twice: item-0"
        in judged(scored(twice, "base", *ARMS), twice).contradictions[0]
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"version": 2}, "version"),
        ({"extra": 1}, "extra"),
        ({"evaluators": {"x": evaluator(top_p=1)}}, "evaluators.x.top_p"),
        ({"evaluators": {"x": evaluator(items={"ids": []})}}, "evaluators.x.items"),
        ({"evaluators": {"x": evaluator(code_sha256="C" * 64)}}, "evaluators.x.code_sha256"),
        ({"comparisons": [{"metric": "accuracy", "arms": ["gs1"]}]}, "comparisons.0.arms"),
        ({"scores": [{"arm": "gs1"}]}, "scores.0.metric"),
    ],
)
def test_a_record_of_another_form_is_refused_and_the_field_named(
    change: dict[str, Any], named: str
) -> None:
    record = record_of(WHOLE, OLD) | change
    with pytest.raises(DocumentError) as refusal:
        parse_evaluation(record)
    assert named in str(refusal.value)
    assert judge_evaluation(record, all_rows(WHOLE)).outcome is Outcome.FAIL


def test_a_predictions_file_is_of_one_arm_and_evaluator() -> None:
    for mixed in (all_rows(WHOLE), rows_of("gs1", OLD) + rows_of("gs1", NEW), []):
        with pytest.raises(DocumentError, match="one arm, metric, seed and evaluator"):
            score_row(mixed, "predictions.jsonl")
