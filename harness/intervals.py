"""Secondary intervals for a mean paired effect. They are reported and never decide anything.

Four answers to what the preregistered Hoeffding interval might have been under other methods:
paired normal, Tango's score interval, Maurer and Pontil's empirical Bernstein bound, and the hedged
betting confidence sequence in the fixed order of items. All are float64 and two-sided at 1 − alpha.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from harness.errors import DecisionError

Array = npt.NDArray[np.float64]

_BISECTIONS = 60
_BET_CAP = 0.5
"""Bets stay below this share of what would risk ruin (c of Waudby-Smith and Ramdas, eq. 26)."""


@dataclass(frozen=True, slots=True)
class SecondaryInterval:
    """One interval in the effect's units, or the reason why the method does not apply."""

    method: str
    lower: float | None
    upper: float | None
    note: str
    role: str = "secondary, never deciding"


def secondary_intervals(
    effects: Sequence[float], effect_range: tuple[float, float], alpha: float
) -> tuple[SecondaryInterval, ...]:
    """Return all four intervals for effects in item order.

    Args:
        effects: one mean paired effect an item, shape [n].
        effect_range: the smallest and largest effect possible.
        alpha: two-sided error probability.

    Raises:
        DecisionError: for no effects, one outside its range or not finite, or a bad alpha.
    """
    _check(effects, effect_range, alpha)
    paired = len(effects) > 1
    return (
        _applied("paired_normal", lambda: paired_normal(effects, alpha), applies=paired),
        _applied("tango_score", lambda: _tango_of(effects, alpha), applies=_are_binary(effects)),
        _applied(
            "maurer_pontil", lambda: maurer_pontil(effects, effect_range, alpha), applies=paired
        ),
        _applied(
            "hedged_betting", lambda: hedged_betting(effects, effect_range, alpha), applies=True
        ),
    )


_NOTES = {
    "paired_normal": "asymptotic; no guarantee at finite n; needs 2 items",
    "tango_score": "asymptotic; needs binary values of one seed: effects -1, 0 and 1",
    "maurer_pontil": "finite-sample, any distribution in the range; needs 2 items",
    "hedged_betting": "finite-sample, valid at every prefix of the fixed item order",
}


def _applied(
    method: str, compute: Callable[[], tuple[float, float]], *, applies: bool
) -> SecondaryInterval:
    if not applies:
        return SecondaryInterval(method, None, None, f"not applicable: {_NOTES[method]}")
    lower, upper = compute()
    return SecondaryInterval(method, lower, upper, _NOTES[method])


def _check(effects: Sequence[float], effect_range: tuple[float, float], alpha: float) -> None:
    low, high = effect_range
    inside = bool(effects) and all(low <= effect <= high for effect in effects)
    if not inside or not low < high or not 0 < alpha < 1:
        raise DecisionError(
            "no interval exists for these effects",
            expected="at least one effect, all within a range low < high, 0 < alpha < 1",
            found=f"{len(effects)} effects, range [{low}, {high}], alpha {alpha}",
        )


def paired_normal(effects: Sequence[float], alpha: float) -> tuple[float, float]:
    """Return mean ± z·s/√n with the unbiased standard deviation s (the textbook paired z)."""
    n = len(effects)
    mean = math.fsum(effects) / n
    reach = float(norm.isf(alpha / 2)) * math.sqrt(_variance(effects, mean) / n)
    return mean - reach, mean + reach


def _variance(effects: Sequence[float], mean: float) -> float:
    return math.fsum((effect - mean) ** 2 for effect in effects) / (len(effects) - 1)


def maurer_pontil(
    effects: Sequence[float], effect_range: tuple[float, float], alpha: float
) -> tuple[float, float]:
    """Return the empirical Bernstein interval (Maurer and Pontil, COLT 2009, theorem 4).

    Each side holds at delta = alpha/2: with w the range's width and V the unbiased variance,
    mean ± (sqrt(2·V·ln(2/delta)/n) + 7·w·ln(2/delta)/(3(n − 1))).
    """
    n, width = len(effects), effect_range[1] - effect_range[0]
    mean = math.fsum(effects) / n
    log_term = math.log(4 / alpha)
    reach = math.sqrt(2 * _variance(effects, mean) * log_term / n)
    reach += 7 * width * log_term / (3 * (n - 1))
    return mean - reach, mean + reach


def _are_binary(effects: Sequence[float]) -> bool:
    return set(effects) <= {-1.0, 0.0, 1.0}


def _tango_of(effects: Sequence[float], alpha: float) -> tuple[float, float]:
    values = list(effects)
    return tango_score(values.count(1.0), values.count(-1.0), len(values), alpha)


def tango_score(wins: int, losses: int, n: int, alpha: float) -> tuple[float, float]:
    """Return the score interval for paired proportions (Tango, Statistics in Medicine 17, 1998).

    Args:
        wins: items that only the treatment has right.
        losses: items that only the baseline has right.
        n: all items.
        alpha: two-sided error probability.
    """
    critical = float(norm.isf(alpha / 2))
    estimate = (wins - losses) / n
    lower = _root(lambda d: tango_statistic(wins, losses, n, d) > critical, -1.0, estimate)
    upper = _root(lambda d: tango_statistic(wins, losses, n, d) < -critical, 1.0, estimate)
    return lower, upper


def tango_statistic(wins: int, losses: int, n: int, difference: float) -> float:
    """Return the score statistic of the hypothesis that the difference is ``difference``.

    The nuisance probability of a loss is at its constrained maximum-likelihood value, the larger
    root of a quadratic.
    """
    b = (2 * n - wins + losses) * difference - wins - losses
    c = -losses * difference * (1 - difference)
    loss_rate = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
    variance = n * (2 * loss_rate + difference * (1 - difference))
    distance = wins - losses - n * difference
    if variance <= 0:
        return math.copysign(math.inf, distance) if distance else 0.0
    return distance / math.sqrt(variance)


def _root(is_rejected: Callable[[float], bool], outside: float, inside: float) -> float:
    """Bisect between a rejected and an accepted value; return the outermost accepted one."""
    if not is_rejected(outside):
        return outside
    for _ in range(_BISECTIONS):
        middle = (outside + inside) / 2
        if is_rejected(middle):
            outside = middle
        else:
            inside = middle
    return outside


def hedged_betting(
    effects: Sequence[float], effect_range: tuple[float, float], alpha: float
) -> tuple[float, float]:
    """Return the hedged capital confidence sequence after the last item, in item order.

    Waudby-Smith and Ramdas (JRSS B 86, 2024), theorem 3, with equal halves of the capital bet up
    and down, predictable plug-in bets and the running intersection over prefixes. Effects are
    mapped to [0, 1] first. A candidate mean is rejected once either half reaches 1/alpha.
    """
    low, high = effect_range
    unit_T = (np.asarray(effects, dtype=np.float64) - low) / (high - low)
    bets_T = plug_in_bets(unit_T, alpha)
    lower = _root(lambda m: betting_rejects(unit_T, bets_T, m, alpha), 0.0, _accepted(unit_T, 1.0))
    upper = _root(
        lambda m: betting_rejects(1 - unit_T, bets_T, 1 - m, alpha), 1.0, _accepted(unit_T, 0.0)
    )
    return low + (high - low) * lower, low + (high - low) * upper


def _accepted(unit_T: Array, edge: float) -> float:
    """Return a mean that one side's capital cannot reject: beyond it that side only loses."""
    return float(unit_T.max()) if edge else float(unit_T.min())


def plug_in_bets(unit_T: Array, alpha: float) -> Array:
    """Return each item's bet, shape [T], from the items before it only.

    lambda_t = sqrt(2·ln(2/alpha) / (v_{t−1}·t·ln(t + 1))), v the regularised running variance.
    """
    t = np.arange(1, len(unit_T) + 1, dtype=np.float64)
    means_T = (0.5 + np.cumsum(unit_T)) / (t + 1)
    variances_T = (0.25 + np.cumsum((unit_T - means_T) ** 2)) / (t + 1)
    before_T = np.concatenate(([0.25], variances_T[:-1]))
    return np.sqrt(2 * math.log(2 / alpha) / (before_T * t * np.log(t + 1)))


def betting_rejects(unit_T: Array, bets_T: Array, mean: float, alpha: float) -> bool:
    """Return whether betting that the mean exceeds ``mean`` ever turns 1/2 into 1/alpha."""
    capped_T = np.minimum(bets_T, _BET_CAP / mean) if mean > 0 else bets_T
    log_wealth_T = np.cumsum(np.log1p(capped_T * (unit_T - mean)))
    return bool(log_wealth_T.max() >= math.log(2 / alpha))
