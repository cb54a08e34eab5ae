"""Rollouts made without a service: the cookbook's own types with chosen tokens and rewards.

Shape suffixes: ``_P`` groups of a batch, ``_G`` rollouts of a group, ``_T`` tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

from harness.arm_dataset import ArmDataset
from harness.problems import Problem

MAX_COMPLETION_TOKENS = 9


def synthetic_groups(
    dataset: ArmDataset,
    rewards_P: Sequence[Sequence[float]],
    random: np.random.Generator,
) -> list[TrajectoryGroup]:
    """Return one group a problem of the data set's current batch.

    Args:
        dataset: has handed out the batch.
        rewards_P: the reward of each rollout of each group.
        random: draws token ids, log-probabilities and lengths (1 to 9 tokens).
    """
    return [
        TrajectoryGroup(
            trajectories_G=[_trajectory(dataset, problem, reward, random) for reward in rewards_G],
            final_rewards_G=[0.0] * len(rewards_G),
            metrics_G=[{} for _ in rewards_G],
        )
        for problem, rewards_G in zip(dataset.current_problems_P(), rewards_P, strict=True)
    ]


def _trajectory(
    dataset: ArmDataset, problem: Problem, reward: float, random: np.random.Generator
) -> Trajectory:
    length = int(random.integers(1, MAX_COMPLETION_TOKENS + 1))
    transition = Transition(
        ob=tinker.ModelInput.from_ints(dataset.prompt_tokens_T(problem)),
        ac=TokensWithLogprobs(
            tokens=[int(token) for token in random.integers(3, 200, size=length)],
            maybe_logprobs=[float(value) for value in -random.exponential(1.0, size=length)],
        ),
        reward=reward,
        episode_done=True,
        metrics={"correct": float(reward > 0.5), "format": 1.0},
    )
    return Trajectory(transitions=[transition], final_ob=tinker.ModelInput.empty())
