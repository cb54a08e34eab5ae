"""What would change the decision: computed from the rows that decided, changing nothing.

For a mean effect m of n items in a range of width w, the rule's interval is m ± w·sqrt(L / 2n) with
L = ln(2/alpha) (contract §8). It holds the margin M until |m − M| exceeds the half-width, so at the
same m it takes n > w²·L / (2·(m − M)²) items.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.stats import norm

from harness.report_model import Change, CriterionReport, Interval, Requirement
from harness.report_source import Source, rounded

BINARY = frozenset((-1.0, 0.0, 1.0))
"""Effects of a 0/1 metric under weights +1 and −1 and one seed."""
OTHER_EXPERIMENT = "a margin moved after the data is another experiment"
NEVER = "secondary, never decides"


def change(source: Source, criteria: Sequence[CriterionReport]) -> tuple[Change, ...]:
    """Return what would change the decision on each criterion; none before the verdict."""
    effects = source.effects()
    return tuple(
        _change(criterion, effects[criterion.id], source.rule.alpha)
        for criterion in criteria
        if criterion.id in effects
    )


def _change(criterion: CriterionReport, effects: Sequence[float], alpha: float) -> Change:
    wins = sum(effect > 0 for effect in effects)
    losses = sum(effect < 0 for effect in effects)
    n = len(effects)
    return Change(
        criterion=criterion.id,
        n=n,
        wins=wins,
        losses=losses,
        ties=n - wins - losses,
        discordance=rounded((wins + losses) / n),
        by_rule=(
            _mean_needed(criterion, effects, "pass"),
            _mean_needed(criterion, effects, "fail"),
            _items_by_rule(criterion, alpha),
            _margin_needed(criterion),
            _discordance_by_rule(wins + losses, n),
        ),
        secondary=(
            *(_as_method(criterion, interval) for interval in criterion.secondary),
            *_by_normal(criterion, effects, alpha),
        ),
    )


def _mean_needed(criterion: CriterionReport, effects: Sequence[float], state: str) -> Requirement:
    """Return the mean from which the criterion would pass, or fail."""
    passes = state == "pass"
    edge = criterion.margin + (criterion.half_width if passes else -criterion.half_width)
    met = criterion.mean > edge if passes else criterion.mean < edge
    note = "met" if met else "not met"
    if BINARY.issuperset(effects):
        net = math.floor(edge * criterion.n) + 1 if passes else math.ceil(edge * criterion.n) - 1
        note += f"; a net of {net:+d} items, found {round(criterion.mean * criterion.n):+d}"
    return Requirement(
        what=f"mean effect, for the criterion to {state} at this n and margin",
        now=f"{criterion.mean:+.4f}",
        needed=f"{'above' if passes else 'below'} {edge:+.4f}",
        note=note,
    )


def _items_by_rule(criterion: CriterionReport, alpha: float) -> Requirement:
    width = criterion.effect_high - criterion.effect_low
    return _items(
        "items, to settle the criterion at this mean and margin",
        criterion,
        width * width * math.log(2 / alpha) / 2,
        "for the rule's own interval",
    )


def _items(what: str, criterion: CriterionReport, scale: float, note: str) -> Requirement:
    """Return how many items an interval of half-width sqrt(scale / n) needs."""
    distance = criterion.mean - criterion.margin
    word = "pass" if distance > 0 else "fail"
    needed = "no number of items: the mean is the margin"
    if distance:
        needed = f"{math.floor(rounded(scale / distance**2)) + 1} (then it would {word})"
    return Requirement(what=what, now=str(criterion.n), needed=needed, note=note)


def _margin_needed(criterion: CriterionReport) -> Requirement:
    return Requirement(
        what="margin, at these rows",
        now=f"{criterion.margin:+g}",
        needed=f"below {criterion.lower:+.4f} to pass, above {criterion.upper:+.4f} to fail",
        note=OTHER_EXPERIMENT,
    )


def _discordance_by_rule(discordant: int, n: int) -> Requirement:
    return Requirement(
        what="discordance: the share of items with an effect",
        now=f"{discordant / n:.4f} ({discordant} of {n})",
        needed="no discordance changes it",
        note="the rule's half-width depends on the range and on n only",
    )


def _as_method(criterion: CriterionReport, interval: Interval) -> Requirement:
    if interval.lower is None or interval.upper is None:
        found, would = "no interval", interval.note
    else:
        found = f"[{interval.lower:+.4f}, {interval.upper:+.4f}]"
        would = f"would have been {_state(interval.lower, interval.upper, criterion.margin)}"
    return Requirement(
        what=f"under {interval.method}",
        now=found,
        needed=f"an end beyond {criterion.margin:+g}",
        note=f"{would}; {NEVER}",
    )


def _state(lower: float, upper: float, margin: float) -> str:
    if lower > margin:
        return "pass"
    return "fail" if upper < margin else "open"


def _by_normal(
    criterion: CriterionReport, effects: Sequence[float], alpha: float
) -> tuple[Requirement, ...]:
    """Return items and discordance at which the paired normal interval would leave the margin."""
    n = len(effects)
    if n < 2:
        return ()
    z = float(norm.isf(alpha / 2))
    variance = math.fsum((effect - criterion.mean) ** 2 for effect in effects) / (n - 1)
    what = "items, to settle it at this mean and discordance under paired_normal"
    items = _items(what, criterion, z * z * variance, NEVER)
    if not BINARY.issuperset(effects):
        return (items,)
    # The variance of effects -1, 0, 1 is (discordance − mean²)·n / (n − 1).
    allowed = (criterion.mean - criterion.margin) ** 2 * (n - 1) / (z * z) + criterion.mean**2
    discordance = Requirement(
        what="discordance, to settle it at this mean and n under paired_normal",
        now=f"{sum(effect != 0 for effect in effects) / n:.4f}",
        needed=f"below {min(allowed, 1.0):.4f}",
        note=NEVER,
    )
    return items, discordance
