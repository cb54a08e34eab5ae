"""The paired Hoeffding decision against independent arithmetic and hand-worked examples."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.completeness import Plan
from harness.decision import Decision, decide, hoeffding_half_width
from harness.decision_rule import Arms, Rule
from harness.errors import DecisionError
from harness.observations import Observation

ARMS = Arms("gs1_seed0", "grpo_gs8_seed0")
FAST = settings(derandomize=True, deadline=None, max_examples=150)


def criterion(**changes: Any) -> dict[str, Any]:
    fields = {
        "id": "primary_noninferiority",
        "metric": "accuracy",
        "weights": {"treatment": 1, "baseline": -1},
        "margin": -0.05,
        "bounds": [0, 1],
    }
    return fields | changes


def rule_fields(**changes: Any) -> dict[str, Any]:
    fields = {
        "version": 1,
        "estimand": "mean accuracy difference",
        "unit": "fixed_checkpoint_items",
        "seeds": [0],
        "alpha": 0.05,
        "method": "paired_hoeffding",
        "criteria": [criterion()],
    }
    return fields | changes


def judge(
    values: Mapping[tuple[str, str, int], Sequence[float]],
    shuffle_seed: int | None = None,
    **changes: Any,
) -> Decision:
    """Decide on values given as {(role, metric, seed): one value an item}."""
    rule = Rule.from_spec(rule_fields(**changes))
    arms = {"treatment": ARMS.treatment, "baseline": ARMS.baseline}
    rows = [
        Observation(f"item-{at}", arms[role], seed, metric, value, f"eval-{metric}")
        for (role, metric, seed), column in values.items()
        for at, value in enumerate(column)
    ]
    if shuffle_seed is not None:
        random.Random(shuffle_seed).shuffle(rows)
    items = [f"item-{at}" for at in range(len(next(iter(values.values()))))]
    evaluators = {metric: f"eval-{metric}" for _, metric, _ in values}
    return decide(rule, rows, Plan.of(rule, ARMS, items, evaluators))


def net(wins: int, losses: int, n: int) -> dict[tuple[str, str, int], Sequence[float]]:
    """Give the treatment ``wins`` items alone and the baseline ``losses``; both fail the rest."""
    treatment = [1.0] * wins + [0.0] * (n - wins)
    baseline = [0.0] * wins + [1.0] * losses + [0.0] * (n - wins - losses)
    return {("treatment", "accuracy", 0): treatment, ("baseline", "accuracy", 0): baseline}


def test_the_half_width_of_the_saved_experiment() -> None:
    half_width = hoeffding_half_width(2.0, 1319, 0.05)
    assert half_width == pytest.approx(0.0747894, abs=5e-8)
    assert 2 * np.exp(-2 * 1319 * half_width**2 / 2.0**2) == pytest.approx(0.05, rel=1e-12)


@pytest.mark.parametrize(
    ("wins", "losses", "verdict", "reason"),
    [
        (33, 0, "supported", "supported"),
        (32, 0, "inconclusive", "insufficient_evidence"),
        (133, 100, "supported", "supported"),
        (0, 0, "inconclusive", "insufficient_evidence"),
        (0, 164, "inconclusive", "insufficient_evidence"),
        (0, 165, "refuted", "refuted"),
    ],
)
def test_net_items_at_which_the_saved_experiment_turns(
    wins: int, losses: int, verdict: str, reason: str
) -> None:
    """(k/1319) − 0.0747894 > −0.05 needs k ≥ 33; (k/1319) + 0.0747894 < −0.05 needs k ≤ −165."""
    decision = judge(net(wins, losses, 1319))
    assert (decision.verdict, decision.outcome_reason) == (verdict, reason)


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[tuple[str, str, int], list[float]], dict[str, Any]]:
    """Draw columns in [low, high] for two roles and one to three seeds, with their criterion."""
    n = draw(st.integers(1, 30))
    seeds = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True))
    low = draw(st.integers(-3, 0))
    high = draw(st.integers(1, 3))
    weights = draw(st.tuples(st.integers(-3, 3), st.integers(-3, 3)).filter(any))
    value = st.integers(low * 8, high * 8).map(lambda eighth: eighth / 8)
    columns = {
        (role, "accuracy", seed): draw(st.lists(value, min_size=n, max_size=n))
        for role in ("treatment", "baseline")
        for seed in seeds
    }
    share = draw(st.integers(1, 15))
    ends = sorted(
        sum(w * (high if (w > 0) == top else low) for w in weights) for top in (True, False)
    )
    margin = ends[0] + (ends[1] - ends[0]) * share / 16
    fields = criterion(
        weights={"treatment": weights[0], "baseline": weights[1]},
        bounds=[low, high],
        margin=margin,
    )
    alpha = draw(st.sampled_from([0.01, 0.05, 0.2, 0.9]))
    return columns, {"seeds": seeds, "criteria": [fields], "alpha": alpha}


@FAST
@given(problems(), st.integers(0, 2**32))
def test_means_ranges_and_states_equal_exact_arithmetic(
    problem: tuple[dict[tuple[str, str, int], list[float]], dict[str, Any]], shuffle_seed: int
) -> None:
    columns, changes = problem
    decision = judge(columns, shuffle_seed, **changes)
    (result,) = decision.criteria
    fields = changes["criteria"][0]
    n = len(next(iter(columns.values())))
    total = sum(
        (Fraction(fields["weights"][role]) * Fraction(v) for (role, _, _), c in columns.items()
         for v in c),
        Fraction(0),
    )  # fmt: skip
    mean = total / (n * len(changes["seeds"]))
    corners = [
        fields["weights"]["treatment"] * x + fields["weights"]["baseline"] * y
        for x in fields["bounds"]
        for y in fields["bounds"]
    ]
    half_width = (max(corners) - min(corners)) * np.sqrt(np.log(2 / changes["alpha"]) / (2 * n))
    assert result.n == n
    assert result.mean == pytest.approx(float(mean), abs=1e-12)
    assert result.half_width == pytest.approx(half_width, rel=1e-12)
    assert (result.effect_low, result.effect_high) == (min(corners), max(corners))
    lower, upper = float(mean) - half_width, float(mean) + half_width
    if min(abs(lower - fields["margin"]), abs(upper - fields["margin"])) > 1e-9:
        expected = int(lower > fields["margin"]) - int(upper < fields["margin"])
        assert {"pass": 1, "open": 0, "fail": -1}[result.state] == expected


@FAST
@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.integers(0, 2**32))
def test_the_order_of_rows_changes_no_bit(values: list[float], shuffle_seed: int) -> None:
    columns = {
        ("treatment", "accuracy", 0): values,
        ("baseline", "accuracy", 0): values[::-1],
        ("treatment", "accuracy", 1): [v / 3 for v in values],
        ("baseline", "accuracy", 1): [v / 7 for v in values],
    }
    plain, shuffled = judge(columns, seeds=[0, 1]), judge(columns, shuffle_seed, seeds=[1, 0])
    assert plain.criteria == shuffled.criteria


def test_seeds_are_averaged_inside_the_item_and_never_counted_as_items() -> None:
    columns = {
        ("treatment", "accuracy", 0): [1.0, 0.0],
        ("treatment", "accuracy", 1): [1.0, 1.0],
        ("baseline", "accuracy", 0): [0.0, 0.0],
        ("baseline", "accuracy", 1): [1.0, 0.0],
    }
    (result,) = judge(columns, seeds=[0, 1]).criteria
    assert (result.n, result.mean) == (2, 0.5)


def test_the_mean_is_rounded_once() -> None:
    columns = {("treatment", "accuracy", 0): [0.1] * 10, ("baseline", "accuracy", 0): [0.0] * 10}
    assert judge(columns).criteria[0].mean == 0.1


def test_a_bound_that_equals_the_margin_settles_nothing() -> None:
    (first,) = judge(net(33, 0, 1319)).criteria
    for edge in (first.lower, first.upper):
        decision = judge(net(33, 0, 1319), criteria=[criterion(margin=edge)])
        assert decision.outcome_reason == "insufficient_evidence"


SECOND = criterion(id="brevity", metric="brevity")


@pytest.mark.parametrize(
    ("accuracy", "brevity", "reason"),
    [
        ((900, 0), (900, 0), "supported"),
        ((0, 900), (0, 900), "refuted"),
        ((900, 0), (0, 900), "mixed_criteria"),
        ((900, 0), (0, 0), "insufficient_evidence"),
        ((0, 900), (0, 0), "insufficient_evidence"),
    ],
)
def test_several_criteria(accuracy: tuple[int, int], brevity: tuple[int, int], reason: str) -> None:
    columns = net(*accuracy, 1319)
    columns |= {(role, "brevity", 0): c for (role, _, _), c in net(*brevity, 1319).items()}
    decision = judge(columns, criteria=[criterion(), SECOND])
    assert decision.outcome_reason == reason
    assert decision.verdict == (reason if reason in ("supported", "refuted") else "inconclusive")


@pytest.mark.parametrize(
    ("band", "reason"),
    [
        ([-0.08, 0.08], "tie"),
        ([-0.08, 0.07], "insufficient_evidence"),
        ([-0.07, 0.08], "insufficient_evidence"),
        (None, "insufficient_evidence"),
    ],
)
def test_a_tie_needs_the_whole_interval_in_the_band(band: list[float] | None, reason: str) -> None:
    decision = judge(net(0, 0, 1319), tie_band=band)
    assert (decision.verdict, decision.outcome_reason) == ("inconclusive", reason)


def test_a_settled_criterion_outside_the_band_does_not_stop_a_tie() -> None:
    columns = net(900, 0, 1319)
    columns |= {(role, "brevity", 0): c for (role, _, _), c in net(0, 0, 1319).items()}
    decision = judge(columns, criteria=[criterion(), SECOND], tie_band=[-0.08, 0.08])
    assert decision.outcome_reason == "tie"


def false_support(runs: int, seed: int) -> int:
    """Count "supported" among runs whose true effect is the margin, at the largest variance.

    Effects are −1 and +1 with mean exactly −0.05, which no criterion may call supported.
    """
    wins = Counter(np.random.default_rng(seed).binomial(200, 0.475, size=runs).tolist())
    return sum(
        count * (judge(net(k, 200 - k, 200)).verdict == "supported") for k, count in wins.items()
    )


@pytest.mark.parametrize(
    ("runs", "seed"),
    [(400, 1), pytest.param(10_000, 2, marks=pytest.mark.slow)],
)
def test_at_the_margin_support_is_no_more_frequent_than_half_of_alpha(runs: int, seed: int) -> None:
    false = false_support(runs, seed)
    assert false / runs <= 0.025, f"{false} of {runs} runs at the margin were called supported"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"version": 2}, "version"),
        ({"version": True}, "version"),
        ({"method": "t_test"}, "method"),
        ({"unit": "pooled_seeds"}, "unit"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [0, 0]}, "seeds"),
        ({"seeds": [True]}, "seeds"),
        ({"alpha": 0}, "alpha"),
        ({"alpha": 1}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"criteria": []}, "criteria"),
        ({"criteria": [criterion(), criterion()]}, "criteria"),
        ({"criteria": [criterion(margin=-1)]}, "margin"),
        ({"criteria": [criterion(margin="-0.05")]}, "margin"),
        ({"criteria": [criterion(bounds=[1, 0])]}, "criteria"),
        ({"criteria": [criterion(bounds=[0, float("inf")])]}, "bounds"),
        ({"criteria": [criterion(weights={"treatment": 0, "baseline": 0})]}, "criteria"),
        ({"criteria": [criterion(weights={"gs1": 1, "grpo": -1})]}, "weights"),
        ({"tie_band": [0.1, -0.1]}, "tie_band"),
    ],
)
def test_a_rule_that_cannot_decide_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(DecisionError, match=field):
        Rule.from_spec(rule_fields(**changes))


def test_the_report_holds_every_figure_of_the_verdict() -> None:
    report = judge(net(33, 0, 1319)).report()
    (figures,) = report["criteria"]
    assert report["verdict"] == "supported"
    assert figures["n"] == 1319
    assert figures["mean"] == 33 / 1319
    assert figures["lower"] == figures["mean"] - figures["half_width"]
    assert (figures["effect_low"], figures["effect_high"], figures["state"]) == (-1, 1, "pass")
