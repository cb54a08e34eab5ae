"""What the preregistered rule can show, before a run: exact probabilities of each outcome.

An item's values are right or wrong, so its effect is +unit (only the treatment is right), 0 or
−unit (only the baseline is right). The mean effect then depends on one number, the *net count*:
wins minus losses over all items. Each outcome of the rule is a range of net counts, and the
probability of a range is a finite sum of binomial terms: nothing here is simulated.

The ranges are found by asking :mod:`harness.decision` itself, so they cannot drift from the rule.
Sources: contract §8; issue 6, part 2.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from harness.decision import CriterionResult, judge_criterion
from harness.decision_rule import Criterion, Rule
from harness.errors import DecisionError


@dataclass(frozen=True, slots=True)
class Contrast:
    """A criterion whose two weights are opposite, on values that are right or wrong.

    Attributes:
        criterion: the rule's criterion.
        items: evaluation items, the sample size of the bound.
        seeds: values of one item that are averaged; taken as independent inside the item.
        unit: effect of an item that only the treatment has right, in the metric's units.
    """

    criterion: Criterion
    items: int
    seeds: int
    unit: float

    @property
    def draws(self) -> int:
        """Right-or-wrong pairs: the net count lies between −draws and draws."""
        return self.items * self.seeds

    def judged(self, net: int, alpha: float) -> CriterionResult:
        """Return what the rule says about a net count, by the code that decides runs."""
        whole, rest = divmod(abs(net), self.seeds)
        sign = math.copysign(self.unit, self.unit * net) if net else 0.0
        effects = [sign] * whole + ([sign * rest / self.seeds] if rest else [])
        return judge_criterion(self.criterion, effects + [0.0] * (self.items - len(effects)), alpha)


def contrast_of(rule: Rule, criterion: Criterion, items: int) -> Contrast:
    """Return a criterion as a contrast.

    Raises:
        DecisionError: when its weights are not opposite: the effect then has more than 3 values.
    """
    if criterion.weight_treatment != -criterion.weight_baseline:
        raise DecisionError(
            "the probabilities of this criterion depend on more than wins and losses",
            expected="opposite weights, such as 1 and -1",
            found=f"{criterion.weight_treatment:g} and {criterion.weight_baseline:g}",
            where=f"decision_rule.criteria {criterion.id}",
            fix="plan it by simulation of your own; the half-width below still holds",
        )
    unit = criterion.weight_treatment * (criterion.high - criterion.low)
    return Contrast(criterion, items, len(rule.seeds), unit)


@dataclass(frozen=True, slots=True)
class Regions:
    """The net counts of each outcome; counts in none of them leave the criterion open.

    Attributes:
        passes_from: smallest net count that passes; draws + 1 when none does.
        fails_to: largest net count that fails; −draws − 1 when none does.
        tie: smallest and largest net count whose whole interval lies in the tie band, if any.
    """

    passes_from: int
    fails_to: int
    tie: tuple[int, int] | None


def regions(contrast: Contrast, rule: Rule) -> Regions:
    """Find where the outcome changes, by bisection: the interval moves one way with the count.

    Raises:
        DecisionError: for a negative weight of the treatment.
    """
    if contrast.unit < 0:
        raise DecisionError(
            "the treatment's weight is negative: a better treatment would count against itself",
            expected="a positive weight for the treatment",
            found=f"{contrast.criterion.weight_treatment:g}",
            where=f"decision_rule.criteria {contrast.criterion.id}",
            fix="swap the signs of the weights and of the margin",
        )

    def first(reached: Callable[[CriterionResult], bool]) -> int:
        counts = range(-contrast.draws, contrast.draws + 1)
        at = bisect_left(counts, 1, key=lambda net: int(reached(contrast.judged(net, rule.alpha))))
        return at - contrast.draws

    margin = contrast.criterion.margin
    passes_from = first(lambda found: found.lower > margin)
    fails_to = first(lambda found: not found.upper < margin) - 1
    return Regions(passes_from, fails_to, _tie(first, rule, passes_from, fails_to))


def _tie(
    first: Callable[[Callable[[CriterionResult], bool]], int],
    rule: Rule,
    passes_from: int,
    fails_to: int,
) -> tuple[int, int] | None:
    """Return the open net counts whose interval lies in the band: a settled one is no tie."""
    if rule.tie_band is None:
        return None
    low, high = rule.tie_band
    least = max(first(lambda found: found.lower >= low), fails_to + 1)
    most = min(first(lambda found: found.upper > high), passes_from) - 1
    return (least, most) if least <= most else None


def at_least(net: int, draws: int, p_win: float, p_loss: float) -> float:
    """Return the probability that wins − losses is ``net`` or more.

    P = sum over d of Binomial(d; draws, p_win + p_loss) · P(wins ≥ (net + d)/2 given d discordant).
    """
    discordance = p_win + p_loss
    if discordance <= 0:
        return float(net <= 0)
    discordant_D = np.arange(draws + 1)
    needed_D = -((-(net + discordant_D)) // 2)
    weights_D = binom.pmf(discordant_D, draws, discordance)
    tails_D = binom.sf(needed_D - 1, discordant_D, p_win / discordance)
    return min(1.0, math.fsum(weights_D * tails_D))


@dataclass(frozen=True, slots=True)
class Chances:
    """Probabilities of a criterion's outcomes; they add up to 1."""

    passes: float
    fails: float
    tie: float
    open: float


def chances(contrast: Contrast, found: Regions, difference: float, discordance: float) -> Chances:
    """Return the probabilities when the truth is ``difference``.

    Args:
        contrast: the criterion.
        found: its regions under the rule.
        difference: true P(only treatment right) − P(only baseline right).
        discordance: true P(exactly one is right); at least |difference|.

    Raises:
        DecisionError: for probabilities that do not exist.
    """
    p_win, p_loss = (discordance + difference) / 2, (discordance - difference) / 2
    if not (0 <= discordance <= 1 and p_win >= 0 and p_loss >= 0):
        raise DecisionError(
            "no such truth exists",
            expected="|difference| <= discordance <= 1",
            found=f"difference {difference:g}, discordance {discordance:g}",
        )
    passes = at_least(found.passes_from, contrast.draws, p_win, p_loss)
    # The lower tail as such, wins and losses swapped: 1 minus an upper tail would lose its digits.
    fails = at_least(-found.fails_to, contrast.draws, p_loss, p_win)
    tie = 0.0
    if found.tie is not None:
        above = at_least(found.tie[1] + 1, contrast.draws, p_win, p_loss)
        tie = max(0.0, at_least(found.tie[0], contrast.draws, p_win, p_loss) - above)
    return Chances(passes, fails, tie, max(0.0, 1.0 - passes - fails - tie))
