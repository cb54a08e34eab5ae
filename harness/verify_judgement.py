"""The decision drawn again from the rows, and the numbers of the result document with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harness.arm_start import run_provenance
from harness.conclusion import (
    DECISION_NAME,
    OBSERVATIONS_NAME,
    arm_starts,
    decided_trainings,
    decision_numbers,
    decision_of,
    restores_of_arms,
    score_numbers,
)
from harness.decision import Decision
from harness.digest import parse_json
from harness.evaluate import BASE_ARM
from harness.gates.catalog import required_gate_ids
from harness.gates.verdict import Outcome
from harness.observations import ROW_FIELDS
from harness.plan import PlannedRun
from harness.reading import read_regular
from harness.restoration_rules import judge_provenance
from harness.result import ResultDocument
from harness.result_rules import cap_verdict
from harness.store import read_jsonl
from harness.training_grader import grader_disagreements
from harness.verify_rows import Check, Rows, failed, passed, unknown

FLOAT_TOLERANCE = 1e-12


def observations_check(run: PlannedRun, predictions: Rows) -> Check:
    """Compare the rows the decision rests on with the arms' predictions, in any order."""
    path = run.folder / OBSERVATIONS_NAME
    if not path.exists():
        return unknown("observations", "no decision was drawn yet")
    expected = sorted(
        str([row[name] for name in ROW_FIELDS])
        for arm in {run.spec.arm_of(training.name) for training in decided_trainings(run.spec)}
        for row in predictions.get(arm, ())
    )
    found = sorted(str([row[name] for name in ROW_FIELDS]) for row in read_jsonl(path))
    if expected != found:
        return failed("observations", f"{len(found)} rows are not the {len(expected)} predictions")
    return passed("observations", f"{len(found)} rows are the arms' predictions")


def decision_check(run: PlannedRun, result: ResultDocument, predictions: Rows) -> Check:
    """Draw the decision again and compare report, numbers and verdict."""
    if result.decision is None:
        return unknown("decision", "the result has no decision yet")
    report = parse_json(read_regular(run.folder / DECISION_NAME), where=DECISION_NAME)
    decision, secondary = decision_of(run, result.decision)
    again = {**decision.report(), "secondary": secondary}
    disagreements = grader_disagreements(predictions)
    if disagreements["compared"] or "grader_disagreements" in report:
        # A run from before the training grader was recorded has neither.
        again["grader_disagreements"] = disagreements
    for key, value in again.items():
        if not _agree(report.get(key), value):
            return failed(
                "decision", f"{key}: recorded {report.get(key)!r}, the rows give {value!r}"
            )
    posted = result.metrics.model_dump()
    for key, number in decision_numbers(decision).items():
        if posted.get(key) != number:
            return failed("decision", f"metrics {key}: posted {posted.get(key)}, rows {number}")
    if fault := _cap_fault(run, result, decision, report):
        return failed("decision", fault)
    capped = (report["capped_verdict"], report["capped_reason"])
    shown = "; ".join(f"{c.id} {c.mean:+.4f} ± {c.half_width:.4f}" for c in decision.criteria)
    return passed("decision", f"{capped[0]} ({capped[1]}) again: {shown}")


def _cap_fault(
    run: PlannedRun, result: ResultDocument, decision: Decision, report: Mapping[str, Any]
) -> str:
    """Return why the published verdict is not what rows and gates allow, "" if it is."""
    capped = (report["capped_verdict"], report["capped_reason"])
    if (result.verdict, result.outcome_reason) != capped:
        return f"the result says {result.verdict}, the decision {capped[0]}"
    allowed = cap_verdict(
        decision.verdict,
        decision.outcome_reason,
        required=required_gate_ids(run.spec),
        outcomes={gate: found["outcome"] for gate, found in report.get("gates", {}).items()},
    )
    incomplete = ("inconclusive", "incomplete_execution")
    if capped not in (allowed, incomplete):
        return f"recorded {capped}, the rows and gates allow {allowed}"
    return ""


def _agree(recorded: Any, again: Any) -> bool:
    """Compare JSON with what was computed; floats up to another machine's libm (1e-12)."""
    if isinstance(again, Mapping):
        same_keys = isinstance(recorded, Mapping) and recorded.keys() == again.keys()
        return same_keys and all(_agree(recorded[key], again[key]) for key in again)
    if isinstance(again, list | tuple):
        same_length = isinstance(recorded, list) and len(recorded) == len(again)
        return same_length and all(map(_agree, recorded, again))
    if isinstance(again, float) and isinstance(recorded, int | float):
        return math.isclose(recorded, again, rel_tol=FLOAT_TOLERANCE, abs_tol=FLOAT_TOLERANCE)
    return recorded == again


def metrics_check(result: ResultDocument, predictions: Rows) -> Check:
    """Recompute the posted numbers of the base model and of each arm."""
    posted = result.metrics.model_dump()
    count = 0
    for arm, rows in predictions.items():
        numbers = posted if arm == BASE_ARM else posted["arms"].get(arm, {})
        for name, value in score_numbers(rows).items():
            count += 1
            if numbers.get(name) != value:
                return failed("metrics", f"{arm} {name}: posted {numbers.get(name)}, rows {value}")
    scored = sorted(arm for arm in predictions if arm != BASE_ARM)
    if sorted(result.completed_arms) != scored:
        return failed("metrics", f"completed {sorted(result.completed_arms)}, rows of {scored}")
    if not count:
        return unknown("metrics", "nothing was scored yet")
    return passed("metrics", f"{count} posted numbers equal the rows'")


def provenance_check(run: PlannedRun, result: ResultDocument) -> Check:
    """Judge the recorded starts of the arms by every rule of contract §3."""
    if result.status == "running" and result.initialization_provenance is None:
        return unknown("provenance", "the run has not ended")
    starts = arm_starts(run)
    if starts:
        again = run_provenance(run, starts, restores_of_arms(run))
        if result.initialization_provenance != again:
            return failed("provenance", "the record is not what the arms' own records give")
    findings = list(judge_provenance(result.initialization_provenance, run.spec))
    for seed in run.spec.decision_rule.seeds[1:]:
        if others := arm_starts(run, seed):
            record = run_provenance(run, others, restores_of_arms(run, seed), seed)
            findings += judge_provenance(record, run.spec)
    false = [str(found) for found in findings if found.outcome is Outcome.FAIL]
    if false:
        return failed("provenance", "; ".join(false[:3]))
    open_rows = len(findings)
    text = f"; {open_rows} optimizer fields unverified: no response shows them" if open_rows else ""
    return passed("provenance", f"one initial adapter and one output in each group{text}")
