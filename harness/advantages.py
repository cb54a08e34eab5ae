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
from types import MappingProxyType

import numpy as np

from harness.advantage_batch import (
    ArmParams,
    RolloutBatch,
    check_batch,
    check_distinct,
    check_domain,
    finite,
)
from harness.advantage_modes import (
    grpo_std,
    james_stein,
    reinforce_batch_norm,
    rloo,
    uniform_loo,
)
from harness.errors import AdvantageError
from harness.similarity import (
    SIMILARITIES,
    FloatArray,
    Similarity,
    gs1_weights,
    weight_blocks,
)

__all__ = [
    "MODES",
    "ArmParams",
    "Mode",
    "RolloutBatch",
    "check_batch",
    "check_distinct",
    "compute",
    "grpo",
    "gs1",
]


MOST_PROMPTS_AT_ONCE = 1024
"""Larger batches get their weights in blocks of rows: this many squared are 8 MiB."""

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
    check_domain("grpo", batch, params)
    return finite([_centred(rewards_G) for rewards_G in batch.rewards_P])


def gs1(batch: RolloutBatch, params: ArmParams) -> list[FloatArray]:
    """Return ``r_i - sum_{j != i} softmax_{j != i}(cos(e_i, e_j) / tau) r_j``, one (1,) per prompt.

    Measuring rewards from the lowest one leaves the value unchanged, because weights sum to 1, and
    makes a batch of equal rewards exactly 0.

    Raises:
        AdvantageError: for a batch that is not the planned one, fewer than two prompts, a group of
            more than one rollout, a reward that is not finite, tau missing, not finite or not
            above 0, an unknown similarity, or a repeated prompt where distinct ones are promised.
    """
    check_domain("gs1", batch, params)
    if params.distinct_prompts:
        check_distinct(batch.prompts_P)
    rewards_P = np.concatenate(batch.rewards_P)
    with np.errstate(over="ignore", invalid="ignore"):
        above_lowest_P = rewards_P - rewards_P.min()
        advantages_P = above_lowest_P - _baselines(batch.prompts_P, above_lowest_P, params)
    return finite(list(advantages_P.reshape(-1, 1)))


def _baselines(prompts_P: Sequence[str], rewards_P: FloatArray, params: ArmParams) -> FloatArray:
    """Return each prompt's weighted mean of the others' rewards, (P,); large batches in blocks."""
    similarity = _similarity(params)
    if len(prompts_P) <= MOST_PROMPTS_AT_ONCE:
        return gs1_weights(similarity(prompts_P), params.tau) @ rewards_P
    baselines_P = np.empty_like(rewards_P)
    for rows, weights_BP in weight_blocks(similarity, prompts_P, params.tau):
        baselines_P[rows] = weights_BP @ rewards_P
    return baselines_P


MODES: Mapping[str, Mode] = MappingProxyType(
    {
        "grpo": grpo,
        "gs1": gs1,
        "uniform_loo": uniform_loo,
        "rloo": rloo,
        "grpo_std": grpo_std,
        "reinforce_batch_norm": reinforce_batch_norm,
        "james_stein": james_stein,
    }
)
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


def _centred(rewards_G: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        above_lowest_G = rewards_G - rewards_G.min()
        return above_lowest_G - above_lowest_G.mean()


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
