"""What the rule can show: exact probabilities against enumeration of every possible run."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.decision_rule import Rule
from harness.errors import DecisionError
from harness.intervals import maurer_pontil, paired_normal, tango_score
from harness.power import Contrast, at_least, chances, contrast_of, regions
from harness.power_secondary import Counts, verdicts


def rule_of(
    margin: float = -0.05,
    alpha: float = 0.05,
    tie_band: tuple[float, float] | None = None,
    weights: tuple[float, float] = (1, -1),
    seeds: tuple[int, ...] = (0,),
) -> Rule:
    criterion = {
        "id": "c",
        "metric": "accuracy",
        "weights": {"treatment": weights[0], "baseline": weights[1]},
        "margin": margin,
        "bounds": [0, 1],
    }
    fields: dict[str, Any] = {
        "version": 1,
        "estimand": "e",
        "unit": "fixed_checkpoint_items",
        "seeds": list(seeds),
        "alpha": alpha,
        "method": "paired_hoeffding",
        "criteria": [criterion],
        "tie_band": tie_band,
    }
    return Rule.from_spec(fields)


def contrast(items: int, rule: Rule) -> Contrast:
    return contrast_of(rule, rule.criteria[0], items)


def enumerated(items: int, rule: Rule, win: Fraction, loss: Fraction) -> dict[str, float]:
    """Walk every sequence of item effects; the rule written out anew from contract §8."""
    criterion = rule.criteria[0]
    half = 2 * math.sqrt(math.log(2 / rule.alpha) / (2 * items))
    total = {"passes": Fraction(0), "fails": Fraction(0), "tie": Fraction(0), "open": Fraction(0)}
    chance = {1: win, -1: loss, 0: 1 - win - loss}
    for effects in itertools.product((1, -1, 0), repeat=items):
        mean = sum(effects) / items
        lower, upper = mean - half, mean + half
        if lower > criterion.margin:
            state = "passes"
        elif upper < criterion.margin:
            state = "fails"
        elif rule.tie_band and rule.tie_band[0] <= lower and upper <= rule.tie_band[1]:
            state = "tie"
        else:
            state = "open"
        total[state] += math.prod((chance[effect] for effect in effects), start=Fraction(1))
    return {name: float(value) for name, value in total.items()}


@pytest.mark.parametrize("items", [3, 5, 7])
@pytest.mark.parametrize(
    ("margin", "alpha", "band"),
    [(-0.5, 0.9, None), (0.2, 0.8, None), (-0.4, 0.9, (-0.9, 0.9)), (0.0, 0.5, (-1.5, 1.5))],
)
@pytest.mark.parametrize(("win", "loss"), [("1/5", "1/10"), ("0", "3/10"), ("1/2", "1/2")])
def test_chances_equal_the_enumeration_of_all_runs(
    items: int, margin: float, alpha: float, band: Any, win: str, loss: str
) -> None:
    rule = rule_of(margin, alpha, band)
    p_win, p_loss = Fraction(win), Fraction(loss)
    expected = enumerated(items, rule, p_win, p_loss)
    one = contrast(items, rule)
    found = chances(one, regions(one, rule), float(p_win - p_loss), float(p_win + p_loss))
    for name, value in expected.items():
        measured = getattr(found, name)
        assert abs(measured - value) < 1e-12, f"{name}: {measured}, enumerated {value}, 1e-12"


@given(st.integers(1, 7), st.integers(-8, 8), st.integers(0, 6), st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_the_tail_of_the_net_count_equals_enumeration(
    draws: int, net: int, win: int, loss: int
) -> None:
    p_win, p_loss = Fraction(win, 12), Fraction(loss, 12)
    chance = {1: p_win, -1: p_loss, 0: 1 - p_win - p_loss}
    expected = sum(
        math.prod((chance[step] for step in steps), start=Fraction(1))
        for steps in itertools.product(chance, repeat=draws)
        if sum(steps) >= net
    )
    found = at_least(net, draws, float(p_win), float(p_loss))
    assert abs(found - float(expected)) < 1e-12, f"{found}, enumerated {float(expected)}, 1e-12"


def test_the_saved_experiment_in_figures() -> None:
    rule = rule_of()
    one = contrast(1319, rule)
    judged = one.judged(0, 0.05)
    assert abs(judged.half_width - 0.0747894) < 5e-8, f"half-width {judged.half_width}"
    found = regions(one, rule)
    # 1319 · (−0.05 + 0.0747894) = 32.7 and 1319 · (−0.05 − 0.0747894) = −164.6.
    assert (found.passes_from, found.fails_to, found.tie) == (33, -165, None)


def test_seeds_average_inside_an_item_and_add_no_items() -> None:
    rule = rule_of(-0.5, 0.9, seeds=(0, 1))
    one = contrast(3, rule)
    assert one.judged(3, 0.9).mean == pytest.approx(0.5), "net 3 of 3 items × 2 seeds"
    assert one.judged(3, 0.9).n == 3
    expected = 0.0
    for pairs in itertools.product((1, -1, 0), repeat=6):
        weight = math.prod({1: 0.3, -1: 0.1, 0: 0.6}[step] for step in pairs)
        mean = sum(pairs) / 6
        expected += weight * (mean - 2 * math.sqrt(math.log(2 / 0.9) / 6) > -0.5)
    found = chances(one, regions(one, rule), 0.2, 0.4).passes
    assert abs(found - expected) < 1e-12, f"{found}, enumerated {expected}, 1e-12"


def test_what_has_no_such_probabilities_is_refused() -> None:
    with pytest.raises(DecisionError, match="opposite weights"):
        contrast(9, rule_of(weights=(1, -0.5)))
    upside_down = rule_of(weights=(-1, 1))
    with pytest.raises(DecisionError, match="swap the signs"):
        regions(contrast(9, upside_down), upside_down)
    rule = rule_of()
    one = contrast(9, rule)
    with pytest.raises(DecisionError, match=r"discordance 0\.05"):
        chances(one, regions(one, rule), 0.1, 0.05)


@pytest.mark.parametrize("items", [2, 9, 40])
@pytest.mark.parametrize("margin", [-0.2, -0.05, 0.1])
def test_secondary_verdicts_are_those_of_the_intervals(items: int, margin: float) -> None:
    one = contrast(items, rule_of(margin))
    pairs = [(w, c) for w in range(items + 1) for c in range(items + 1 - w)]
    wins = np.array([w for w, _ in pairs], dtype=np.float64)
    losses = np.array([c for _, c in pairs], dtype=np.float64)
    found = verdicts(one, 0.1, wins, losses)
    assert set(found) == {"paired_normal", "tango_score", "maurer_pontil"}
    for at, (w, c) in enumerate(pairs):
        effects = [1.0] * w + [-1.0] * c + [0.0] * (items - w - c)
        intervals = {
            "paired_normal": paired_normal(effects, 0.1),
            "maurer_pontil": maurer_pontil(effects, (-1.0, 1.0), 0.1),
            "tango_score": tango_score(w, c, items, 0.1),
        }
        for method, (lower, upper) in intervals.items():
            if min(abs(lower - margin), abs(upper - margin)) < 1e-9:
                continue  # a bound on the margin itself: rounding decides
            above, below = found[method]
            said = (bool(above[at]), bool(below[at]))
            expected = (lower > margin, upper < margin)
            assert said == expected, f"{method} {w} wins {c} losses of {items}: {said}, {expected}"


def test_secondary_chances_are_the_multinomial_sum() -> None:
    items, win, loss = 6, 0.3, 0.2
    one = contrast(items, rule_of(-0.3))
    rows = {row.method: row for row in Counts(one, 0.1, seed=0).chances(win - loss, win + loss)}
    expected = 0.0
    for effects in itertools.product((1.0, -1.0, 0.0), repeat=items):
        weight = math.prod({1.0: win, -1.0: loss, 0.0: 0.5}[effect] for effect in effects)
        expected += weight * (paired_normal(effects, 0.1)[0] > -0.3)
    found = rows["paired_normal"].above
    assert abs(found - expected) < 1e-12, f"{found}, enumerated {expected}, 1e-12"
    assert rows["paired_normal"].runs is None, "an exact sum names no runs"
    assert rows["hedged_betting"].runs == 400


def test_simulated_chances_repeat_with_their_seed_and_agree_with_the_exact_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = contrast(300, rule_of(-0.05))
    exact = {row.method: row for row in Counts(one, 0.05, 0).chances(0.0, 0.2)}
    monkeypatch.setattr("harness.power_secondary.EXACT_ITEMS", 10)
    first, again = (Counts(one, 0.05, 3).chances(0.0, 0.2) for _ in range(2))
    assert first == again
    for row in first[:-1]:
        # Four standard errors of 20 000 runs.
        allowed = 4 * math.sqrt(0.25 / 20_000)
        error = abs(row.above - exact[row.method].above)
        assert row.runs == 20_000
        assert error < allowed, f"{row.method}: off by {error}, allowed {allowed}"
