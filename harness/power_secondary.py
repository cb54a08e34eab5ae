"""What the secondary intervals would have said, had one of them been the rule.

They never decide anything. Paired normal, Tango and Maurer–Pontil depend on wins and losses only,
so their probabilities are sums over the multinomial of (wins, losses, ties): exact up to
``EXACT_ITEMS`` items, simulated beyond. Betting depends on the order of items: always simulated.
Shape suffix: ``_K`` pairs of (wins, losses).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln
from scipy.stats import norm

from harness.intervals import Array, betting_rejects, plug_in_bets
from harness.power import Contrast

Flags = npt.NDArray[np.bool_]

EXACT_ITEMS = 2000
"""Up to here every pair of wins and losses is summed: two million terms."""
SIMULATED_RUNS = 20_000
BETTING_RUNS = 400
COUNT_METHODS = ("paired_normal", "tango_score", "maurer_pontil")


@dataclass(frozen=True, slots=True)
class SecondaryChance:
    """Probability that a method's lower bound is above the margin, or its upper bound below it.

    ``runs`` is None for an exact sum, else the number of simulated runs; the standard error of a
    simulated probability p is sqrt(p(1 − p)/runs).
    """

    method: str
    above: float
    below: float
    runs: int | None


class Counts:
    """Pairs of wins and losses, what each method says about them, and how likely they are.

    Args:
        contrast: a criterion of one seed.
        alpha: two-sided error probability.
        seed: of the simulation, where there is one.
    """

    def __init__(self, contrast: Contrast, alpha: float, seed: int) -> None:
        self.contrast, self.alpha, self.seed = contrast, alpha, seed
        self.is_exact = contrast.items <= EXACT_ITEMS
        if self.is_exact:
            self._wins_K, self._losses_K = _triangle(contrast.items)
            self._verdicts = verdicts(contrast, alpha, self._wins_K, self._losses_K)
            self._log_counts_K = _log_multinomial(contrast.items, self._wins_K, self._losses_K)

    def chances(self, difference: float, discordance: float) -> list[SecondaryChance]:
        """Return each method's chances when the truth is as given (see ``power.chances``)."""
        p_win, p_loss = (discordance + difference) / 2, (discordance - difference) / 2
        cell = [self.seed, round(p_win * 1e6), round(p_loss * 1e6)]
        rng = np.random.default_rng(cell)
        if self.is_exact:
            weights_K = self._weights(p_win, p_loss)
            found, runs = self._verdicts, None
        else:
            shares = [p_win, p_loss, 1 - discordance]
            drawn = rng.multinomial(self.contrast.items, shares, size=SIMULATED_RUNS)
            wins_K, losses_K, _ = drawn.astype(np.float64).T
            found = verdicts(self.contrast, self.alpha, wins_K, losses_K)
            weights_K, runs = np.full(SIMULATED_RUNS, 1 / SIMULATED_RUNS), SIMULATED_RUNS
        rows = [
            SecondaryChance(
                method, float(weights_K[above_K].sum()), float(weights_K[below_K].sum()), runs
            )
            for method, (above_K, below_K) in found.items()
        ]
        return [*rows, self._betting(rng, p_win, p_loss)]

    def _weights(self, p_win: float, p_loss: float) -> Array:
        ties_K = self.contrast.items - self._wins_K - self._losses_K
        log_weights_K = self._log_counts_K.copy()
        for count_K, p in (
            (self._wins_K, p_win),
            (self._losses_K, p_loss),
            (ties_K, 1 - p_win - p_loss),
        ):
            if p > 0:
                log_weights_K += count_K * math.log(p)
            else:
                log_weights_K[count_K > 0] = -np.inf
        return np.exp(log_weights_K)

    def _betting(self, rng: np.random.Generator, p_win: float, p_loss: float) -> SecondaryChance:
        contrast = self.contrast
        low, high = contrast.criterion.effect_range
        margin = (contrast.criterion.margin - low) / (high - low)
        above = below = 0
        for _ in range(BETTING_RUNS):
            point_T = rng.random(contrast.items)
            effects_T = contrast.unit * (
                (point_T < p_win).astype(np.float64) - (point_T > 1 - p_loss)
            )
            unit_T = (effects_T - low) / (high - low)
            bets_T = plug_in_bets(unit_T, self.alpha)
            above += betting_rejects(unit_T, bets_T, margin, self.alpha)
            below += betting_rejects(1 - unit_T, bets_T, 1 - margin, self.alpha)
        return SecondaryChance(
            "hedged_betting", above / BETTING_RUNS, below / BETTING_RUNS, BETTING_RUNS
        )


def _triangle(items: int) -> tuple[Array, Array]:
    wins, losses = np.meshgrid(np.arange(items + 1), np.arange(items + 1), indexing="ij")
    inside = wins + losses <= items
    return wins[inside].astype(np.float64), losses[inside].astype(np.float64)


def _log_multinomial(items: int, wins_K: Array, losses_K: Array) -> Array:
    ties_K = items - wins_K - losses_K
    return gammaln(items + 1) - gammaln(wins_K + 1) - gammaln(losses_K + 1) - gammaln(ties_K + 1)


def verdicts(
    contrast: Contrast, alpha: float, wins_K: Array, losses_K: Array
) -> Mapping[str, tuple[Flags, Flags]]:
    """Return for each method which pairs put the lower bound above, or the upper below, the margin.

    The formulas of :mod:`harness.intervals` for many pairs at once; a test holds them together.
    Tango's method is for effects of −1, 0 and 1 and is left out for others.
    """
    n, unit, margin = contrast.items, contrast.unit, contrast.criterion.margin
    if n < 2:
        return {}
    mean_K = unit * (wins_K - losses_K) / n
    square_K = unit * unit * (wins_K + losses_K)
    variance_K = np.maximum(0.0, (square_K - n * mean_K**2) / (n - 1))
    critical = float(norm.isf(alpha / 2))
    low, high = contrast.criterion.effect_range
    log_term = math.log(4 / alpha)
    bernstein_K = np.sqrt(2 * variance_K * log_term / n)
    bernstein_K += 7 * (high - low) * log_term / (3 * (n - 1))
    found = {
        "paired_normal": _beyond(mean_K, critical * np.sqrt(variance_K / n), margin),
        "maurer_pontil": _beyond(mean_K, bernstein_K, margin),
    }
    if unit == 1.0:
        statistic_K = _tango(n, wins_K, losses_K, margin)
        found["tango_score"] = statistic_K > critical, statistic_K < -critical
    return found


def _beyond(mean_K: Array, reach_K: Array, margin: float) -> tuple[Flags, Flags]:
    return mean_K - reach_K > margin, mean_K + reach_K < margin


def _tango(n: int, wins_K: Array, losses_K: Array, margin: float) -> Array:
    b_K = (2 * n - wins_K + losses_K) * margin - wins_K - losses_K
    c_K = -losses_K * margin * (1 - margin)
    loss_rate_K = (np.sqrt(np.maximum(0.0, b_K * b_K - 8 * n * c_K)) - b_K) / (4 * n)
    variance_K = n * (2 * loss_rate_K + margin * (1 - margin))
    distance_K = wins_K - losses_K - n * margin
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic_K = distance_K / np.sqrt(np.maximum(variance_K, 0.0))
    return np.where(distance_K == 0, 0.0, statistic_K)
