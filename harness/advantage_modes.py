"""Five more advantages: leave-one-out over the batch or the group, normalised, and shrunk.

Shape suffixes: ``_P`` problems (groups) of a batch, ``_G`` rollouts of one group, ``_PG`` both.
``n`` groups of ``m`` rollouts, rewards ``r_pg``, group means ``μ_p``, batch mean ``μ``; deviations
are population ones (divided by the count). All modes measure rewards from a lowest one, which
changes no value and makes equal rewards exactly 0.

Domains are in :mod:`harness.advantage_domain`; outside it each mode raises ``AdvantageError``.
"""

from __future__ import annotations

import numpy as np

from harness.advantage_batch import ArmParams, RolloutBatch, check_domain, finite
from harness.similarity import FloatArray


def uniform_loo(batch: RolloutBatch, params: ArmParams) -> list[FloatArray]:
    """Return ``r_i − mean of all other rollouts' rewards``, over the whole batch.

    Equal to ``N/(N − 1) · (r_i − μ)`` with N rollouts. It is gs1 with every weight equal, so it
    is the control that tells whether similarity does anything.

    Source: Kool, van Hoof and Welling 2019, "Buy 4 REINFORCE samples, get a baseline for free!",
    with samples of different prompts.

    Raises:
        AdvantageError: for a batch that is not the planned one or has fewer than 2 rollouts.
    """
    check_domain("uniform_loo", batch, params)
    rewards_PG = np.stack(batch.rewards_P)
    with np.errstate(over="ignore", invalid="ignore"):
        return finite(list(_less_the_others(rewards_PG.reshape(1, -1)).reshape(rewards_PG.shape)))


def rloo(batch: RolloutBatch, params: ArmParams) -> list[FloatArray]:
    """Return ``r_pg − mean of the group's other rewards``: ``m/(m − 1) · (r_pg − μ_p)``.

    Source: Ahmadian et al. 2024, "Back to basics", arXiv 2402.14740; Kool et al. 2019.

    Raises:
        AdvantageError: for a batch that is not the planned one, or groups of one rollout.
    """
    check_domain("rloo", batch, params)
    with np.errstate(over="ignore", invalid="ignore"):
        return finite(list(_less_the_others(np.stack(batch.rewards_P))))


def grpo_std(batch: RolloutBatch, params: ArmParams) -> list[FloatArray]:
    """Return ``(r_pg − μ_p) / σ_p``, and 0 for every rollout of a group of equal rewards.

    There is no epsilon in the divisor, so the value does not depend on the rewards' unit; a
    deviation of 0 is a case of its own. The population deviation is used; some implementations
    divide by m − 1 instead, which scales every advantage by ``sqrt((m − 1)/m)``.

    Source: Shao et al. 2024, DeepSeekMath, arXiv 2402.03300, outcome supervision.

    Raises:
        AdvantageError: for a batch that is not the planned one, or groups of one rollout.
    """
    check_domain("grpo_std", batch, params)
    return finite([_standardised(rewards_G) for rewards_G in batch.rewards_P])


def reinforce_batch_norm(batch: RolloutBatch, params: ArmParams) -> list[FloatArray]:
    """Return ``(r_i − μ) / σ`` over all rollouts of the batch, and 0 for a batch of equal rewards.

    As in :func:`grpo_std` there is no epsilon and the deviation is the population's.

    Source: Hu et al. 2025, REINFORCE++, arXiv 2501.03262 (global batch normalisation), without its
    KL penalty and per rollout instead of per token.

    Raises:
        AdvantageError: for a batch that is not the planned one or has fewer than 2 rollouts.
    """
    check_domain("reinforce_batch_norm", batch, params)
    rewards_PG = np.stack(batch.rewards_P)
    return finite(list(_standardised(rewards_PG.reshape(-1)).reshape(rewards_PG.shape)))


def james_stein(batch: RolloutBatch, params: ArmParams) -> list[FloatArray]:
    """Return ``r_pg − [(1 − λ_p)·(mean of the group's others) + λ_p·(mean of the other groups)]``.

    ``λ_p = v_p / (v_p + s_p)`` comes from the other groups alone: ``v_p`` is the mean over k ≠ p
    of the estimated variance of a group mean, ``Σ_g (r_kg − μ_k)² / ((m − 1)·m)``, and ``s_p`` the
    mean over k ≠ p of ``(μ_k − mean of those means)²``. Two-level leave-one-out: nothing in the
    baseline depends on the rollout's own reward, so the gradient stays unbiased. Where
    ``v_p + s_p = 0`` the others say nothing about how to shrink, and ``λ_p = 0``: rloo.

    Source: Zeng, Zhou, Arora and Zanette 2025, "Shrinking the Variance", arXiv 2511.03710, and its
    authors' code (guanning03/JSPO-Official), whose epsilon in the divisor is left out here.

    Raises:
        AdvantageError: for a batch that is not the planned one, groups of one rollout, or fewer
            than 3 groups.
    """
    check_domain("james_stein", batch, params)
    rewards_PG = np.stack(batch.rewards_P)
    groups, size = rewards_PG.shape
    with np.errstate(over="ignore", invalid="ignore"):
        above_PG = rewards_PG - rewards_PG.min()
        means_P = above_PG.mean(axis=1)
        # Each from its own group's lowest reward: a group of equal rewards has exactly 0, where the
        # rounding of a mean would leave a variance that alone decides how far to shrink.
        inside_PG = rewards_PG - rewards_PG.min(axis=1, keepdims=True)
        variances_P = inside_PG.var(axis=1, ddof=1) / size
        baselines_PG = (above_PG.sum(axis=1, keepdims=True) - above_PG) / (size - 1)
        for p in range(groups):
            others = np.arange(groups) != p
            shrinkage = _shrinkage(means_P[others], variances_P[others])
            across = means_P[others].mean()
            baselines_PG[p] += shrinkage * (across - baselines_PG[p])
        return finite(list(above_PG - baselines_PG))


def _shrinkage(means_P: FloatArray, variances_P: FloatArray) -> float:
    """Return λ in [0, 1] from other groups' means and the variances of those means."""
    within = float(variances_P.mean())
    between = float(means_P.var())
    return within / (within + between) if within + between else 0.0


def _less_the_others(rewards_PG: FloatArray) -> FloatArray:
    """Return each reward minus the mean of the others in its row."""
    size = rewards_PG.shape[1]
    above_PG = rewards_PG - rewards_PG.min(axis=1, keepdims=True)
    return above_PG - (above_PG.sum(axis=1, keepdims=True) - above_PG) / (size - 1)


def _standardised(rewards: FloatArray) -> FloatArray:
    """Return rewards as deviations from their mean over their deviation; zeros where all equal.

    Rewards are first measured in units of their range, so that squares neither over- nor underflow.
    """
    lowest, highest = rewards.min(), rewards.max()
    if lowest == highest:
        return np.zeros_like(rewards)
    with np.errstate(over="ignore", invalid="ignore"):
        inside = (rewards - lowest) / (highest - lowest)
        return (inside - inside.mean()) / inside.std()
