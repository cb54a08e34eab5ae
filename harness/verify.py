"""``python -m harness verify RUN``: judge a run again from its files alone.

No service, no model, no pytest and no number that was posted is trusted: digests, evaluator ids,
grades, scores, advantages, the decision and the gates' verdicts are recomputed from rows, and the
result document must agree. One line a check; exit 0 when all is proven, 1 when something is false,
3 when something is unknown. Works on a run that was made elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import MALFORMED, shown
from harness.evaluation_record import judge_evaluation
from harness.gates.verdict import Outcome, combine
from harness.manifest import MANIFEST_NAME, Finding, check_manifest
from harness.plan import PlannedRun, effective_config, read_plan
from harness.report_files import report_check
from harness.result import RESULT_NAME, ResultDocument, read_result
from harness.run_result import GROWING_FILES
from harness.run_scores import evaluator_id_of
from harness.store import read_jsonl
from harness.verify_evidence import deviations_check, evidence_check
from harness.verify_gates import gate_checks
from harness.verify_judgement import (
    decision_check,
    metrics_check,
    observations_check,
    provenance_check,
)
from harness.verify_rows import Check, failed, grading_check, items_check, passed, unknown
from harness.verify_training import checkpoints_check, training_checks

EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNKNOWN: 3}
_EXAMPLES = 5
LONGEST_LINE = 200


@dataclass(frozen=True)
class Evidence:
    """A run read back from disk.

    Attributes:
        run: the plan and the run's own copy of the spec.
        result: the result document.
        predictions: arm or ``base`` → its prediction rows.
    """

    run: PlannedRun
    result: ResultDocument
    predictions: dict[str, tuple[dict[str, Any], ...]]


def verify_run(
    folder: Path, gsm8k_dir: Path | None = None, published_head: str | None = None
) -> list[Check]:
    """Run every check and return their outcomes; a malformed file fails its check.

    Args:
        folder: the run's folder, or a link to it.
        gsm8k_dir: offline rows of the data set, where the run used them.
        published_head: the manifest's head as it was published elsewhere, where it was.
    """
    folder = folder.resolve()
    checks = [_guarded("manifest", lambda: _manifest(folder, published_head))]
    try:
        evidence = _read(folder, gsm8k_dir)
    except MALFORMED as error:
        return [*checks, failed("readable", shown(f"{type(error).__name__}: {error}"))]
    checks.extend(_guarded(name, check) for name, check in _checks(evidence))
    for arm in evidence.run.spec.trainings:
        checks.extend(_guarded_all(f"training {arm.name}", training_checks, evidence.run, arm))
    checks.extend(_guarded_all("gates", gate_checks, evidence.run, evidence.result))
    return checks


def _read(folder: Path, gsm8k_dir: Path | None) -> Evidence:
    """Read plan, result and rows; a row says itself whose it is, whatever file it is in."""
    predictions: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((folder / "predictions").glob("*.jsonl")):
        for row in read_jsonl(path):
            predictions.setdefault(row["arm"], []).append(row)
    rows = {arm: tuple(found) for arm, found in predictions.items()}
    return Evidence(read_plan(folder, gsm8k_dir), read_result(folder / RESULT_NAME), rows)


def _checks(evidence: Evidence) -> Iterator[tuple[str, Callable[[], Check]]]:
    run, result, predictions = evidence.run, evidence.result, evidence.predictions
    yield "plan", lambda: _plan(run)
    yield "result", lambda: _result(result)
    yield "evaluator", lambda: _evaluator(evidence)
    yield "scores", lambda: _scores(evidence)
    yield "grading", lambda: grading_check(predictions)
    yield "items", lambda: items_check(run, predictions)
    yield "checkpoints", lambda: checkpoints_check(run, predictions)
    yield "observations", lambda: observations_check(run, predictions)
    yield "decision", lambda: decision_check(run, result, predictions)
    yield "provenance", lambda: provenance_check(run, result)
    yield "metrics", lambda: metrics_check(result, predictions)
    yield "deviations", lambda: deviations_check(run, result)
    yield "evidence", lambda: evidence_check(run, result, predictions)
    yield "report", lambda: report_check(run.folder, run.gsm8k_dir)


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    """Turn what a malformed document raises into a failed check that names it."""
    try:
        return check()
    except MALFORMED as error:
        return failed(name, shown(f"{type(error).__name__}: {error}"))


def _guarded_all(name: str, checks: Callable[..., list[Check]], *arguments: Any) -> list[Check]:
    try:
        return checks(*arguments)
    except MALFORMED as error:
        return [failed(name, shown(f"{type(error).__name__}: {error}"))]


def _manifest(folder: Path, published_head: str | None) -> Check:
    running = _is_running(folder)
    if running and published_head is None and not (folder / MANIFEST_NAME).exists():
        return unknown("manifest", "nothing of this unfinished run is entered yet")
    ignored = GROWING_FILES if running else ()
    findings = check_manifest(folder, published_head=published_head, ignored=ignored)
    if running and all(finding.kind in ("unsealed", "added") for finding in findings):
        return unknown("manifest", f"the run has not ended: {_listed(findings)}")
    if findings:
        return failed("manifest", _listed(findings))
    kept = "" if published_head is None else "; the head is the published one"
    return passed("manifest", f"every file is as it was entered, and none was added{kept}")


def _is_running(folder: Path) -> bool:
    try:
        return read_result(folder / RESULT_NAME).status == "running"
    except MALFORMED:
        # The manifest says which file was damaged; the result's own check says how.
        return False


def _listed(findings: Sequence[Finding]) -> str:
    shown = "; ".join(str(finding) for finding in findings[:_EXAMPLES])
    more = len(findings) - _EXAMPLES
    return f"{shown}; and {more} more" if more > 0 else shown


def _plan(run: PlannedRun) -> Check:
    planned = run.plan["arms"]
    names = [arm.name for arm in run.spec.trainings]
    if sorted(planned) != sorted(names):
        return failed("plan", f"plan has arms {sorted(planned)}, the spec {sorted(names)}")
    for arm in run.spec.trainings:
        if planned[arm.name]["effective_config"] != effective_config(run.spec, arm):
            return failed("plan", f"effective configuration of {arm.name} is not the spec's")
    return passed("plan", f"spec digest {run.loaded.digest[:12]} and every arm as preregistered")


def _result(result: ResultDocument) -> Check:
    if result.status != "succeeded" or result.verdict is None:
        return unknown("result", f"status {result.status}, no verdict yet")
    return passed("result", f"coherent; {result.verdict} ({result.outcome_reason})")


def _evaluator(evidence: Evidence) -> Check:
    if not evidence.predictions:
        return unknown("evaluator", "nothing was scored yet")
    evaluator_id = evaluator_id_of(evidence.run)
    foreign = {
        str(row["evaluator_id"])
        for rows in evidence.predictions.values()
        for row in rows
        if row["evaluator_id"] != evaluator_id
    }
    if foreign:
        return failed("evaluator", f"rows scored under {sorted(foreign)[:3]}, not {evaluator_id}")
    return passed("evaluator", f"every row was scored under {evaluator_id[:12]}")


def _scores(evidence: Evidence) -> Check:
    record = evidence.result.evaluation
    if record is None:
        return unknown("scores", "the result has no evaluation yet")
    rows = [row for found in evidence.predictions.values() for row in found]
    judged = judge_evaluation(
        record,
        rows,
        seeds=evidence.run.spec.decision_rule.seeds,
        current=evaluator_id_of(evidence.run),
    )
    if judged.outcome is Outcome.FAIL:
        return failed("scores", "; ".join(judged.contradictions[:3]))
    if judged.outcome is Outcome.UNKNOWN:
        return unknown("scores", "; ".join(judged.incomplete[:3]))
    return passed("scores", f"{len(record['scores'])} scores equal the means of their rows")


def report_lines(checks: Sequence[Check]) -> list[str]:
    """Return one line a check and a last line with the sum of it."""
    lines = [_cut(f"{check.outcome:7} {check.name}: {check.detail}") for check in checks]
    counts = ", ".join(
        f"{sum(check.outcome is outcome for check in checks)} {outcome}" for outcome in Outcome
    )
    return [*lines, f"{len(checks)} checks: {counts}"]


def _cut(line: str) -> str:
    """Return a line that fits a terminal: a detail may be a whole document's refusal."""
    one_line = " ".join(line.splitlines())
    return one_line if len(one_line) <= LONGEST_LINE else f"{one_line[: LONGEST_LINE - 1]}…"


def exit_code(checks: Sequence[Check]) -> int:
    """Return 0 when all is proven, 1 when something is false, 3 when something is unknown."""
    return EXIT_CODES[combine(check.outcome for check in checks)]
