"""Secondary intervals against published figures, direct inversion and coverage."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import fminbound
from scipy.stats import chi2, ttest_rel

from harness.errors import DecisionError
from harness.intervals import (
    hedged_betting,
    maurer_pontil,
    paired_normal,
    secondary_intervals,
    tango_score,
    tango_statistic,
)

FAST = settings(derandomize=True, deadline=None, max_examples=60)
RANGE = (-1.0, 1.0)
EXAMPLE = [1.0] * 7 + [-1.0] * 3 + [0.0] * 10


def test_paired_normal_of_a_hand_worked_example() -> None:
    """Effects 0, 0, 1, 1: mean 0.5, s² = 1/3, s/√n = 0.288675, times 1.959964."""
    lower, upper = paired_normal([0.0, 0.0, 1.0, 1.0], 0.05)
    assert lower == pytest.approx(0.5 - 0.5657929, abs=1e-6)
    assert upper == pytest.approx(0.5 + 0.5657929, abs=1e-6)


def test_paired_normal_is_the_paired_t_interval_at_large_n() -> None:
    rng = np.random.default_rng(7)
    pair = rng.random((2, 20_000))
    t = ttest_rel(pair[0], pair[1]).confidence_interval(0.95)
    assert paired_normal(list(pair[0] - pair[1]), 0.05) == pytest.approx((t.low, t.high), abs=1e-6)


def test_tango_on_the_airway_reactivity_data() -> None:
    """Fagerland, Lydersen and Laake (2014): 7 against 1 of 21 pairs gives 0.026 to 0.517."""
    assert tango_score(7, 1, 21, 0.05) == pytest.approx((0.026, 0.517), abs=5e-4)
    assert tango_score(1, 7, 21, 0.05) == pytest.approx((-0.517, -0.026), abs=5e-4)


@FAST
@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 40), st.floats(-0.95, 0.95))
def test_tango_uses_the_maximum_likelihood_nuisance_probability(
    wins: int, losses: int, ties: int, difference: float
) -> None:
    n = wins + losses + ties

    def cost(loss_rate: float) -> float:
        rates = (loss_rate + difference, loss_rate, 1 - 2 * loss_rate - difference)
        terms = zip((wins, losses, ties), rates, strict=True)
        return -sum(count * math.log(max(rate, 1e-300)) for count, rate in terms if count)

    least, most = max(0.0, -difference), (1 - difference) / 2
    best = np.asarray(fminbound(cost, least, most, xtol=1e-12)).item()
    variance = (2 * float(best) + difference - difference**2) / n
    expected = ((wins - losses) / n - difference) / math.sqrt(variance)
    assert tango_statistic(wins, losses, n, difference) == pytest.approx(
        expected, rel=1e-3, abs=1e-3
    )


@FAST
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 60))
def test_tango_bounds_are_where_the_score_test_turns(wins: int, losses: int, ties: int) -> None:
    n = wins + losses + ties
    if n == 0:
        return
    lower, upper = tango_score(wins, losses, n, 0.05)
    critical = math.sqrt(float(chi2.isf(0.05, 1)))
    assert -1 <= lower <= (wins - losses) / n <= upper <= 1
    for bound, step in ((lower, 1e-6), (upper, -1e-6)):
        assert abs(tango_statistic(wins, losses, n, bound + step)) <= critical + 1e-6
        if abs(bound) < 1:
            assert abs(tango_statistic(wins, losses, n, bound - step)) >= critical - 1e-6


def test_maurer_pontil_of_a_hand_worked_example() -> None:
    """20 effects, mean 0.2, V = (10 − 20·0.04)/19 = 0.4842105, ln(4/0.05) = 4.3820266."""
    reach = math.sqrt(2 * 0.4842105 * 4.3820266 / 20) + 7 * 2 * 4.3820266 / (3 * 19)
    lower, upper = maurer_pontil(EXAMPLE, RANGE, 0.05)
    assert (lower, upper) == pytest.approx((0.2 - reach, 0.2 + reach), abs=1e-6)


def hedged_by_grid(effects: Sequence[float], alpha: float, cells: int) -> tuple[float, float]:
    """Invert the definition item by item in plain Python over a grid of candidate means."""
    units = [(effect + 1) / 2 for effect in effects]
    kept: list[float] = []
    for cell in range(1, cells):
        m = cell / cells
        up = down = 1.0
        total, squares, variance, alive = 0.5, 0.25, 0.25, True
        for t, x in enumerate(units, start=1):
            bet = math.sqrt(2 * math.log(2 / alpha) / (variance * t * math.log(t + 1)))
            up *= 1 + min(bet, 0.5 / m) * (x - m)
            down *= 1 - min(bet, 0.5 / (1 - m)) * (x - m)
            alive = alive and max(up, down) / 2 < 1 / alpha
            total += x
            squares += (x - total / (t + 1)) ** 2
            variance = squares / (t + 1)
        if alive:
            kept.append(2 * m - 1)
    return min(kept), max(kept)


@settings(derandomize=True, deadline=None, max_examples=15)
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 1.0]), min_size=1, max_size=60))
def test_hedged_betting_inverts_its_definition(effects: list[float]) -> None:
    cells = 400
    lower, upper = hedged_betting(effects, RANGE, 0.05)
    grid_lower, grid_upper = hedged_by_grid(effects, 0.05, cells)
    spacing = 2 / cells
    assert grid_lower - spacing - 1e-9 <= lower <= grid_lower + 1e-9
    assert grid_upper - 1e-9 <= upper <= grid_upper + spacing + 1e-9


@FAST
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40), st.integers(1, 39))
def test_more_items_never_widen_the_betting_sequence(effects: list[float], cut: int) -> None:
    if cut >= len(effects):
        return
    early = hedged_betting(effects[:cut], RANGE, 0.05)
    late = hedged_betting(effects, RANGE, 0.05)
    assert early[0] - 1e-9 <= late[0]
    assert late[1] <= early[1] + 1e-9


@FAST
@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=2, max_size=60))
def test_exchanging_the_arms_mirrors_every_interval(effects: list[float]) -> None:
    forward = secondary_intervals(effects, RANGE, 0.05)
    back = secondary_intervals([-effect for effect in effects], RANGE, 0.05)
    for one, other in zip(forward, back, strict=True):
        assert one.lower is not None
        assert other.upper is not None
        assert one.lower == pytest.approx(-other.upper, abs=1e-9), one.method


Method = Callable[[Sequence[float]], tuple[float, float]]


@pytest.mark.parametrize(
    ("method", "least"),
    [
        (lambda e: paired_normal(e, 0.05), 0.92),
        (lambda e: tango_score(e.count(1.0), e.count(-1.0), len(e), 0.05), 0.92),
        (lambda e: maurer_pontil(e, RANGE, 0.05), 0.95),
        (lambda e: hedged_betting(e, RANGE, 0.05), 0.95),
    ],
    ids=["paired_normal", "tango_score", "maurer_pontil", "hedged_betting"],
)
def test_coverage_of_the_true_mean(method: Method, least: float) -> None:
    """400 seeded draws of 200 effects, mean −0.05; asymptotic methods are given three points."""
    rng = np.random.default_rng(11)
    draws = rng.choice([-1.0, 0.0, 1.0], size=(400, 200), p=[0.15, 0.75, 0.10])
    covered = 0
    for row in draws:
        lower, upper = method(row.tolist())
        covered += lower <= -0.05 <= upper
    assert covered / 400 >= least, f"covered {covered} of 400, at least {least} expected"


def test_every_interval_says_that_it_is_secondary_and_when_it_does_not_apply() -> None:
    by_method = {i.method: i for i in secondary_intervals([0.5], RANGE, 0.05)}
    assert set(by_method) == {"paired_normal", "tango_score", "maurer_pontil", "hedged_betting"}
    assert all("never deciding" in interval.role for interval in by_method.values())
    for method in ("paired_normal", "tango_score", "maurer_pontil"):
        assert by_method[method].lower is None
        assert "not applicable" in by_method[method].note
    assert by_method["hedged_betting"].lower is not None


@pytest.mark.parametrize(
    ("effects", "alpha"),
    [([], 0.05), ([1.5], 0.05), ([math.nan], 0.05), ([0.5], 0.0), ([0.5], 1.0)],
)
def test_effects_without_an_interval_are_refused(effects: list[float], alpha: float) -> None:
    with pytest.raises(DecisionError):
        secondary_intervals(effects, RANGE, alpha)
