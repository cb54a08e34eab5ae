"""Defects in the loss, in what is sent, and in the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import tinker
import torch
from tinker_cookbook.rl import data_processing, train
from tinker_cookbook.rl.types import TrajectoryGroup

from harness.gates import parity, parity_wire
from harness.gates.parity_policy import Policy
from harness.local_service import losses
from tests.mutants.path_mutants import GRADIENT, SHARED, mutant

# --- the loss ---------------------------------------------------------------------------------


def change_loss(
    patch: pytest.MonkeyPatch,
    formula: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    """Replace the token losses; the formula is given logprobs, sampling logprobs, advantages."""

    def patched(logprobs_T: torch.Tensor, inputs: Any, _config: Any) -> torch.Tensor:
        return formula(logprobs_T, inputs["logprobs"], inputs["advantages"])

    honest = losses.LOSSES["importance_sampling"]
    patch.setitem(losses.LOSSES, "importance_sampling", replace(honest, formula=patched))


@mutant(SHARED, "the loss is minimised where it should be maximised")
def loss_sign_flipped(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, q, a: torch.exp(logp - q) * a)


@mutant(SHARED, "long answers weigh less than planned")
def loss_is_a_mean_per_sequence(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, q, a: -torch.exp(logp - q) * a / len(a))


@mutant(SHARED, "the learning rate is divided by the number of datums")
def loss_is_a_mean_over_datums(patch: pytest.MonkeyPatch) -> None:
    honest = parity_wire.wire_loss

    def mean(policy: Policy, data_D: Sequence[tinker.Datum]) -> torch.Tensor:
        return honest(policy, data_D) / len(data_D)

    patch.setattr(parity_wire, "wire_loss", mean)
    patch.setattr(parity, "wire_loss", mean)


@mutant(SHARED, "tokens that moved far stop teaching: PPO instead of importance sampling")
def ratio_clipped(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, q, a: -torch.exp(logp - q).clamp(0.8, 1.2) * a)


# Its gradient is the right one, ratio times A: only the reported loss gives it away.
@mutant(("stock_reference_loss", "reference_loss"), "the loss in the log is not the one optimised")
def ratio_detached(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, q, a: -torch.exp(logp - q).detach() * a * logp)


@mutant(SHARED, "rollouts of older weights are treated as fresh")
def sampling_logprobs_ignored(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, _q, a: -torch.exp(logp - logp.detach()) * a)


@mutant(SHARED, "the ratio is upside down")
def ratio_inverted(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, q, a: -torch.exp(q - logp) * a)


@mutant(SHARED, "likelihood of good answers is raised whatever the ratio")
def plain_policy_gradient(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, _q, a: -logp * a)


@mutant(SHARED, "an entropy bonus that nobody planned")
def entropy_bonus(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, q, a: -torch.exp(logp - q) * a + 1e-3 * logp)


# --- datums -----------------------------------------------------------------------------------


def change_inputs(
    patch: pytest.MonkeyPatch, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    """Change the loss inputs of every datum on its way to the wire."""
    honest = train._remove_mask

    def removed(datum: tinker.Datum) -> tinker.Datum:
        given = {name: data.to_torch() for name, data in datum.loss_fn_inputs.items()}
        changed = {name: tinker.TensorData.from_torch(data) for name, data in change(given).items()}
        return honest(tinker.Datum(model_input=datum.model_input, loss_fn_inputs=changed))

    patch.setattr(train, "_remove_mask", removed)


@mutant(SHARED, "turns that failed to parse are trained on")
def masked_turns_trained(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(data_processing, "PARSE_ERROR_MASKED_METRIC_KEY", "another key")


@mutant(SHARED, "the prompt is trained on")
def prompt_tokens_trained(patch: pytest.MonkeyPatch) -> None:
    def fill(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        values_T = inputs["advantages"]
        strongest = values_T[values_T.abs().argmax()]
        return inputs | {"advantages": torch.full_like(values_T, float(strongest))}

    change_inputs(patch, fill)


@mutant(SHARED, "every token's credit goes to its neighbour")
def targets_off_by_one(patch: pytest.MonkeyPatch) -> None:
    change_inputs(patch, lambda inputs: inputs | {"target_tokens": inputs["target_tokens"].roll(1)})


@mutant(SHARED, "advantages start one token late")
def advantages_off_by_one(patch: pytest.MonkeyPatch) -> None:
    change_inputs(patch, lambda inputs: inputs | {"advantages": inputs["advantages"].roll(1)})


@mutant(SHARED, "ratios compare neighbouring tokens")
def sampling_logprobs_off_by_one(patch: pytest.MonkeyPatch) -> None:
    change_inputs(patch, lambda inputs: inputs | {"logprobs": inputs["logprobs"].roll(1)})


@mutant(SHARED, "a long answer's credit is spread over its tokens")
def advantages_divided_by_length(patch: pytest.MonkeyPatch) -> None:
    change_inputs(
        patch,
        lambda inputs: inputs | {"advantages": inputs["advantages"] / inputs["mask"].sum().clip(1)},
    )


@mutant(SHARED, "one rollout of each step is never trained on")
def last_datum_dropped(patch: pytest.MonkeyPatch) -> None:
    honest = data_processing.assemble_training_data

    def shorter(*arguments: Any) -> Any:
        data_D, metadata_D = honest(*arguments)
        return (data_D[:-1], metadata_D[:-1]) if len(data_D) > 4 else (data_D, metadata_D)

    patch.setattr(train, "assemble_training_data", shorter)


@mutant(SHARED, "later turns of a rollout are never trained on")
def later_turns_lost(patch: pytest.MonkeyPatch) -> None:
    honest = data_processing.trajectory_to_data

    def first_turn(trajectory: Any, advantage: float) -> list[tinker.Datum]:
        return honest(replace(trajectory, transitions=trajectory.transitions[:1]), advantage)

    patch.setattr(data_processing, "trajectory_to_data", first_turn)


@mutant(SHARED, "rewards of earlier turns are forgotten")
def last_turns_reward_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        TrajectoryGroup,
        "get_total_rewards",
        lambda self: [one.transitions[-1].reward for one in self.trajectories_G],
    )


# --- the gradient -----------------------------------------------------------------------------


def change_gradient(
    patch: pytest.MonkeyPatch, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    honest = parity_wire.flat
    patch.setattr(parity_wire, "flat", lambda gradient: honest(change(dict(gradient))))


@mutant(GRADIENT, "one weight matrix is never trained, and the loss looks right")
def one_tensor_not_trained(patch: pytest.MonkeyPatch) -> None:
    change_gradient(patch, lambda found: found | {"1.v": torch.zeros_like(found["1.v"])})


@mutant(GRADIENT, "the gradient has the right norm and the wrong direction")
def two_tensors_swapped(patch: pytest.MonkeyPatch) -> None:
    change_gradient(patch, lambda found: found | {"0.q": found["0.k"], "0.k": found["0.q"]})


@mutant(GRADIENT, "long gradients are cut to norm 1")
def gradient_clipped(patch: pytest.MonkeyPatch) -> None:
    def clip(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        norm = float(torch.cat([part.reshape(-1) for part in found.values()]).norm())
        return {name: part / max(1.0, norm) for name, part in found.items()}

    change_gradient(patch, clip)


@mutant(GRADIENT, "gradients pass through bfloat16")
def gradient_in_bfloat16(patch: pytest.MonkeyPatch) -> None:
    change_gradient(
        patch, lambda found: {name: part.bfloat16().double() for name, part in found.items()}
    )
