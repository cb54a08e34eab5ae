"""The verdict on a preregistered comparison, recomputed from paired rows (contract §8).

Per item the effect is d_i = Σ weights · value, averaged over seeds inside the item; the unit is the
item, and seeds never add items. Values lie in known bounds, so Hoeffding (1963, theorem 2)
bounds the mean of n effects in [lo, hi] two-sidedly at 1 − alpha by
mean ± (hi − lo)·sqrt(ln(2/alpha) / 2n), whatever their distribution. A criterion passes if the
lower bound exceeds the margin, fails if the upper bound is below it, and is open otherwise.
Sums are exactly rounded (``math.fsum``), so that the order of rows changes no bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from harness.completeness import (
    Defect,
    Key,
    Plan,
    find_defects,
    refuse_unscheduled_seeds,
    values_by_key,
)
from harness.decision_rule import METHOD, UNIT, Arms, Criterion, Rule
from harness.errors import DecisionError
from harness.observations import Observation
from harness.plain_rows import uncollected

State = Literal["pass", "fail", "open"]
Verdict = Literal["supported", "refuted", "inconclusive"]
OutcomeReason = Literal[
    "supported",
    "refuted",
    "tie",
    "mixed_criteria",
    "insufficient_evidence",
    "incomplete_execution",
]


@dataclass(frozen=True, slots=True)
class CriterionResult:
    """What the rows say about one criterion, in the metric's units.

    Attributes:
        n: items, the sample size of the bound.
        mean: mean paired effect.
        half_width: Hoeffding half-width at the rule's alpha.
        lower, upper: mean ∓ half_width, never clipped to the range.
        effect_low, effect_high: the range of effects that the half-width was computed from.
    """

    id: str
    metric: str
    n: int
    mean: float
    half_width: float
    lower: float
    upper: float
    effect_low: float
    effect_high: float
    margin: float
    state: State


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict with everything it rests on; ``criteria`` is empty for incomplete rows."""

    verdict: Verdict
    outcome_reason: OutcomeReason
    arms: Arms
    alpha: float
    seeds: tuple[int, ...]
    criteria: tuple[CriterionResult, ...]
    defects: tuple[Defect, ...]

    def report(self) -> dict[str, Any]:
        """Return the decision as plain JSON values."""
        return {
            "verdict": self.verdict,
            "outcome_reason": self.outcome_reason,
            "method": METHOD,
            "unit": UNIT,
            "arms": asdict(self.arms),
            "alpha": self.alpha,
            "alpha_splitting": "none: each criterion is tested at alpha",
            "seeds": list(self.seeds),
            "criteria": [asdict(criterion) for criterion in self.criteria],
            "defects": [asdict(defect) for defect in self.defects],
        }


def hoeffding_half_width(width: float, n: int, alpha: float) -> float:
    """Return width·sqrt(ln(2/alpha) / 2n): 0.0747894 for width 2, n 1319, alpha 0.05.

    Raises:
        DecisionError: for no items or an alpha outside (0, 1).
    """
    if n < 1 or not 0 < alpha < 1:
        raise DecisionError(
            "no half-width exists", expected="n >= 1, 0 < alpha < 1", found=f"n {n}, alpha {alpha}"
        )
    return width * math.sqrt(math.log(2 / alpha) / (2 * n))


def item_effects(criterion: Criterion, values: dict[Key, float], plan: Plan) -> tuple[float, ...]:
    """Return each item's effect, seeds averaged inside the item, in the plan's item order."""
    weighted = (
        (plan.arms.treatment, criterion.weight_treatment),
        (plan.arms.baseline, criterion.weight_baseline),
    )
    metric, by_key = criterion.metric, cast(Mapping[tuple[object, ...], float], values)
    columns = [
        [weight * by_key[arm, metric, item, seed] for item in plan.items]
        for arm, weight in weighted
        for seed in plan.seeds
    ]
    return tuple(math.fsum(terms) / len(plan.seeds) for terms in zip(*columns, strict=True))


def judge_criterion(
    criterion: Criterion, effects: Sequence[float], alpha: float
) -> CriterionResult:
    """Apply the paired Hoeffding test to the effects, one an item. Strict inequalities."""
    n = len(effects)
    low, high = criterion.effect_range
    half_width = hoeffding_half_width(high - low, n, alpha)
    mean = math.fsum(effects) / n
    lower, upper = mean - half_width, mean + half_width
    return CriterionResult(
        id=criterion.id,
        metric=criterion.metric,
        n=n,
        mean=mean,
        half_width=half_width,
        lower=lower,
        upper=upper,
        effect_low=low,
        effect_high=high,
        margin=criterion.margin,
        state=_state(lower, upper, criterion.margin),
    )


def _state(lower: float, upper: float, margin: float) -> State:
    if lower > margin:
        return "pass"
    return "fail" if upper < margin else "open"


def outcome(
    results: Sequence[CriterionResult], tie_band: tuple[float, float] | None
) -> tuple[Verdict, OutcomeReason]:
    """Combine criteria: a tie needs every open criterion's whole interval in the closed band."""
    states = {result.state for result in results}
    if "open" in states:
        tied = tie_band is not None and all(
            tie_band[0] <= result.lower and result.upper <= tie_band[1]
            for result in results
            if result.state == "open"
        )
        return "inconclusive", "tie" if tied else "insufficient_evidence"
    if states == {"pass"}:
        return "supported", "supported"
    if states == {"fail"}:
        return "refuted", "refuted"
    return "inconclusive", "mixed_criteria"


def decide(
    rule: Rule,
    rows: Sequence[Observation],
    plan: Plan,
    *,
    selection_defects: Sequence[Defect] = (),
) -> Decision:
    """Judge the rows; anything missing, extra, doubled, out of bounds or foreign is incomplete.

    Args:
        rule: the preregistered rule.
        rows: one row for each arm, metric, item and scheduled seed, in any order.
        plan: which rows must exist and under which evaluators.
        selection_defects: what ``harness.selection`` found where selection was adaptive.

    Raises:
        DecisionError: for a seed outside the rule's list, or a plan that is none.
    """
    with uncollected():
        return _decided(rule, rows, plan, selection_defects)


def _decided(
    rule: Rule, rows: Sequence[Observation], plan: Plan, selection_defects: Sequence[Defect]
) -> Decision:
    refuse_unscheduled_seeds(rows, plan.seeds)
    defects = (*find_defects(rule, rows, plan), *selection_defects)
    results: tuple[CriterionResult, ...] = ()
    verdict: tuple[Verdict, OutcomeReason] = ("inconclusive", "incomplete_execution")
    if not defects:
        values = values_by_key(rows)
        results = tuple(
            judge_criterion(c, item_effects(c, values, plan), rule.alpha) for c in rule.criteria
        )
        verdict = outcome(results, rule.tie_band)
    return Decision(*verdict, plan.arms, rule.alpha, plan.seeds, results, defects)
