"""Unbiasedness by exact enumeration: all 2^6 outcomes of six independent Bernoulli rewards.

Model: prompt k is answered rightly with probability p_k = sigmoid(x_k . theta), its reward r_k is
1 or 0, so d log pi(r_k) / d theta = (r_k - p_k) x_k. The true gradient of the expected total reward
is ``sum_k p_k (1 - p_k) x_k``. The estimator is ``sum_k A_k (r_k - p_k) x_k``. Because
E[r_k - p_k] = 0, a baseline that does not depend on r_k drops out: E[estimator] = true gradient.
A baseline that keeps the weight w_kk on its own reward gives instead
``sum_k (1 - w_kk) p_k (1 - p_k) x_k``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from harness.advantages import ArmParams, RolloutBatch, compute

PROMPTS = ["two red cats", "two red dogs", "red cats sleep", "a bird", "", "ten birds and cats"]
CHANCES = np.array([0.05, 0.3, 0.5, 0.62, 0.8, 0.97])
# Shared parameters: three features a prompt, so that gradients of different prompts mix.
FEATURES = np.array([[1, 0, 2], [1, 1, 0], [0, 3, 1], [2, -1, 1], [0, 1, -2], [1, 1, 1]], float)
OUTCOMES = list(itertools.product((0.0, 1.0), repeat=6))
Advantage = Callable[[Sequence[float]], np.ndarray]


def expected_gradient(
    advantage: Advantage, chances: np.ndarray, features: np.ndarray
) -> list[float]:
    """Return E[sum_k A_k (r_k - p_k) x_k], each outcome weighted with its exact probability."""
    terms = []
    for outcome in OUTCOMES:
        rewards = np.array(outcome)
        probability = math.prod(np.where(rewards == 1, chances, 1 - chances))
        terms.append(probability * ((advantage(outcome) * (rewards - chances)) @ features))
    return [math.fsum(column) for column in np.array(terms).T]


def true_gradient(chances: np.ndarray, features: np.ndarray) -> np.ndarray:
    return (chances * (1 - chances)) @ features


def gs1_at(tau: float) -> Advantage:
    params = ArmParams(1, groups_per_batch=6, tau=tau, similarity="tfidf_prompt_cosine")

    def advantage(rewards: Sequence[float]) -> np.ndarray:
        batch = RolloutBatch.of([[reward] for reward in rewards], PROMPTS)
        return np.concatenate(compute("gs1", batch, params))

    return advantage


def grpo_one_group(rewards: Sequence[float]) -> np.ndarray:
    return compute("grpo", RolloutBatch.of([rewards], ["one prompt"]), ArmParams(6))[0]


def assert_close(name: str, found: object, wanted: object) -> None:
    gap = float(np.max(np.abs(np.asarray(found) - np.asarray(wanted))))
    assert gap <= 1e-13, f"{name}: {found} against {wanted}, gap {gap} > 1e-13"


def test_the_outcomes_are_all_of_them() -> None:
    assert len(set(OUTCOMES)) == 64
    total = math.fsum(
        math.prod(np.where(np.array(outcome) == 1, CHANCES, 1 - CHANCES)) for outcome in OUTCOMES
    )
    assert_close("total probability", total, 1.0)


@pytest.mark.parametrize("tau", [1e-300, 0.02, 0.1, 1.0, 1e9])
def test_gs1_gradient_is_unbiased(tau: float) -> None:
    found = expected_gradient(gs1_at(tau), CHANCES, FEATURES)
    assert_close(f"expected gradient, tau {tau}", found, true_gradient(CHANCES, FEATURES))


def test_grpo_gradient_is_shrunk_by_its_own_reward_in_the_mean() -> None:
    # All six rollouts answer one prompt: same chance, same features; each weight is 1/6.
    chances, features = np.full(6, 0.3), np.tile(FEATURES[0], (6, 1))
    found = expected_gradient(grpo_one_group, chances, features)
    assert_close("expected gradient", found, (1 - 1 / 6) * true_gradient(chances, features))


def test_the_enumeration_sees_a_self_weight_that_was_kept() -> None:
    def mean_with_self(rewards: Sequence[float]) -> np.ndarray:
        return np.array(rewards) - np.mean(rewards)

    found = np.array(expected_gradient(mean_with_self, CHANCES, FEATURES))
    wanted = true_gradient(CHANCES, FEATURES)
    assert_close("shrunk gradient", found, (1 - 1 / 6) * wanted)
    assert np.abs(found - wanted).max() > 0.05, f"bias invisible: {found} against {wanted}"


@pytest.mark.parametrize("tau", [0.05, 0.1, 1.0])
def test_each_baseline_is_independent_of_its_own_reward(tau: float) -> None:
    advantage = gs1_at(tau)
    advantages = {outcome: advantage(outcome) for outcome in OUTCOMES}
    for outcome, k in itertools.product(OUTCOMES, range(6)):
        flipped = (*outcome[:k], 1 - outcome[k], *outcome[k + 1 :])
        before, after = outcome[k] - advantages[outcome][k], flipped[k] - advantages[flipped][k]
        assert_close(f"baseline {k} of {outcome}", after, before)
