"""GRPO: reward minus the group's mean, as the stock cookbook computes it."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import tinker
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.data_processing import compute_advantages
from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

from harness import reference
from harness.advantages import MODES, ArmParams, RolloutBatch, compute

MATH = settings(
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
REWARD = st.sampled_from([1.0, 0.9, 0.0, -0.1]) | st.floats(-10, 10, allow_subnormal=False)
GROUPS = st.tuples(st.integers(1, 5), st.integers(2, 9)).flatmap(
    lambda shape: st.lists(
        st.lists(REWARD, min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)
FLOAT32_STEP = 2.0**-23
FLOAT32_NORMAL = 2.0**-126
"""Below this magnitude float32 loses digits, and then everything."""


def grpo(rewards: list[list[float]]) -> list[np.ndarray]:
    batch = RolloutBatch.of(rewards, [f"prompt {i}" for i in range(len(rewards))])
    return compute("grpo", batch, ArmParams(len(rewards[0]), groups_per_batch=len(rewards)))


def flat(advantages: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(advantages)


def assert_close(name: str, found: object, wanted: object, tolerance: float) -> None:
    gap = float(np.max(np.abs(np.asarray(found) - np.asarray(wanted))))
    assert gap <= tolerance, f"{name}: {found} against {wanted}, gap {gap} > {tolerance}"


def stock_group(rewards: list[float]) -> TrajectoryGroup:
    """A stock group; half of each reward comes from the step, half from the group."""
    empty = tinker.ModelInput.empty()
    steps = [
        Trajectory(
            [Transition(empty, TokensWithLogprobs([1], [0.0]), reward / 2, episode_done=True)],
            empty,
        )
        for reward in rewards
    ]
    return TrajectoryGroup(steps, [reward / 2 for reward in rewards], [{} for _ in rewards])


def test_hand_worked_group() -> None:
    found = grpo([[1.0, 0.0, -0.1, 0.9], [1.0, 1.0, 1.0, 0.0]])
    assert_close("mean 0.45", found[0], [0.55, -0.45, -0.55, 0.45], 1e-15)
    assert_close("mean 0.75", found[1], [0.25, 0.25, 0.25, -0.75], 0.0)
    assert {values.dtype for values in found} == {np.dtype(np.float64)}


def test_equals_the_stock_cookbook_up_to_its_float32() -> None:
    reached: Counter[str] = Counter()

    @example([[0.0, 3e-185]])
    @given(GROUPS)
    @MATH
    def check(rewards: list[list[float]]) -> None:
        stock = compute_advantages([stock_group(group) for group in rewards])
        largest = max(abs(reward) for group in rewards for reward in group)
        step = FLOAT32_STEP * largest if largest > FLOAT32_NORMAL else FLOAT32_NORMAL
        tolerance = (len(rewards[0]) + 2) * step
        for ours, theirs in zip(grpo(rewards), stock, strict=True):
            assert_close("stock", ours, theirs.double().numpy(), tolerance)
            reached["advantages"] += bool((np.abs(ours) > 0.05).any())

    check()
    assert reached["advantages"] >= 100, f"almost every group was constant: {dict(reached)}"


@given(GROUPS)
@MATH
def test_equals_the_plain_python_reference(rewards: list[list[float]]) -> None:
    for ours, plain in zip(grpo(rewards), reference.grpo_advantages(rewards), strict=True):
        assert_close("reference", ours, plain, 1e-12)


@given(GROUPS)
@MATH
def test_each_group_sums_to_zero(rewards: list[list[float]]) -> None:
    for index, values in enumerate(grpo(rewards)):
        total = math.fsum(values)
        assert abs(total) <= 1e-12, f"group {index} sums to {total}, allowed 1e-12"


@given(REWARD, st.integers(2, 12), st.integers(1, 3))
@MATH
def test_a_constant_group_is_exactly_zero(reward: float, size: int, groups: int) -> None:
    values = flat(grpo([[reward] * size] * groups))
    assert (values == 0).all(), f"{size} rewards of {reward!r}: {values}"


@given(GROUPS, st.floats(-10, 10), st.floats(-10, 10))
@MATH
def test_ignores_a_shift_and_follows_a_scale(
    rewards: list[list[float]], shift: float, scale: float
) -> None:
    plain = flat(grpo(rewards))
    moved = flat(grpo([[reward + shift for reward in group] for group in rewards]))
    scaled = flat(grpo([[reward * scale for reward in group] for group in rewards]))
    assert_close(f"shift {shift}", moved, plain, 1e-12)
    assert_close(f"scale {scale}", scaled, scale * plain, 1e-12)


@given(GROUPS, st.data())
@MATH
def test_is_linear_in_rewards(rewards: list[list[float]], data: st.DataObject) -> None:
    others = [[data.draw(REWARD) for _ in group] for group in rewards]
    pairs = [list(zip(one, two, strict=True)) for one, two in zip(rewards, others, strict=True)]
    mixed = flat(grpo([[2 * one - 3 * two for one, two in group] for group in pairs]))
    assert_close("2r - 3s", mixed, 2 * flat(grpo(rewards)) - 3 * flat(grpo(others)), 1e-12)


@given(GROUPS, st.data())
@MATH
def test_order_of_rollouts_and_of_groups_does_not_matter(
    rewards: list[list[float]], data: st.DataObject
) -> None:
    groups = data.draw(st.permutations(range(len(rewards))))
    rollouts = data.draw(st.permutations(range(len(rewards[0]))))
    plain = np.stack(grpo(rewards))
    moved = np.stack(grpo([[rewards[g][i] for i in rollouts] for g in groups]))
    assert_close("reordered", moved, plain[np.ix_(groups, rollouts)], 1e-12)


@given(GROUPS.filter(lambda rewards: len(rewards) > 1))
@MATH
def test_a_group_does_not_see_the_others(rewards: list[list[float]]) -> None:
    alone = grpo(rewards[:1])[0]
    assert_close("first group alone", grpo(rewards)[0], alone, 0.0)


def test_registry_holds_the_modes_of_the_contract() -> None:
    assert set(MODES) >= {"grpo", "gs1"}
