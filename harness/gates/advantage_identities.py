"""How far a batch's advantages are from what their definitions imply.

Each function returns the largest absolute violation over one batch; a gate takes the worst over
many batches. The identities of all modes are in :mod:`harness.gates.mode_identities`; here are
those of gs1's weights. Sources: contract §12; design §4 for ``Σ A_i = Σ_j r_j (1 − c_j)``, with
``c_j`` the column sums of the weights.

Shape suffixes: ``_P`` problems of a batch, ``_PG`` rollouts of each, ``_PP`` pairs of problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from harness.advantages import ArmParams
from harness.gates.mode_identities import Case, mode_violations
from harness.similarity import SIMILARITIES, gs1_weights


def violations_of(
    mode: str,
    prompts_P: Sequence[str],
    rewards_PG: Sequence[Sequence[float]],
    params: ArmParams,
) -> dict[str, float]:
    """Return every violation of a mode on one batch, which need not have the planned size.

    Args:
        mode: an advantage mode.
        prompts_P: question texts; they may repeat.
        rewards_PG: rewards of each group, all groups of one size.
        params: the arm's tau and similarity; its sizes are replaced by the batch's.

    Raises:
        GateError: for a mode that declares no identities.
    """
    if mode == "gs1":
        return gs1_violations(prompts_P, [rewards_G[0] for rewards_G in rewards_PG], params)
    return mode_violations(_case(mode, prompts_P, rewards_PG, params))


def grpo_violations(rewards_PG: Sequence[Sequence[float]]) -> dict[str, float]:
    """Measure group means against the identities of mode grpo and the reference."""
    prompts_P = [f"prompt {index}" for index in range(len(rewards_PG))]
    return mode_violations(_case("grpo", prompts_P, rewards_PG, ArmParams(len(rewards_PG[0]))))


def gs1_violations(
    prompts_P: Sequence[str], rewards_P: Sequence[float], params: ArmParams
) -> dict[str, float]:
    """Measure the similarity baseline against its identities, its weights and the reference.

    Args:
        prompts_P: question texts.
        rewards_P: one reward each.
        params: the arm's tau and similarity; the batch need not have the planned size.
    """
    tau, similarity = params.tau, params.similarity
    if tau is None or similarity is None:
        raise ValueError("a gs1 arm has a tau and a similarity")
    case = _case("gs1", prompts_P, [[reward] for reward in rewards_P], params)
    rewards, advantages_P = case.rewards_PG[:, 0], case.found[:, 0]
    weights_PP = gs1_weights(SIMILARITIES[similarity](prompts_P), tau)
    columns_P = weights_PP.sum(axis=0)
    return {
        **mode_violations(case),
        "gs1 |sum A - sum r(1 - c)|": abs(
            float(advantages_P.sum() - (rewards * (1.0 - columns_P)).sum())
        ),
        "gs1 |weight row sum - 1|": float(np.abs(weights_PP.sum(axis=1) - 1.0).max()),
        "gs1 largest self-weight": float(np.abs(np.diag(weights_PP)).max()),
        "gs1 negative weight": float(np.maximum(-weights_PP, 0.0).max()),
    }


def worst_of(violations: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the largest of each violation over many batches."""
    names = {name for found in violations for name in found}
    return {
        name: max(found[name] for found in violations if name in found) for name in sorted(names)
    }


def _case(
    mode: str,
    prompts_P: Sequence[str],
    rewards_PG: Sequence[Sequence[float]],
    params: ArmParams,
) -> Case:
    rewards = np.asarray(rewards_PG, dtype=np.float64)
    groups, size = rewards.shape
    sized = replace(params, group_size=size, groups_per_batch=groups, distinct_prompts=False)
    return Case(mode, sized, prompts_P, rewards)
