"""What is kept of one step and of its rollouts: pure functions from what happened to JSON.

Reward is not accuracy: the cookbook's reward is ``0.1·(format − 1) + correct``, so reward,
accuracy, format and truncation are kept apart (design §4).

Shape suffixes: ``_P`` groups of a batch, ``_D`` datums, ``_T`` tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tinker
import torch

from harness.activation import effective_contributors, mean_abs_baseline_gap
from harness.advantage_seam import AdvantageCall
from harness.advantages import MOST_PROMPTS_AT_ONCE
from harness.arm_dataset import prompt_ids_sha256
from harness.errors import ArmError
from harness.similarity import SIMILARITIES, FloatArray, gs1_weights, weight_blocks
from harness.spec_model import Arm


def rollout_rows(call: AdvantageCall, arm: Arm) -> list[dict[str, Any]]:
    """Return one row a rollout, in batch order; enough to recompute every advantage.

    Raises:
        ArmError: when a rollout has no correctness or format metric: it was not graded.
    """
    rows: list[dict[str, Any]] = []
    for problem, group, rewards_G, advantages_G in zip(
        call.problems_P, call.groups_P, call.batch.rewards_P, call.advantages_P, strict=True
    ):
        for index, trajectory in enumerate(group.trajectories_G):
            transition = trajectory.transitions[-1]
            metrics = transition.metrics
            if "correct" not in metrics or "format" not in metrics:
                raise ArmError(
                    "a rollout was not graded",
                    expected="metrics correct and format",
                    found=str(sorted(metrics)),
                    where=f"arm {arm.name}, step {call.step}, {problem.item_id}",
                    fix="keep the cookbook's own environment: the harness adds no reward",
                )
            tokens_T = transition.ac.tokens
            rows.append(
                {
                    "arm": arm.name,
                    "step": call.step,
                    "item_id": problem.item_id,
                    "rollout": index,
                    "reward": float(rewards_G[index]),
                    "correct": float(metrics["correct"]),
                    "format": float(metrics["format"]),
                    "advantage": float(advantages_G[index]),
                    "stop_reason": transition.ac.stop_reason,
                    "completion_tokens": len(tokens_T),
                    "completion_sha256": token_sha256(tokens_T),
                }
            )
    return rows


def token_sha256(tokens_T: Sequence[int]) -> str:
    """Digest of token ids as little-endian 64-bit integers."""
    return hashlib.sha256(np.asarray(tokens_T, dtype="<i8").tobytes()).hexdigest()


def advantage_moments(advantages: np.ndarray) -> dict[str, float]:
    """Return sum, mean, standard deviation, extremes and mean magnitude of a step's advantages."""
    return {
        "sum": float(advantages.sum()),
        "mean": float(advantages.mean()),
        "std": float(advantages.std()),
        "min": float(advantages.min()),
        "max": float(advantages.max()),
        "mean_abs": float(np.abs(advantages).mean()),
    }


def similarity_activation(call: AdvantageCall, arm: Arm) -> dict[str, float] | None:
    """Return how active the similarity baseline was on this step; None for arms without one."""
    if arm.advantage_mode != "gs1" or arm.similarity is None:
        return None
    similarity, rewards_P = SIMILARITIES[arm.similarity], np.concatenate(call.batch.rewards_P)
    if len(rewards_P) <= MOST_PROMPTS_AT_ONCE:
        weights_PP = gs1_weights(similarity(call.batch.prompts_P), arm.tau)
        contributors_P = effective_contributors(weights_PP)
        gap = mean_abs_baseline_gap(weights_PP, rewards_P)
    else:
        contributors_P, gap = _activation_in_blocks(
            weight_blocks(similarity, call.batch.prompts_P, arm.tau), rewards_P
        )
    return {
        "effective_contributors_median": float(np.median(contributors_P)),
        "mean_abs_baseline_minus_uniform_loo": gap,
    }


def _activation_in_blocks(
    blocks: Iterator[tuple[slice, FloatArray]], rewards_P: FloatArray
) -> tuple[FloatArray, float]:
    """Return each prompt's effective contributors (P,) and the mean gap to plain leave-one-out."""
    uniform_P = (rewards_P.sum() - rewards_P) / (len(rewards_P) - 1)
    contributors_P, gaps_P = np.empty_like(rewards_P), np.empty_like(rewards_P)
    for rows, weights_BP in blocks:
        contributors_P[rows] = effective_contributors(weights_BP)
        gaps_P[rows] = np.abs(weights_BP @ rewards_P - uniform_P[rows])
    return contributors_P, float(gaps_P.mean())


def sampler_trainer_gap(
    data_D: Sequence[tinker.Datum], training_logprobs_D: Sequence[torch.Tensor]
) -> dict[str, float]:
    """Compare sampling and training log-probabilities on action tokens.

    Returns:
        ``mean``: mean of sampling − training; ``max_abs``: largest difference; ``tokens``.

    Raises:
        ArmError: when the service did not return one finite value a token of every datum.
    """
    sent_D = [datum.loss_fn_inputs["mask"].data for datum in data_D]
    _refuse_other_shapes([len(mask_T) for mask_T in sent_D], training_logprobs_D)
    differences: list[np.ndarray] = []
    for datum, trained_T in zip(data_D, training_logprobs_D, strict=True):
        mask_T = datum.loss_fn_inputs["mask"].to_torch().numpy() > 0
        sampled_T = datum.loss_fn_inputs["logprobs"].to_torch().numpy().astype(np.float64)
        trained = trained_T.numpy().astype(np.float64)
        differences.append(sampled_T[mask_T] - trained[mask_T])
    joined = np.concatenate(differences)
    if not np.isfinite(joined).all():
        raise ArmError(
            "a log-probability of an action token is not a finite number",
            expected="finite sampling and training log-probabilities",
            found=f"{int((~np.isfinite(joined)).sum())} of {joined.size} differences not finite",
            fix="check the service: it trained on values that are no numbers",
        )
    return {
        "mean": float(joined.mean()),
        "max_abs": float(np.abs(joined).max()),
        "tokens": int(joined.size),
    }


def _refuse_other_shapes(sent_D: Sequence[int], returned_D: Sequence[torch.Tensor]) -> None:
    returned = [int(trained_T.numel()) for trained_T in returned_D]
    if list(sent_D) != returned:
        raise ArmError(
            "the service did not return one training log-probability a token",
            expected=f"{len(sent_D)} datums, {sum(sent_D)} tokens, in the order they were sent",
            found=f"{len(returned)} datums, {sum(returned)} tokens",
            fix="check the service: the loss it optimised is over other tokens",
        )


def step_row(
    call: AdvantageCall,
    arm: Arm,
    rollouts: Sequence[Mapping[str, Any]],
    trained: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the step's line of ``steps.jsonl``.

    Args:
        call: the step's one advantage call.
        arm: the plan.
        rollouts: :func:`rollout_rows` of the call.
        trained: what the training part observed: loss_sum, gap, datums, seconds, sampler.
    """
    advantages = np.concatenate(call.advantages_P)
    count = len(rollouts)
    return {
        "arm": arm.name,
        "step": call.step,
        "rollouts": count,
        "groups": len(call.groups_P),
        "group_size": arm.group_size,
        "prompt_ids_sha256": prompt_ids_sha256(call.problems_P),
        "reward_mean": sum(row["reward"] for row in rollouts) / count,
        "accuracy": sum(row["correct"] for row in rollouts) / count,
        "format": sum(row["format"] for row in rollouts) / count,
        "truncation": sum(row["stop_reason"] == "length" for row in rollouts) / count,
        "completion_tokens_mean": sum(row["completion_tokens"] for row in rollouts) / count,
        "advantage": advantage_moments(advantages),
        "activation": similarity_activation(call, arm),
        **trained,
    }
