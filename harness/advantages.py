"""Advantages: what each arm multiplies a rollout's log-probability gradient by.

Shape suffixes: ``_P`` problems (groups) of a batch, ``_G`` rollouts of one group, ``_PP`` pairs of
problems. Everything is float64; the wire's float32 is the caller's last step.

A mode is one function ``(batch, params) -> list of (G,) arrays`` and one line of :data:`MODES`.
Every mode refuses what it is not defined for with ``AdvantageError``: a run that trains on zeros,
NaN or a baseline over half the batch would otherwise "succeed".

Sources: contract §12; issue 2, part 6; ``grpo`` is the stock cookbook's group centring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from harness.errors import AdvantageError
from harness.similarity import SIMILARITIES, FloatArray, Similarity, folded_text, gs1_weights


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


Mode = Callable[[RolloutBatch, ArmParams], list[FloatArray]]


def grpo(batch: RolloutBatch, params: ArmParams) -> list[FloatArray]:
    """Return each reward minus its group's mean, with no division by a deviation.

    Equal to ``tinker_cookbook.rl.data_processing.compute_advantages`` up to that function's float32
    rounding. Measuring from the group's lowest reward leaves the value unchanged and makes a group
    of equal rewards exactly 0.

    Raises:
        AdvantageError: for a batch that is not the planned one, a reward that is not finite, or
            groups of one rollout, whose advantage would be 0 whatever the reward.
    """
    check_batch(batch, params)
    if params.group_size < 2:
        raise AdvantageError(
            "a group mean over one rollout makes every advantage 0",
            expected="grpo groups of at least 2 rollouts",
            found=f"group_size {params.group_size}",
            fix="raise the arm's group_size, or choose a mode with a baseline across prompts",
        )
    return _finite([_centred(rewards_G) for rewards_G in batch.rewards_P])


def gs1(batch: RolloutBatch, params: ArmParams) -> list[FloatArray]:
    """Return ``r_i - sum_{j != i} softmax_{j != i}(cos(e_i, e_j) / tau) r_j``, one (1,) per prompt.

    Measuring rewards from the lowest one leaves the value unchanged, because weights sum to 1, and
    makes a batch of equal rewards exactly 0.

    Raises:
        AdvantageError: for a batch that is not the planned one, fewer than two prompts, a group of
            more than one rollout, a reward that is not finite, tau missing, not finite or not
            above 0, an unknown similarity, or a repeated prompt where distinct ones are promised.
    """
    check_batch(batch, params)
    if params.group_size != 1:
        raise AdvantageError(
            "gs1 is defined for one rollout a prompt",
            expected="group_size 1",
            found=f"group_size {params.group_size}",
            fix="set the arm's group_size to 1",
        )
    if params.distinct_prompts:
        check_distinct(batch.prompts_P)
    weights_PP = gs1_weights(_similarity(params)(batch.prompts_P), params.tau)
    rewards_P = np.concatenate(batch.rewards_P)
    with np.errstate(over="ignore", invalid="ignore"):
        above_lowest_P = rewards_P - rewards_P.min()
        advantages_P = above_lowest_P - weights_PP @ above_lowest_P
    return _finite(list(advantages_P.reshape(-1, 1)))


MODES: Mapping[str, Mode] = MappingProxyType({"grpo": grpo, "gs1": gs1})
"""What a spec's ``advantage_mode`` may name."""


def compute(mode: str, batch: RolloutBatch, params: ArmParams) -> list[FloatArray]:
    """Return the advantages of ``batch`` under the mode of that name.

    Raises:
        AdvantageError: for an unknown mode, and whatever the mode refuses.
    """
    if mode not in MODES:
        raise AdvantageError(
            "the advantage mode is not registered",
            expected=" or ".join(sorted(MODES)),
            found=repr(mode),
            where="arms[].advantage_mode",
            fix="correct the spec, or register the mode in harness.advantages.MODES",
        )
    return MODES[mode](batch, params)


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


def _centred(rewards_G: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        above_lowest_G = rewards_G - rewards_G.min()
        return above_lowest_G - above_lowest_G.mean()


def _finite(advantages_P: list[FloatArray]) -> list[FloatArray]:
    if not all(np.isfinite(advantages_G).all() for advantages_G in advantages_P):
        raise AdvantageError(
            "an advantage overflows float64",
            expected="rewards whose differences and sums are finite",
            found="rewards near the largest float64",
            fix="rescale the rewards",
        )
    return advantages_P


def _similarity(params: ArmParams) -> Similarity:
    name = params.similarity
    if name is None or name not in SIMILARITIES:
        raise AdvantageError(
            "the similarity is not registered",
            expected=" or ".join(sorted(SIMILARITIES)),
            found=repr(name),
            where="arms[].similarity",
            fix="correct the spec, or register it in harness.similarity.SIMILARITIES",
        )
    return SIMILARITIES[name]
