"""The verdict box, the criteria and the arms' scores of a report."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.decision import hoeffding_half_width
from harness.decision_rule import Criterion
from harness.evaluation_record import BASE_ARM
from harness.report_model import ArmScore, CriterionReport, Interval, Verdict
from harness.report_source import Source, rounded

EXPLANATIONS = {
    "supported": "The interval of every criterion lies above its margin.",
    "refuted": "The interval of every criterion lies below its margin.",
    "tie": "Every open interval lies inside the preregistered tie band.",
    "mixed_criteria": "Every criterion is settled, some pass and some fail.",
    "insufficient_evidence": "An interval holds its margin: these rows can show neither side.",
    "incomplete_execution": "Rows or proofs are missing, so nothing may be concluded.",
}
"""What each reason of contract §2 says, in one sentence."""
_NOT_YET = "The run has not reached its verdict yet."
_RUN_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z")


def verdict(source: Source) -> Verdict:
    """Return the box at the top."""
    result, decision = source.result, source.decision or {}
    reason = result.outcome_reason
    weakened = result.verdict is not None and decision.get("verdict") not in (None, result.verdict)
    block = result.capacity_block
    return Verdict(
        question=source.run.spec.hypothesis,
        status=result.status,
        verdict=result.verdict,
        outcome_reason=reason,
        explanation=_NOT_YET if reason is None else EXPLANATIONS[reason],
        by_rule=decision["verdict"] if weakened else None,
        summary=result.summary,
        rule=tuple(_rule_lines(source)),
        spec_digest=source.run.loaded.digest,
        planned_at=_planned_at(source.run.plan["run"]),
        original_hypothesis_tested=result.original_hypothesis_tested,
        tested_instead=result.tested_instead,
        stopped_by_capacity=None if block is None else block.error,
    )


def _planned_at(run_id: str) -> str | None:
    found = _RUN_TIME.match(run_id)
    if found is None:
        return None
    year, month, day, hour, minute, second = found.groups()
    return f"{year}-{month}-{day} {hour}:{minute}:{second} UTC"


def _rule_lines(source: Source) -> Iterator[str]:
    spec, rule, roles = source.run.spec, source.rule, source.roles
    yield spec.success_criterion
    yield (
        f"Method {spec.decision_rule.method} at alpha {rule.alpha:g}, two-sided, for each criterion"
        f" by itself; {spec.eval.n_examples} items, seeds {list(rule.seeds)}."
    )
    for criterion in rule.criteria:
        yield (
            f"{criterion.id}: the mean over items of {criterion.weight_treatment:+g} ×"
            f" {criterion.metric} of {roles.treatment} {criterion.weight_baseline:+g} ×"
            f" {criterion.metric} of {roles.baseline}. It passes if the interval's lower end is"
            f" above {criterion.margin:g}, fails if the upper end is below, and is open otherwise."
        )
    if rule.tie_band is not None:
        low, high = rule.tie_band
        yield f"A tie: every open interval lies within [{low:g}, {high:g}]."


def criteria(source: Source) -> tuple[CriterionReport, ...]:
    """Return the criteria as the decision recorded them; none before the verdict."""
    if source.decision is None:
        return ()
    secondary = source.decision.get("secondary", {})
    return tuple(_criterion(source, found, secondary) for found in source.decision["criteria"])


def _criterion(
    source: Source, found: Mapping[str, Any], secondary: Mapping[str, Any]
) -> CriterionReport:
    intervals = tuple(Interval(**row) for row in secondary.get(found["id"], ()))
    roles = source.roles
    return CriterionReport(
        **found, treatment=roles.treatment, baseline=roles.baseline, secondary=intervals
    )


def incomplete(source: Source) -> tuple[str, ...]:
    """Return what the decision found wrong with its rows."""
    defects = () if source.decision is None else source.decision["defects"]
    return tuple(
        f"{defect['kind']}: {defect['count']}, such as {'; '.join(defect['examples'])}"
        for defect in defects
    )


def scores(source: Source) -> tuple[ArmScore, ...]:
    """Return the score of the base model and of every arm that was scored."""
    posted = source.result.metrics.model_dump()
    found: list[ArmScore] = []
    for arm, rows in source.predictions.items():
        numbers = posted if arm == BASE_ARM else posted["arms"].get(arm, {})
        metric = str(rows[0]["metric"])
        if metric in numbers:
            found.append(_score(source, arm, metric, numbers, len(rows)))
    return tuple(found)


def _score(source: Source, arm: str, metric: str, numbers: Mapping[str, Any], n: int) -> ArmScore:
    bounds = _bounds(source.rule.criteria, metric)
    value = numbers[metric]
    reach = None if bounds is None else _reach(bounds, n, source.rule.alpha)
    return ArmScore(
        arm=arm,
        role=_role(source, arm),
        metric=metric,
        n=n,
        value=value,
        lower=None if reach is None else rounded(value - reach),
        upper=None if reach is None else rounded(value + reach),
        unfinished=numbers.get("unfinished"),
        unanswered=numbers.get("unanswered"),
    )


def _bounds(criteria: tuple[Criterion, ...], metric: str) -> tuple[float, float] | None:
    found = [(item.low, item.high) for item in criteria if item.metric == metric]
    return found[0] if found else None


def _reach(bounds: tuple[float, float], n: int, alpha: float) -> float:
    return hoeffding_half_width(bounds[1] - bounds[0], n, alpha)


def _role(source: Source, arm: str) -> str:
    if arm == BASE_ARM:
        return "base model, untrained"
    names = {source.roles.treatment: "treatment", source.roles.baseline: "baseline"}
    return names.get(arm, "other arm")
