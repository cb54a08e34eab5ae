"""How far a batch's advantages are from what their definitions imply.

Each function returns the largest absolute violation over one batch; a gate takes the worst over
many batches. Sources: contract §12; design §4 for the identity ``Σ A_i = Σ_j r_j (1 − c_j)``, with
``c_j`` the column sums of the weights.

Shape suffixes: ``_P`` problems of a batch, ``_PP`` pairs of problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness import reference
from harness.advantages import ArmParams, RolloutBatch, compute
from harness.similarity import SIMILARITIES, gs1_weights


def grpo_violations(rewards: Sequence[Sequence[float]]) -> dict[str, float]:
    """Measure group means against zero group sums and the reference."""
    params = ArmParams(group_size=len(rewards[0]), groups_per_batch=len(rewards))
    batch = RolloutBatch.of(rewards, [f"prompt {index}" for index in range(len(rewards))])
    advantages_P = compute("grpo", batch, params)
    expected = reference.grpo_advantages(rewards)
    return {
        "grpo |sum over a group|": max(abs(float(values.sum())) for values in advantages_P),
        "grpo |advantage - reference|": _worst(np.concatenate(advantages_P), _flat(expected)),
    }


def gs1_violations(
    prompts_P: Sequence[str], rewards_P: Sequence[float], params: ArmParams
) -> dict[str, float]:
    """Measure the similarity baseline against its identities and the reference.

    Args:
        prompts_P: question texts.
        rewards_P: one reward each.
        params: the arm's tau and similarity; the batch need not have the planned size.
    """
    tau, similarity = params.tau, params.similarity
    if tau is None or similarity is None:
        raise ValueError("a gs1 arm has a tau and a similarity")
    free = ArmParams(group_size=1, tau=tau, similarity=similarity, distinct_prompts=False)
    rewards = np.asarray(rewards_P, dtype=np.float64)
    advantages_P = _gs1(prompts_P, rewards, free)
    weights_PP = gs1_weights(SIMILARITIES[similarity](prompts_P), tau)
    columns_P = weights_PP.sum(axis=0)
    baseline_P = rewards - advantages_P
    others = np.where(np.eye(len(rewards), dtype=bool), np.nan, rewards)
    return {
        "gs1 |advantage - reference|": _worst(
            advantages_P, reference.gs1_advantages(prompts_P, rewards_P, tau)
        ),
        "gs1 |sum A - sum r(1 - c)|": abs(
            float(advantages_P.sum() - (rewards * (1.0 - columns_P)).sum())
        ),
        "gs1 |weight row sum - 1|": float(np.abs(weights_PP.sum(axis=1) - 1.0).max()),
        "gs1 largest self-weight": float(np.abs(np.diag(weights_PP)).max()),
        "gs1 negative weight": float(np.maximum(-weights_PP, 0.0).max()),
        "gs1 baseline outside the others' rewards": float(
            np.maximum(
                np.nanmin(others, axis=1) - baseline_P, baseline_P - np.nanmax(others, axis=1)
            ).max()
        ),
        "gs1 |A(r + 1) - A(r)|": _worst(_gs1(prompts_P, rewards + 1.0, free), advantages_P),
        "gs1 |A(2r) - 2 A(r)|": _worst(_gs1(prompts_P, 2.0 * rewards, free), 2.0 * advantages_P),
        "gs1 |A(reversed) - reversed A|": _worst(
            _gs1(prompts_P[::-1], rewards[::-1], free), advantages_P[::-1]
        ),
    }


def worst_of(violations: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the largest of each violation over many batches."""
    names = {name for found in violations for name in found}
    return {
        name: max(found[name] for found in violations if name in found) for name in sorted(names)
    }


def _gs1(prompts_P: Sequence[str], rewards: np.ndarray, params: ArmParams) -> np.ndarray:
    batch = RolloutBatch.of([[float(reward)] for reward in rewards], prompts_P)
    return np.concatenate(compute("gs1", batch, params))


def _flat(groups: Sequence[Sequence[float]]) -> list[float]:
    return [value for group in groups for value in group]


def _worst(found: Sequence[float] | np.ndarray, expected: Sequence[float] | np.ndarray) -> float:
    return float(np.abs(np.asarray(found) - np.asarray(expected)).max())
