"""The one thing that differs between arms: what stock ``compute_advantages`` is replaced by.

The seam checks before it computes: the groups it is given must be the full batch that was handed
out, in order, with the planned group sizes. Anything else fails the arm, because a baseline over
the wrong rollouts trains without complaint.

Shape suffixes: ``_P`` groups of a batch, ``_G`` rollouts of a group, ``_T`` tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tinker_cookbook.rl.data_processing import compute_advantages as stock_advantages
from tinker_cookbook.rl.types import TrajectoryGroup

from harness.advantages import ArmParams, RolloutBatch, compute
from harness.arm_dataset import ArmDataset
from harness.errors import ArmError
from harness.problems import Problem
from harness.spec_model import Arm


@dataclass(frozen=True, eq=False)
class AdvantageCall:
    """One training call of the seam.

    Attributes:
        step: index of the batch.
        problems_P: the batch's problems.
        groups_P: the rollouts, as the loop collected them.
        batch: what the mode was given.
        advantages_P: float64 arrays (G,), before the wire's float32.
    """

    step: int
    problems_P: Sequence[Problem]  # noqa: N815 - shape suffix
    groups_P: Sequence[TrajectoryGroup]  # noqa: N815
    batch: RolloutBatch
    advantages_P: Sequence[np.ndarray]  # noqa: N815


def arm_params(arm: Arm) -> ArmParams:
    """Return the part of an arm's spec that its advantages depend on."""
    return ArmParams(
        group_size=arm.group_size,
        groups_per_batch=arm.groups_per_batch,
        tau=arm.tau,
        similarity=arm.similarity,
    )


class AdvantageSeam:
    """Callable with the signature of the stock function.

    Args:
        arm: mode, group size and the mode's parameters.
        dataset: knows the batch that was handed out last.
    """

    def __init__(self, arm: Arm, dataset: ArmDataset) -> None:
        self.arm = arm
        self.params = arm_params(arm)
        self.dataset = dataset
        self.displaying = False
        self.calls: list[AdvantageCall] = []

    def __call__(self, trajectory_groups_P: list[TrajectoryGroup]) -> list[torch.Tensor]:
        """Return one float32 tensor (G,) a group.

        While the loop only prints a group it is given stock values for that group, which are not
        recorded and never trained on.

        Raises:
            ArmError: when the groups are not the planned full batch.
            AdvantageError: when the mode is undefined for these rewards or prompts.
        """
        if self.displaying:
            return stock_advantages(trajectory_groups_P)
        problems_P = self.dataset.current_problems_P()
        self._check_batch(trajectory_groups_P, problems_P)
        batch = RolloutBatch.of(
            [group.get_total_rewards() for group in trajectory_groups_P],
            [problem.question for problem in problems_P],
        )
        advantages_P = compute(self.arm.advantage_mode, batch, self.params)
        step = self.dataset.current_step
        if step is None:
            raise ArmError("advantages were asked for before the first step")
        self.calls.append(AdvantageCall(step, problems_P, trajectory_groups_P, batch, advantages_P))
        return [torch.tensor(values_G, dtype=torch.float32) for values_G in advantages_P]

    def take_single_call(self, step: int) -> AdvantageCall:
        """Return the step's one training call and forget it.

        Raises:
            ArmError: when there was none, more than one, or one for another step.
        """
        calls, self.calls = self.calls, []
        if len(calls) != 1 or calls[0].step != step:
            raise ArmError(
                "a step must compute its advantages exactly once, over its full batch",
                expected=f"one call for step {step}",
                found=f"{len(calls)} calls for steps {[call.step for call in calls]}",
                where=f"arm {self.arm.name}",
                fix="run the synchronous loop with one substep and no minibatches",
            )
        return calls[0]

    def _check_batch(
        self, groups_P: Sequence[TrajectoryGroup], problems_P: Sequence[Problem]
    ) -> None:
        sizes = [len(group.trajectories_G) for group in groups_P]
        planned = [self.arm.group_size] * self.arm.groups_per_batch
        if sizes != planned:
            raise ArmError(
                "the rollouts are not the planned groups",
                expected=f"{self.arm.groups_per_batch} groups of {self.arm.group_size}",
                found=f"{len(sizes)} groups of sizes {sorted(set(sizes))}",
                where=f"arm {self.arm.name}, step {self.dataset.current_step}",
                fix="keep remove_constant_reward_groups off and run the synchronous loop",
            )
        for group, problem in zip(groups_P, problems_P, strict=True):
            expected_T = self.dataset.prompt_tokens_T(problem)
            for trajectory in group.trajectories_G:
                if trajectory.transitions[0].ob.to_ints() != expected_T:
                    raise ArmError(
                        "a rollout does not belong to the prompt at its place in the batch",
                        expected=f"the rendered prompt of {problem.item_id}",
                        found="other prompt tokens",
                        where=f"arm {self.arm.name}, step {self.dataset.current_step}",
                        fix="keep groups in the order they were handed out",
                    )
