"""Fixed rollouts for the correctness preflight: every layout a datum can have, without a service.

They are the cookbook's own types, so the stock code turns them into datums. Four layouts:

    single   one turn
    merged   three turns, each observation extending the last: one datum a rollout
    split    three turns, the last observation rewritten: two datums a rollout
    masked   as merged, with turns that failed to parse and carry no training signal

Sampling log-probabilities come from an older policy (stale) or from the policy itself (fresh), in
float32 as a sampler returns them. Lengths are unequal throughout.

Shape suffixes: ``_P`` groups of a batch, ``_G`` rollouts of a group, ``_T`` tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.types import (
    PARSE_ERROR_MASKED_METRIC_KEY,
    Trajectory,
    TrajectoryGroup,
    Transition,
)

from harness.arm_dataset import ArmDataset
from harness.gates.parity_policy import VOCABULARY, Policy
from harness.problems import Problem
from harness.spec_model import Arm

REWARDS = (1.0, 0.9, 0.0, -0.1)
"""Every value of the cookbook's reward (tinker-notes §2)."""
LAYOUTS = ("single", "merged", "split", "masked")
_NAMES = ("Tom", "Ann", "Maria", "Ben", "Lena", "Omar")
_THINGS = ("apples", "pencils", "marbles", "coins", "books", "stamps", "shells")
_ACTS = ("buys", "loses", "gives away", "finds", "sells")
_TURNS = 3


@dataclass(frozen=True)
class Turn:
    """One transition in plain numbers: what the reference is given."""

    observation_T: tuple[int, ...]  # noqa: N815 - shape suffix
    action_T: tuple[int, ...]  # noqa: N815
    sampling_logprobs_T: tuple[float, ...]  # noqa: N815
    masked: bool


@dataclass(frozen=True, eq=False)
class ParityCase:
    """One batch of rollouts.

    Attributes:
        name: layout and staleness.
        arm: whose advantages are computed.
        dataset: has handed out the batch.
        rewards_P: total reward of each rollout of each group.
        turns_PG: the turns of each rollout of each group.
    """

    name: str
    arm: Arm
    dataset: FixedPrompts
    rewards_P: tuple[tuple[float, ...], ...]  # noqa: N815
    turns_PG: tuple[tuple[tuple[Turn, ...], ...], ...]  # noqa: N815

    @property
    def questions_P(self) -> list[str]:  # noqa: N802 - shape suffix
        """Question text of each group."""
        return [problem.question for problem in self.dataset.current_problems_P()]

    def groups_P(self) -> list[TrajectoryGroup]:  # noqa: N802 - shape suffix
        """Return the rollouts in the cookbook's types, made anew."""
        return [
            TrajectoryGroup(
                trajectories_G=[
                    _trajectory(turns, reward)
                    for turns, reward in zip(turns_G, rewards_G, strict=True)
                ],
                final_rewards_G=[0.0] * len(rewards_G),
                metrics_G=[{} for _ in rewards_G],
            )
            for turns_G, rewards_G in zip(self.turns_PG, self.rewards_P, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything the comparison depends on, for the digest of the fixed input."""
        return {
            "name": self.name,
            "arm": self.arm.model_dump(mode="json"),
            "questions": self.questions_P,
            "rewards": [list(rewards_G) for rewards_G in self.rewards_P],
            "turns": [
                [[vars(turn) for turn in turns] for turns in turns_G] for turns_G in self.turns_PG
            ],
        }


class FixedPrompts(ArmDataset):
    """One batch of problems whose prompts are token ids of the small policy.

    Args:
        problems_P: the batch.
        prompts_P: their prompts.
        group_size: rollouts a problem.
    """

    def __init__(
        self, problems_P: Sequence[Problem], prompts_P: Sequence[list[int]], group_size: int
    ) -> None:
        # No renderer: the parent's tokenizer may not be at hand offline.
        self.batches = [list(problems_P)]
        self.group_size = group_size
        self.current_step = 0
        ids = [problem.item_id for problem in problems_P]
        self._prompts = dict(zip(ids, prompts_P, strict=True))

    def prompt_tokens_T(self, problem: Problem) -> list[int]:  # noqa: N802 - shape suffix
        """Return the prompt of one problem."""
        return self._prompts[problem.item_id]


def parity_case(arm: Arm, layout: str, sampler: Policy, staleness: str, seed: int) -> ParityCase:
    """Return the rollouts of one batch of an arm.

    Args:
        arm: group size and groups of the batch.
        layout: one of :data:`LAYOUTS`.
        sampler: the policy whose log-probabilities the rollouts carry.
        staleness: how the sampler relates to the policy being trained, for the name.
        seed: of everything drawn here.
    """
    random = np.random.default_rng(seed)
    groups = arm.groups_per_batch
    problems_P = [_problem(index, random) for index in range(groups)]
    prompts_P = [_tokens(random, 3, 9) for _ in range(groups)]
    rewards = random.choice(REWARDS, size=(groups, arm.group_size))
    turns_PG = tuple(
        tuple(_planned_turns(prompt_T, layout, random) for _ in range(arm.group_size))
        for prompt_T in prompts_P
    )
    return ParityCase(
        name=f"{layout}, {staleness}",
        arm=arm,
        dataset=FixedPrompts(problems_P, prompts_P, arm.group_size),
        rewards_P=tuple(tuple(row) for row in rewards.tolist()),
        turns_PG=_sampled(turns_PG, sampler),
    )


_Turns = tuple[Turn, ...]


def _planned_turns(prompt_T: list[int], layout: str, random: np.random.Generator) -> _Turns:
    """Return a rollout's turns, their log-probabilities still to come."""
    observation_T, turns = prompt_T, list[Turn]()
    for turn in range(1 if layout == "single" else _TURNS):
        if layout == "split" and turn == _TURNS - 1:
            observation_T = _tokens(random, 4, 12)
        action_T = _tokens(random, 2, 8)
        masked = layout == "masked" and bool(random.random() < 0.4)
        turns.append(Turn(tuple(observation_T), tuple(action_T), (), masked))
        observation_T = [*observation_T, *action_T, *_tokens(random, 1, 4)]
    return tuple(turns)


def _sampled(
    turns_PG: tuple[tuple[_Turns, ...], ...], sampler: Policy
) -> tuple[tuple[_Turns, ...], ...]:
    """Fill in every action's log-probabilities under ``sampler``, rounded to float32."""
    turns = [turn for turns_G in turns_PG for rollout in turns_G for turn in rollout]
    sequences_D = [shifted((*turn.observation_T, *turn.action_T)) for turn in turns]
    logprobs_D = iter(sampler.logprobs_D(sequences_D))

    def filled(turn: Turn) -> Turn:
        sampled_T = next(logprobs_D)[-len(turn.action_T) :].detach().float().tolist()
        return replace(turn, sampling_logprobs_T=tuple(sampled_T))

    return tuple(
        tuple(tuple(filled(turn) for turn in rollout) for rollout in turns_G)
        for turns_G in turns_PG
    )


def shifted(tokens_T: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Return a sequence as input tokens and the targets that they predict."""
    return tokens_T[:-1], tokens_T[1:]


def _trajectory(turns: Sequence[Turn], reward: float) -> Trajectory:
    """Give a rollout its reward in its last turn, or in its first where that turn is masked."""
    paid = 0 if turns[-1].masked else len(turns) - 1
    transitions = [
        Transition(
            ob=tinker.ModelInput.from_ints(list(turn.observation_T)),
            ac=TokensWithLogprobs(
                tokens=list(turn.action_T), maybe_logprobs=list(turn.sampling_logprobs_T)
            ),
            reward=reward if index == paid else 0.0,
            episode_done=index == len(turns) - 1,
            metrics={PARSE_ERROR_MASKED_METRIC_KEY: 1.0} if turn.masked else {},
        )
        for index, turn in enumerate(turns)
    ]
    return Trajectory(transitions=transitions, final_ob=tinker.ModelInput.empty())


def _problem(index: int, random: np.random.Generator) -> Problem:
    name, other = random.choice(_NAMES, size=2, replace=False)
    thing, act = random.choice(_THINGS), random.choice(_ACTS)
    count = int(random.integers(2, 90))
    question = f"{name} has {100 + index} {thing} and {act} {count}. {other} counts them. How many?"
    return Problem(f"parity-{index}", question, f"#### {index}", str(index))


def _tokens(random: np.random.Generator, shortest: int, longest: int) -> list[int]:
    size = int(random.integers(shortest, longest + 1))
    return [int(token) for token in random.integers(0, VOCABULARY, size=size)]
