"""Defects in the further advantage modes, each against the gate that measures them offline.

Shape suffixes: ``_P`` problems, ``_G`` rollouts of a group, ``_PG`` both.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from harness import advantage_modes
from tests.mutants.client_mutants import PROPERTIES, change_mode
from tests.mutants.client_registry import planted

Array = np.ndarray


def change_batch(patch: pytest.MonkeyPatch, mode: str, formula: Callable[[Array], Array]) -> None:
    """Replace a mode by a formula of the rewards, shape (P, G)."""
    change_mode(patch, mode, lambda batch, _params: list(formula(np.stack(batch.rewards_P))))


def left_out(r_PG: Array) -> Array:
    """Mean of the group's other rewards."""
    return (r_PG.sum(axis=1, keepdims=True) - r_PG) / (r_PG.shape[1] - 1)


@planted(PROPERTIES, "the reward is part of its own baseline: the gradient shrinks by 1 - 1/N")
def uniform_loo_keeps_its_own_reward(patch: pytest.MonkeyPatch) -> None:
    change_batch(patch, "uniform_loo", lambda r_PG: r_PG - r_PG.mean())


@planted(PROPERTIES, "the control is over the group, not over the batch: it is rloo")
def uniform_loo_within_the_group(patch: pytest.MonkeyPatch) -> None:
    change_mode(patch, "uniform_loo", advantage_modes.rloo)


@planted(PROPERTIES, "the reward is part of its own baseline: rloo is grpo")
def rloo_keeps_its_own_reward(patch: pytest.MonkeyPatch) -> None:
    change_batch(patch, "rloo", lambda r_PG: r_PG - r_PG.mean(axis=1, keepdims=True))


@planted(PROPERTIES, "the others' sum is divided by all: a baseline that is too low")
def rloo_divides_by_the_whole_group(patch: pytest.MonkeyPatch) -> None:
    change_batch(
        patch,
        "rloo",
        lambda r_PG: r_PG - (r_PG.sum(axis=1, keepdims=True) - r_PG) / r_PG.shape[1],
    )


@planted(PROPERTIES, "another scale for every group size")
def grpo_std_of_the_sample(patch: pytest.MonkeyPatch) -> None:
    def scaled(r_PG: Array) -> Array:
        centred_PG = r_PG - r_PG.mean(axis=1, keepdims=True)
        deviation_P = r_PG.std(axis=1, ddof=1, keepdims=True)
        return np.divide(centred_PG, deviation_P, where=deviation_P > 0, out=np.zeros_like(r_PG))

    change_batch(patch, "grpo_std", scaled)


@planted(PROPERTIES, "the divisor has an epsilon: groups of small differences train less")
def grpo_std_with_an_epsilon(patch: pytest.MonkeyPatch) -> None:
    change_batch(
        patch,
        "grpo_std",
        lambda r_PG: (
            (r_PG - r_PG.mean(axis=1, keepdims=True)) / (r_PG.std(axis=1, keepdims=True) + 1e-6)
        ),
    )


@planted(PROPERTIES, "rounding of a mean is blown up to advantages of 1 on equal rewards")
def grpo_std_blows_up_rounding(patch: pytest.MonkeyPatch) -> None:
    def scaled(r_PG: Array) -> Array:
        centred_PG = r_PG - r_PG.mean(axis=1, keepdims=True) * (1 + 1e-15)
        deviation_P = np.sqrt(np.square(centred_PG).mean(axis=1, keepdims=True))
        return np.divide(centred_PG, deviation_P, where=deviation_P > 0, out=np.zeros_like(r_PG))

    change_batch(patch, "grpo_std", scaled)


@planted(PROPERTIES, "normalised inside each group: it is grpo_std")
def batch_norm_within_the_group(patch: pytest.MonkeyPatch) -> None:
    change_mode(patch, "reinforce_batch_norm", advantage_modes.grpo_std)


@planted(PROPERTIES, "centred inside each group, scaled over the batch")
def batch_norm_centres_by_group(patch: pytest.MonkeyPatch) -> None:
    change_batch(
        patch,
        "reinforce_batch_norm",
        lambda r_PG: (r_PG - r_PG.mean(axis=1, keepdims=True)) / max(float(r_PG.std()), 1e-300),
    )


def change_shrinkage(patch: pytest.MonkeyPatch, change: Callable[[Array, Array], float]) -> None:
    patch.setattr(advantage_modes, "_shrinkage", change)


@planted(PROPERTIES, "shrinks most where the prompts differ most")
def james_stein_shrinks_the_wrong_way(patch: pytest.MonkeyPatch) -> None:
    honest = advantage_modes._shrinkage
    change_shrinkage(patch, lambda means_P, variances_P: 1.0 - honest(means_P, variances_P))


@planted(PROPERTIES, "never shrinks: it is rloo under another name")
def james_stein_never_shrinks(patch: pytest.MonkeyPatch) -> None:
    change_shrinkage(patch, lambda _means_P, _variances_P: 0.0)


@planted(PROPERTIES, "the group's own rewards decide how far it is shrunk: a biased gradient")
def james_stein_without_leaving_the_group_out(patch: pytest.MonkeyPatch) -> None:
    def shrunk(r_PG: Array) -> Array:
        means_P, size = r_PG.mean(axis=1), r_PG.shape[1]
        within, between = r_PG.var(axis=1, ddof=1).mean() / size, means_P.var()
        weight = within / (within + between) if within + between else 0.0
        return r_PG - (1 - weight) * left_out(r_PG) - weight * means_P.mean()

    change_batch(patch, "james_stein", shrunk)
