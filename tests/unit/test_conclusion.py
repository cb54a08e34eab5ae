"""The end of a run: verdict, scores and ``result.json`` follow from the rows on disk alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_run import GRPO, GS1, LOCAL_SPEC, TEST_ITEMS, all_standing, plan_run

from harness.conclusion import DECISION_NAME, OBSERVATIONS_NAME, decide_run
from harness.digest import sha256_file
from harness.errors import DecisionError, StoreError
from harness.evaluate import BASE_ARM, freeze_evaluator, predictions_path
from harness.gates.verdict import Outcome
from harness.plan import PlannedRun
from harness.result import ResultDocument, publish, read_result
from harness.service import register_model_tokenizer
from harness.store import write_jsonl_new

PROVEN = all_standing("advantage_properties", "pilot_activation")
HALF_WIDTH = 2 * math.sqrt(math.log(40) / (2 * TEST_ITEMS))
"""Hoeffding for effects in [-1, 1], alpha 0.05 and 40 items: 0.4295."""
ALL, NONE = [1.0] * TEST_ITEMS, [0.0] * TEST_ITEMS
HALF = [float(i % 2) for i in range(TEST_ITEMS)]


@pytest.fixture
def run(tmp_path: Path) -> PlannedRun:
    register_model_tokenizer(LOCAL_SPEC)
    return plan_run(tmp_path)


def write_scores(run: PlannedRun, arm: str, values: Sequence[float], **changes: Any) -> None:
    path = predictions_path(run.folder, arm)
    path.parent.mkdir(exist_ok=True)
    about = {"arm": arm, "seed": 0, "metric": "accuracy", "evaluator_id": freeze_evaluator(run)}
    about |= {"checkpoint": "final", "prediction": "1", "reference": "1"}
    rows = [
        {"item_id": problem.item_id, **about, **changes, "value": value, "text": "kept elsewhere"}
        for problem, value in zip(run.test_problems(), values, strict=False)
    ]
    write_jsonl_new(path, rows)


def scored(run: PlannedRun, treatment: Sequence[float], baseline: Sequence[float]) -> PlannedRun:
    write_scores(run, BASE_ARM, HALF)
    write_scores(run, GS1, treatment)
    write_scores(run, GRPO, baseline)
    return run


def running() -> ResultDocument:
    return ResultDocument.start("small: both arms trained and scored, no verdict yet.")


def decided(run: PlannedRun) -> dict[str, Any]:
    return decide_run(run, running(), PROVEN).to_json()


@pytest.mark.parametrize(
    ("treatment", "baseline", "verdict", "reason", "mean"),
    [
        (ALL, NONE, "supported", "supported", 1.0),
        (NONE, ALL, "refuted", "refuted", -1.0),
        (HALF, HALF, "inconclusive", "insufficient_evidence", 0.0),
    ],
    ids=["better", "worse", "equal"],
)
def test_the_verdict_follows_from_the_paired_rows(
    run: PlannedRun,
    treatment: list[float],
    baseline: list[float],
    verdict: str,
    reason: str,
    mean: float,
) -> None:
    result = decided(scored(run, treatment, baseline))
    assert (result["status"], result["verdict"]) == ("succeeded", verdict)
    assert result["outcome_reason"] == reason
    numbers = result["metrics"]
    assert numbers["primary_noninferiority.mean"] == mean
    assert numbers["primary_noninferiority.n"] == TEST_ITEMS
    assert numbers["primary_noninferiority.half_width"] == pytest.approx(HALF_WIDTH, rel=1e-12)
    assert numbers["primary_noninferiority.lower"] == pytest.approx(mean - HALF_WIDTH)
    assert numbers["primary_noninferiority.margin"] == -0.05


def test_scores_are_unrounded_means_of_the_rows(run: PlannedRun) -> None:
    third = [float(i % 3 == 0) for i in range(TEST_ITEMS)]
    result = decided(scored(run, third, HALF))
    scores = {row["arm"]: row for row in result["evaluation"]["scores"]}
    assert {arm: row["value"] for arm, row in scores.items()} == {
        BASE_ARM: 0.5,
        GS1: 14 / 40,
        GRPO: 0.5,
    }
    for arm, row in scores.items():
        assert row["predictions_ref"] == f"predictions/{arm}.jsonl", "a reference, no machine path"
        assert row["evaluator_id"] in result["evaluation"]["evaluators"]
    compared = result["evaluation"]["comparisons"]
    assert [(row["metric"], set(row["arms"])) for row in compared] == [("accuracy", {GS1, GRPO})]


def test_the_decision_names_its_rows_by_digest(run: PlannedRun) -> None:
    result = decided(scored(run, ALL, NONE))
    path = run.folder / OBSERVATIONS_NAME
    assert result["decision"] == {
        "version": 1,
        "observations_file": {"name": OBSERVATIONS_NAME, "sha256": sha256_file(path)},
    }
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == 2 * TEST_ITEMS, "two arms; the base model is not part of the comparison"
    fields = {"item_id", "arm", "seed", "metric", "value", "evaluator_id"}
    assert all(set(row) == fields for row in rows)


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.FAIL])
def test_a_gate_that_is_not_proven_caps_the_verdict(run: PlannedRun, outcome: Outcome) -> None:
    standings = {**PROVEN, **all_standing("dry_activation", outcome=outcome)}
    result = decide_run(scored(run, ALL, NONE), running(), standings).to_json()
    assert (result["verdict"], result["outcome_reason"]) == (
        "inconclusive",
        "insufficient_evidence",
    )
    assert "gates are not proven (dry_activation)" in result["summary"]
    decision = json.loads((run.folder / DECISION_NAME).read_text())
    assert decision["verdict"] == "supported", "what the rows say stays on record"
    assert decision["capped_verdict"] == "inconclusive"


def test_a_cap_that_changes_nothing_is_not_blamed(run: PlannedRun) -> None:
    standings = all_standing("dry_activation", outcome=Outcome.UNKNOWN)
    result = decide_run(scored(run, HALF, HALF), running(), standings).to_json()
    assert result["outcome_reason"] == "insufficient_evidence"
    assert "not proven" not in result["summary"]


Edit = Callable[[PlannedRun], None]


def missing(run: PlannedRun) -> None:
    write_scores(run, GS1, ALL[:-1])


def foreign(run: PlannedRun) -> None:
    write_scores(run, GS1, ALL, evaluator_id="0" * 64)


def unbounded(run: PlannedRun) -> None:
    write_scores(run, GS1, [1.5, *ALL[1:]])


@pytest.mark.parametrize(
    ("edit", "kind"),
    [(missing, "missing"), (foreign, "other_evaluator"), (unbounded, "out_of_bounds")],
)
def test_incomplete_rows_are_no_evidence_for_anything(
    run: PlannedRun, edit: Edit, kind: str
) -> None:
    write_scores(run, BASE_ARM, HALF)
    write_scores(run, GRPO, NONE)
    edit(run)
    result = decided(run)
    assert (result["verdict"], result["outcome_reason"]) == (
        "inconclusive",
        "incomplete_execution",
    )
    assert kind in result["summary"]
    assert not [name for name in result["metrics"] if name.startswith("primary")], (
        "no interval is computed from incomplete rows"
    )
    decision = json.loads((run.folder / DECISION_NAME).read_text())
    assert [defect["kind"] for defect in decision["defects"]] == [kind]


def test_rows_of_an_unscheduled_seed_are_refused(run: PlannedRun) -> None:
    write_scores(run, GRPO, NONE)
    write_scores(run, GS1, ALL, seed=1)
    with pytest.raises(DecisionError, match=r"seeds \[1\]"):
        decided(run)


def test_an_arm_without_predictions_cannot_be_decided(run: PlannedRun) -> None:
    write_scores(run, GRPO, NONE)
    with pytest.raises(StoreError):
        decided(run)
    assert not (run.folder / OBSERVATIONS_NAME).exists(), "nothing may be frozen half"


def test_a_run_is_not_decided_twice(run: PlannedRun) -> None:
    first = decide_run(scored(run, ALL, NONE), running(), PROVEN)
    kept = (run.folder / DECISION_NAME).read_bytes()
    lost = all_standing("advantage_properties", outcome=Outcome.FAIL)
    with pytest.raises(DecisionError, match=r"not drawn twice.*--fresh"):
        decide_run(run, first, lost)
    assert (run.folder / DECISION_NAME).read_bytes() == kept, "the refused one left traces"


def test_a_decision_that_was_interrupted_comes_out_the_same(run: PlannedRun) -> None:
    first = decided(scored(run, ALL, NONE))
    assert decided(run) == first, "rows, not memory, decide"


def test_predictions_edited_after_the_freeze_are_refused(run: PlannedRun) -> None:
    decided(scored(run, ALL, NONE))
    path = predictions_path(run.folder, GRPO)
    path.write_text(path.read_text().replace('"value":0.0', '"value":1.0', 1))
    with pytest.raises(DecisionError, match="changed after their rows were frozen"):
        decided(run)


def test_observations_edited_by_hand_are_refused(run: PlannedRun) -> None:
    decided(scored(run, HALF, ALL))
    path = run.folder / OBSERVATIONS_NAME
    path.write_text(path.read_text().replace('"value":0.0', '"value":1.0'))
    with pytest.raises(DecisionError, match="changed after their rows were frozen"):
        decided(run)


def test_the_result_can_be_published_over_the_running_one(run: PlannedRun, tmp_path: Path) -> None:
    path = run.folder / "result.json"
    before = running().with_metrics({"accuracy": 0.5}).with_metrics({"accuracy": 1.0}, arm=GS1)
    publish(path, before.arm_completed(GS1))
    publish(path, decide_run(scored(run, ALL, NONE), read_result(path), PROVEN))
    final = read_result(path).to_json()
    assert final["metrics"]["accuracy"] == 0.5
    assert final["metrics"]["arms"][GS1] == {"accuracy": 1.0}
    assert final["completed_arms"] == [GS1]
    assert str(tmp_path) not in path.read_text(), "no machine path in a result"
    assert str(tmp_path) not in (run.folder / DECISION_NAME).read_text()


def test_the_summary_says_what_ran_and_what_it_showed(run: PlannedRun) -> None:
    golden = Path(__file__).parent / "golden" / "summary.txt"
    assert decided(scored(run, ALL, NONE))["summary"] + "\n" == golden.read_text()


def test_secondary_intervals_stand_beside_the_decision(run: PlannedRun) -> None:
    decided(scored(run, ALL, HALF))
    decision = json.loads((run.folder / DECISION_NAME).read_text())
    shown = decision["secondary"]["primary_noninferiority"]
    assert len(shown) >= 2, "the report shows more than the deciding interval"
    assert "secondary" not in json.dumps(decided_section(run)), "they never decide"


def decided_section(run: PlannedRun) -> dict[str, Any]:
    return decided(run)["decision"]
