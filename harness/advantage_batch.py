"""What an advantage is computed from, and the refusals that all modes share.

Shape suffixes: ``_P`` problems (groups) of a batch, ``_G`` rollouts of one group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.advantage_domain import outside
from harness.errors import AdvantageError
from harness.similarity import FloatArray, folded_text


@dataclass(frozen=True, eq=False)
class RolloutBatch:
    """Everything an advantage may depend on, for one optimizer step.

    Attributes:
        rewards_P: total rewards, one float64 array (G,) per group.
        prompts_P: the question text of each group: no few-shot pair, suffix or chat template.
    """

    rewards_P: tuple[FloatArray, ...]  # noqa: N815 - the shape suffix is part of the name
    prompts_P: tuple[str, ...]  # noqa: N815

    @classmethod
    def of(cls, rewards: Sequence[Sequence[float]], prompts: Sequence[str]) -> RolloutBatch:
        """Build a batch from plain numbers: one sequence of rewards per group."""
        return cls(tuple(np.asarray(group, dtype=np.float64) for group in rewards), tuple(prompts))


@dataclass(frozen=True)
class ArmParams:
    """The part of a spec's arm that its advantages depend on (contract §1).

    Attributes:
        group_size: rollouts of each group, as planned.
        groups_per_batch: groups of a step, as planned; None only where no plan exists, as in a
            diagnostic. With it, a baseline computed over a minibatch is refused.
        tau: softmax temperature of the similarity weights, > 0 (mode gs1).
        similarity: key of ``SIMILARITIES`` (mode gs1).
        distinct_prompts: whether the batch promises that no prompt occurs twice (mode gs1).
    """

    group_size: int
    groups_per_batch: int | None = None
    tau: float | None = None
    similarity: str | None = None
    distinct_prompts: bool = True


def check_domain(mode: str, batch: RolloutBatch, params: ArmParams) -> None:
    """Refuse a batch that is not the planned one, or on which the mode is undefined.

    Raises:
        AdvantageError: as :func:`check_batch`, or naming the count outside the mode's domain.
    """
    check_batch(batch, params)
    for wrong in outside(mode, params.group_size, len(batch.rewards_P)):
        raise AdvantageError(
            f"{mode} is undefined for this batch",
            expected=f"{wrong.field} {wrong.allowed}",
            found=f"{wrong.field} {wrong.found}",
            fix="change the arm's group_size and groups_per_batch, or choose another mode",
        )


def check_batch(batch: RolloutBatch, params: ArmParams) -> None:
    """Refuse a batch that is not the planned number of finite rewards for each prompt.

    Raises:
        AdvantageError: naming the first group or count that is wrong.
    """
    groups, prompts = len(batch.rewards_P), len(batch.prompts_P)
    planned = params.groups_per_batch
    wanted = "at least 1" if planned is None else planned
    if groups == 0 or groups != prompts or planned not in (None, groups):
        raise AdvantageError(
            "the batch does not have one group of rewards for each planned prompt",
            expected=f"{wanted} groups and as many prompts",
            found=f"{groups} groups and {prompts} prompts",
            fix="compute advantages once over the full batch of the step",
        )
    for index, rewards_G in enumerate(batch.rewards_P):
        _check_group(index, rewards_G, params.group_size)


def check_distinct(prompts_P: Sequence[str]) -> None:
    """Refuse a prompt that occurs twice under NFKC, casefold and folded white space.

    Raises:
        AdvantageError: naming both places.
    """
    first_seen: dict[str, int] = {}
    for index, prompt in enumerate(prompts_P):
        earlier = first_seen.setdefault(folded_text(prompt), index)
        if earlier != index:
            raise AdvantageError(
                "a prompt occurs twice in a batch that promises distinct prompts",
                expected="distinct normalised prompts",
                found=f"{prompt!r:.60}",
                where=f"prompts {earlier} and {index}",
                fix="remove duplicates from the training order, or plan distinct_prompts=False",
            )


def _check_group(index: int, rewards_G: FloatArray, group_size: int) -> None:
    planned = isinstance(rewards_G, np.ndarray) and rewards_G.dtype == np.float64
    if not planned or rewards_G.shape != (group_size,) or not np.isfinite(rewards_G).all():
        raise AdvantageError(
            "a group's rewards are not what the arm plans",
            expected=f"{group_size} finite float64 rewards",
            found=" ".join(f"{type(rewards_G).__name__} {rewards_G!r:.120}".split()),
            where=f"group {index}",
            fix="trace the rollout with that reward; it must not be trained on",
        )


def finite(advantages_P: list[FloatArray]) -> list[FloatArray]:
    """Return the advantages; raises AdvantageError where one overflows float64."""
    if not all(np.isfinite(advantages_G).all() for advantages_G in advantages_P):
        raise AdvantageError(
            "an advantage overflows float64",
            expected="rewards whose differences and sums are finite",
            found="rewards near the largest float64",
            fix="rescale the rewards",
        )
    return advantages_P
