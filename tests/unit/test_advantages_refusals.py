"""What an advantage is not defined for is refused with a message that names it."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from harness import reference
from harness.advantages import ArmParams, RolloutBatch, compute
from harness.errors import AdvantageError, HarnessError

GS1 = ArmParams(1, groups_per_batch=2, tau=0.1, similarity="tfidf_prompt_cosine")
GRPO = ArmParams(2, groups_per_batch=2)
PAIR = RolloutBatch.of([[1.0], [0.0]], ["cat", "dog"])
FOUR = RolloutBatch.of([[1.0, 0.0], [0.5, 0.0]], ["cat", "dog"])


def gs1_with(**changes: object) -> ArmParams:
    return ArmParams(**({**vars(GS1), **changes}))  # pyright: ignore[reportArgumentType] - a table of cases


def test_the_base_cases_are_accepted() -> None:
    assert [len(values) for values in compute("gs1", PAIR, GS1)] == [1, 1]
    assert [len(values) for values in compute("grpo", FOUR, GRPO)] == [2, 2]


@pytest.mark.parametrize("tau", [0.0, -1.0, math.inf, -math.inf, math.nan, None])
def test_gs1_refuses_an_undefined_tau(tau: float | None) -> None:
    with pytest.raises(AdvantageError, match="finite tau above 0"):
        compute("gs1", PAIR, gs1_with(tau=tau))


@pytest.mark.parametrize("similarity", [None, "cosine", ""])
def test_gs1_refuses_an_unknown_similarity(similarity: str | None) -> None:
    with pytest.raises(AdvantageError, match="tfidf_prompt_cosine"):
        compute("gs1", PAIR, gs1_with(similarity=similarity))


def test_gs1_refuses_one_prompt() -> None:
    with pytest.raises(AdvantageError, match="groups_per_batch 2 or more"):
        compute("gs1", RolloutBatch.of([[1.0]], ["cat"]), gs1_with(groups_per_batch=1))


def test_gs1_refuses_groups() -> None:
    with pytest.raises(AdvantageError, match="one rollout a prompt"):
        compute("gs1", FOUR, gs1_with(group_size=2))


def test_grpo_refuses_groups_of_one_that_would_train_on_zeros() -> None:
    with pytest.raises(AdvantageError, match="always 0"):
        compute("grpo", PAIR, ArmParams(1))


@pytest.mark.parametrize("mode", ["GRPO", "", "ppo"])
def test_an_unknown_mode_is_refused(mode: str) -> None:
    with pytest.raises(AdvantageError, match="grpo or grpo_std or gs1"):
        compute(mode, FOUR, GRPO)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("mode", ["grpo", "gs1"])
def test_a_reward_that_is_not_finite_is_refused_by_place(mode: str, bad: float) -> None:
    good, params = (FOUR, GRPO) if mode == "grpo" else (PAIR, GS1)
    poisoned = good.rewards_P[1].copy()
    poisoned[-1] = bad
    with pytest.raises(AdvantageError, match=r"finite float64 rewards.*group 1"):
        compute(mode, RolloutBatch((good.rewards_P[0], poisoned), good.prompts_P), params)


@pytest.mark.parametrize(
    "batch",
    [
        RolloutBatch((), ()),
        RolloutBatch.of([[1.0], [0.0]], ["cat"]),
        RolloutBatch.of([[1.0]], ["cat", "dog"]),
        RolloutBatch.of([[1.0], [0.0], [1.0]], ["cat", "dog", "bird"]),
    ],
    ids=["empty", "a prompt missing", "a group missing", "more than planned"],
)
def test_a_batch_that_is_not_the_planned_one_is_refused(batch: RolloutBatch) -> None:
    with pytest.raises(AdvantageError, match="one group of rewards for each planned prompt"):
        compute("gs1", batch, GS1)


def test_a_baseline_over_half_the_batch_is_refused() -> None:
    with pytest.raises(AdvantageError, match="64 groups"):
        compute("gs1", PAIR, gs1_with(groups_per_batch=64))


@pytest.mark.parametrize(
    "rewards",
    [np.zeros(1), np.zeros(3), np.zeros((2, 1)), np.zeros(2, np.float32), np.array(["a", "b"])],
    ids=["short", "long", "matrix", "float32", "text"],
)
def test_a_group_of_another_size_or_precision_is_refused(rewards: np.ndarray) -> None:
    with pytest.raises(AdvantageError, match=r"2 finite float64 rewards.*group 1"):
        compute("grpo", RolloutBatch((np.zeros(2), rewards), ("cat", "dog")), GRPO)


def test_a_repeated_prompt_is_refused_where_distinct_ones_are_promised() -> None:
    batch = RolloutBatch.of([[1.0], [0.0], [0.5]], ["How many cats?", "dog", "how  MANY cats? "])
    with pytest.raises(AdvantageError, match="prompts 0 and 2"):
        compute("gs1", batch, gs1_with(groups_per_batch=3))
    allowed = compute("gs1", batch, gs1_with(groups_per_batch=3, distinct_prompts=False))
    assert len(allowed) == 3


@pytest.mark.parametrize("mode", ["grpo", "gs1"])
def test_an_overflow_is_refused_and_not_returned(mode: str) -> None:
    largest = 1.7976931348623157e308
    rewards = [[largest, -largest]] * 2 if mode == "grpo" else [[largest], [-largest]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(AdvantageError, match="overflows float64"):
            compute(
                mode, RolloutBatch.of(rewards, ["a cat", "dog"]), GRPO if mode == "grpo" else GS1
            )


def test_a_refusal_is_both_a_harness_error_and_a_value_error() -> None:
    with pytest.raises(ValueError, match="do:") as caught:
        compute("gs1", PAIR, gs1_with(tau=0.0))
    assert isinstance(caught.value, HarnessError)


@pytest.mark.parametrize(
    ("prompts", "rewards", "tau"),
    [
        (["cat"], [1.0], 0.1),
        (["cat", "dog"], [1.0], 0.1),
        (["cat", "dog"], [1.0, math.nan], 0.1),
        (["cat", "dog"], [1.0, 0.0], 0.0),
        (["cat", "dog"], [1.0, 0.0], math.inf),
    ],
    ids=["one prompt", "a reward missing", "NaN", "tau 0", "tau infinite"],
)
def test_the_reference_refuses_the_same(
    prompts: list[str], rewards: list[float], tau: float
) -> None:
    with pytest.raises(AdvantageError):
        reference.gs1_advantages(prompts, rewards, tau)


@pytest.mark.parametrize("rewards", [[[]], [[1.0, math.inf]]], ids=["empty group", "infinite"])
def test_the_reference_refuses_undefined_groups(rewards: list[list[float]]) -> None:
    with pytest.raises(AdvantageError):
        reference.grpo_advantages(rewards)
