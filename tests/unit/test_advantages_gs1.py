"""GS1: reward minus a similarity-weighted mean of the other prompts' rewards."""

from __future__ import annotations

import math
import warnings
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import reference
from harness.advantages import ArmParams, RolloutBatch, compute

MATH = settings(
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
# Few words, so that prompts overlap; tokenless prompts, stop words and repeats occur on purpose.
WORDS = ["cat", "dog", "bird", "the", "of", "Été", "10", "a", "?"]
REWARD = st.sampled_from([1.0, 0.9, 0.0, -0.1]) | st.floats(-10, 10, allow_subnormal=False)
BATCHES = st.lists(
    st.tuples(st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join), REWARD),
    min_size=2,
    max_size=9,
)
TAUS = st.floats(-2.5, 3.0).map(lambda exponent: 10.0**exponent)
Pairs = list[tuple[str, float]]


def gs1(pairs: Pairs, tau: float) -> np.ndarray:
    """Return the advantages (P,) of prompt and reward pairs; repeats allowed."""
    batch = RolloutBatch.of([[reward] for _, reward in pairs], [prompt for prompt, _ in pairs])
    params = ArmParams(
        group_size=1,
        groups_per_batch=len(pairs),
        tau=tau,
        similarity="tfidf_prompt_cosine",
        distinct_prompts=False,
    )
    advantages = compute("gs1", batch, params)
    shapes = {values.shape for values in advantages}
    assert shapes == {(1,)}, f"one advantage for each prompt wanted, shapes {shapes}"
    return np.concatenate(advantages)


def rewards_of(pairs: Pairs) -> list[float]:
    return [reward for _, reward in pairs]


def with_rewards(pairs: Pairs, rewards: list[float]) -> Pairs:
    return [(prompt, reward) for (prompt, _), reward in zip(pairs, rewards, strict=True)]


def plain_weights(pairs: Pairs, tau: float) -> np.ndarray:
    return np.array(reference.gs1_weights(reference.cosines([p for p, _ in pairs]), tau))


def assert_close(name: str, found: object, wanted: object, tolerance: float) -> None:
    gap = float(np.max(np.abs(np.asarray(found) - np.asarray(wanted))))
    assert gap <= tolerance, f"{name}: {found} against {wanted}, gap {gap} > {tolerance}"


def test_hand_worked_batch() -> None:
    # Cosines 0.707107 (1, 2), 0.428046 (1, 3) and 0 (2, 3), see test_similarity. At tau 0.5 prompt
    # 1 gives prompt 3 the weight 1 / (1 + exp(0.558122)) = 0.363982; both others of prompt 2
    # have reward 1; prompt 3 gives prompt 1 the weight 1 / (1 + exp(-0.856092)) = 0.701843.
    found = gs1([("cat dog", 1.0), ("cat", 0.0), ("dog bird", 1.0)], 0.5)
    assert_close("advantages", found, [1 - 0.363982, -1.0, 1 - 0.701843], 2e-6)


def test_equals_the_plain_python_reference() -> None:
    reached: Counter[str] = Counter()

    @given(BATCHES, TAUS)
    @MATH
    def check(pairs: Pairs, tau: float) -> None:
        prompts = [prompt for prompt, _ in pairs]
        tokenless = [not vector for vector in reference.tfidf_vectors(prompts)]
        reached["a tokenless prompt"] += any(tokenless)
        reached["no token at all"] += all(tokenless)
        reached["a repeated prompt"] += len(set(prompts)) < len(prompts)
        reached["two prompts"] += len(pairs) == 2
        reached["a sharp softmax"] += tau < 0.05
        found, wanted = gs1(pairs, tau), reference.gs1_advantages(prompts, rewards_of(pairs), tau)
        reached["different from uniform"] += bool(np.abs(found - gs1(pairs, 1e12)).max() > 0.05)
        assert_close(f"tau {tau}", found, wanted, 1e-12)

    check()
    assert len(reached) == 6
    assert min(reached.values()) >= 5, f"classes hardly reached: {dict(reached)}"


@given(BATCHES, TAUS)
@MATH
def test_sum_is_what_the_column_sums_say(pairs: Pairs, tau: float) -> None:
    columns = plain_weights(pairs, tau).sum(axis=0)
    wanted = math.fsum(r * (1 - c) for r, c in zip(rewards_of(pairs), columns, strict=True))
    assert_close("sum A = sum r (1 - c)", math.fsum(gs1(pairs, tau)), wanted, 1e-11)


def test_the_sum_is_not_zero_in_general() -> None:
    total = math.fsum(gs1([("cat dog", 1.0), ("cat", 0.0), ("dog bird", 1.0)], 0.5))
    assert abs(total) > 0.05, f"gs1 was centred: its sum is {total}"


@given(BATCHES, TAUS, st.floats(-10, 10), st.floats(-10, 10))
@MATH
def test_ignores_a_shift_and_follows_a_scale(
    pairs: Pairs, tau: float, shift: float, scale: float
) -> None:
    plain, rewards = gs1(pairs, tau), rewards_of(pairs)
    moved = gs1(with_rewards(pairs, [reward + shift for reward in rewards]), tau)
    scaled = gs1(with_rewards(pairs, [reward * scale for reward in rewards]), tau)
    assert_close(f"shift {shift}", moved, plain, 1e-12)
    assert_close(f"scale {scale}", scaled, scale * plain, 1e-12)


@given(BATCHES, TAUS, st.data())
@MATH
def test_is_linear_in_rewards(pairs: Pairs, tau: float, data: st.DataObject) -> None:
    rewards, others = rewards_of(pairs), [data.draw(REWARD) for _ in pairs]
    mixed = [2 * one - 3 * two for one, two in zip(rewards, others, strict=True)]
    wanted = 2 * gs1(pairs, tau) - 3 * gs1(with_rewards(pairs, others), tau)
    assert_close("2r - 3s", gs1(with_rewards(pairs, mixed), tau), wanted, 1e-12)


@given(BATCHES, TAUS, st.data())
@MATH
def test_reordering_the_batch_only_reorders_advantages(
    pairs: Pairs, tau: float, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(pairs))))
    moved = gs1([pairs[i] for i in order], tau)
    assert_close("reordered", moved, gs1(pairs, tau)[order], 1e-12)


@given(BATCHES.filter(lambda pairs: len(pairs) > 2), TAUS, st.data())
@MATH
def test_order_of_the_others_does_not_matter(pairs: Pairs, tau: float, data: st.DataObject) -> None:
    others = data.draw(st.permutations(pairs[1:]))
    assert_close("first", gs1([pairs[0], *others], tau)[0], gs1(pairs, tau)[0], 1e-12)


@given(BATCHES, TAUS)
@MATH
def test_baseline_lies_between_the_others_rewards(pairs: Pairs, tau: float) -> None:
    rewards = rewards_of(pairs)
    for i, advantage in enumerate(gs1(pairs, tau)):
        baseline, others = rewards[i] - advantage, rewards[:i] + rewards[i + 1 :]
        inside = min(others) - 1e-12 <= baseline <= max(others) + 1e-12
        assert inside, f"baseline {baseline} of prompt {i} outside {min(others)} to {max(others)}"


@given(BATCHES, TAUS, REWARD, st.data())
@MATH
def test_a_reward_does_not_enter_its_own_baseline(
    pairs: Pairs, tau: float, other: float, data: st.DataObject
) -> None:
    i = data.draw(st.integers(0, len(pairs) - 1))
    changed = [*pairs]
    changed[i] = (pairs[i][0], other)
    before, after = pairs[i][1] - gs1(pairs, tau)[i], other - gs1(changed, tau)[i]
    assert_close(f"baseline of prompt {i}", after, before, 1e-12)


@given(BATCHES)
@MATH
def test_a_large_tau_is_the_plain_leave_one_out_mean(pairs: Pairs) -> None:
    rewards = rewards_of(pairs)
    others = [math.fsum(rewards[:i] + rewards[i + 1 :]) for i in range(len(rewards))]
    wanted = [r - s / (len(rewards) - 1) for r, s in zip(rewards, others, strict=True)]
    assert_close("tau 1e12", gs1(pairs, 1e12), wanted, 1e-9)


def test_a_small_tau_subtracts_the_nearest_prompt_s_reward() -> None:
    pairs = [("cat dog", 1.0), ("cat", 0.25), ("dog bird", 0.5), ("bird", -0.1)]
    # Nearest: 2 for 1 (they share half of it), 1 for 2, 4 for 3 (it is rarer than dog), 3 for 4.
    nearest = [0.25, 1.0, -0.1, 0.5]
    wanted = [reward - near for (_, reward), near in zip(pairs, nearest, strict=True)]
    assert_close("tau 1e-3", gs1(pairs, 1e-3), wanted, 1e-12)


@given(REWARD, st.lists(st.sampled_from(WORDS), min_size=2, max_size=9), TAUS)
@MATH
def test_equal_rewards_give_exactly_zero(reward: float, prompts: list[str], tau: float) -> None:
    values = gs1([(prompt, reward) for prompt in prompts], tau)
    assert (values == 0).all(), f"{len(prompts)} rewards of {reward!r}: {values}"


@given(REWARD, REWARD, TAUS)
@MATH
def test_two_prompts_are_each_other_s_baseline(one: float, two: float, tau: float) -> None:
    assert_close("two prompts", gs1([("cat", one), ("", two)], tau), [one - two, two - one], 1e-12)


@pytest.mark.parametrize("tau", [5e-324, 1e-300, 1e-17, 1e300, 1.7976931348623157e308])
@given(BATCHES)
@settings(MATH, max_examples=50)
def test_no_tau_overflows(tau: float, pairs: Pairs) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = gs1(pairs, tau)
    spread = max(rewards_of(pairs)) - min(rewards_of(pairs))
    assert np.abs(values).max() <= spread + 1e-12, f"tau {tau}: {values} for spread {spread}"
