"""Defects in the advantages of the new path, and the registry of all of them.

Each patch is undone by pytest's monkeypatch. ``rows`` are the error rows of the offline gate that
must leave the spec's tolerances; a defect that stock code shares shows against the reference only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from harness import advantage_seam, advantages
from harness.similarity import uniform_loo_weights

NEW = ("baseline_loss", "baseline_gradient", "reference_loss", "reference_gradient")
SHARED = (
    "stock_reference_loss",
    "stock_reference_gradient",
    "reference_loss",
    "reference_gradient",
)
TREATMENT = ("reference_loss", "reference_gradient")
GRADIENT = ("stock_reference_gradient", "reference_gradient")

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """A defect, the error rows that must leave their tolerances, and what it would have done."""

    patch: Patch
    rows: tuple[str, ...]
    effect: str


MUTANTS: dict[str, Mutant] = {}


def mutant(rows: tuple[str, ...], effect: str) -> Callable[[Patch], Patch]:
    def register(patch: Patch) -> Patch:
        MUTANTS[patch.__name__] = Mutant(patch, rows, effect)
        return patch

    return register


# --- the advantages of the new path -----------------------------------------------------------


def change_advantages(
    patch: pytest.MonkeyPatch, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    honest = advantage_seam.compute
    patch.setattr(
        advantage_seam,
        "compute",
        lambda *arguments: [change(values_G) for values_G in honest(*arguments)],
    )


@mutant(NEW, "the arm is pushed away from what was rewarded")
def advantage_sign_flipped(patch: pytest.MonkeyPatch) -> None:
    change_advantages(patch, lambda values_G: -values_G)


@mutant(("baseline_gradient", "reference_gradient"), "advantages keep three digits")
def advantages_in_float16(patch: pytest.MonkeyPatch) -> None:
    change_advantages(patch, lambda values_G: values_G.astype(np.float16).astype(np.float64))


@mutant(NEW, "easy and hard groups weigh alike: another objective than the plan's")
def advantages_divided_by_deviation(patch: pytest.MonkeyPatch) -> None:
    honest = advantage_seam.compute

    def normalised(*arguments: Any) -> list[np.ndarray]:
        found = honest(*arguments)
        spread = float(np.concatenate(found).std())
        return [values_G / spread for values_G in found]

    patch.setattr(advantage_seam, "compute", normalised)


@mutant(NEW, "what was worse than its baseline teaches nothing")
def negative_advantages_dropped(patch: pytest.MonkeyPatch) -> None:
    change_advantages(patch, lambda values_G: np.maximum(values_G, 0.0))


@mutant(NEW, "every update is twice as long as planned")
def advantages_doubled(patch: pytest.MonkeyPatch) -> None:
    change_advantages(patch, lambda values_G: 2.0 * values_G)


@mutant(NEW, "a rollout is credited with another's reward")
def advantages_of_another_rollout(patch: pytest.MonkeyPatch) -> None:
    honest = advantage_seam.compute

    def shifted(*arguments: Any) -> list[np.ndarray]:
        found = honest(*arguments)
        rolled = np.roll(np.concatenate(found), 1)
        return np.split(rolled, np.cumsum([len(values_G) for values_G in found])[:-1])

    patch.setattr(advantage_seam, "compute", shifted)


@mutant(("baseline_loss", "baseline_gradient"), "GRPO's baseline is the batch's, not the group's")
def mean_over_the_batch(patch: pytest.MonkeyPatch) -> None:
    def batch_mean(batch: Any, _params: Any) -> list[np.ndarray]:
        mean = float(np.concatenate(batch.rewards_P).mean())
        return [rewards_G - mean for rewards_G in batch.rewards_P]

    patch.setattr(advantages, "MODES", {**advantages.MODES, "grpo": batch_mean})


@mutant(("baseline_loss", "baseline_gradient"), "a group's own rollout is left out of its mean")
def grpo_leaves_itself_out(patch: pytest.MonkeyPatch) -> None:
    def leave_out(batch: Any, _params: Any) -> list[np.ndarray]:
        return [(r - r.mean()) * len(r) / (len(r) - 1) for r in batch.rewards_P]

    patch.setattr(advantages, "MODES", {**advantages.MODES, "grpo": leave_out})


# --- the treatment's weights ------------------------------------------------------------------


def change_weights(
    patch: pytest.MonkeyPatch, change: Callable[[np.ndarray, float], np.ndarray]
) -> None:
    patch.setattr(advantages, "gs1_weights", change)


@mutant(TREATMENT, "a reward is compared with itself: the gradient shrinks")
def self_weight_kept(patch: pytest.MonkeyPatch) -> None:
    def softmax(similarity_PP: np.ndarray, tau: float) -> np.ndarray:
        powers_PP = np.exp(similarity_PP / tau)
        return powers_PP / powers_PP.sum(axis=1, keepdims=True)

    change_weights(patch, softmax)


@mutant(TREATMENT, "the least similar prompts make the baseline")
def similarity_negated(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, tau: honest(-similarity_PP, tau))


@mutant(TREATMENT, "a sharp kernel becomes a flat one")
def tau_inverted(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, tau: honest(similarity_PP, 1.0 / tau))


@mutant(TREATMENT, "columns instead of rows sum to one")
def weights_transposed(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, tau: honest(similarity_PP, tau).T)


@mutant(TREATMENT, "the treatment is plain leave-one-out")
def weights_uniform(patch: pytest.MonkeyPatch) -> None:
    change_weights(patch, lambda similarity_PP, _tau: uniform_loo_weights(len(similarity_PP)))


@mutant(TREATMENT, "similarities belong to other prompts than the rewards")
def prompts_in_another_order(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, tau: honest(similarity_PP[::-1, ::-1], tau))
