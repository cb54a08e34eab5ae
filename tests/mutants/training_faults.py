"""Faults of training: restoring, optimizer, loss and gradient, adapter and base model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.local_service import base_model, decoder, losses, model_routes, optimizer, training
from tests.mutants.fault_registry import fault


@fault("optimizer_restored", "a resumed arm starts Adam again")
def optimizer_not_restored() -> None:
    training.adapter_files.restore_optimizer = lambda _state, _folder: None


@fault("optimizer_restored", "a resumed arm's bias correction starts again")
def step_count_not_restored() -> None:
    honest = training.adapter_files.restore_optimizer

    def forget(state: optimizer.AdamState, folder: Path) -> None:
        honest(state, folder)
        state.step = 0

    training.adapter_files.restore_optimizer = forget


@fault("optimizer_restored", "an arm starts with the moments of whoever saved its checkpoint")
def cold_load_is_warm() -> None:
    honest = training.load
    training.load = lambda host, uri, *, with_optimizer: honest(
        host, uri, with_optimizer=with_optimizer or True
    )


@fault("optimizer_restored", "a restored arm goes on from rounded weights")
def weights_restored_rounded() -> None:
    def restore(adapter: Any, flat: torch.Tensor) -> None:
        adapter.flat.copy_(flat.to(torch.bfloat16).to(flat.dtype))
        adapter.grad.zero_()

    training.adapter_files.restore_adapter = restore


@fault("service_model", "a recorded initialization seed does not reproduce its adapter")
def lora_seed_ignored() -> None:
    honest = training.lora.draw_a
    training.lora.draw_a = lambda _seed, name, shape: honest(
        int.from_bytes(os.urandom(4), "big"), name, shape
    )


@fault("initial_identity", "each arm starts from an adapter of its own: the pair is not paired")
def load_perturbs_weights() -> None:
    honest = training.load

    def load(host: training.TrainingHost, uri: str, *, with_optimizer: bool) -> Any:
        state = honest(host, uri, with_optimizer=with_optimizer)
        state.adapter.flat.add_(1e-6 * torch.randn_like(state.adapter.flat))
        return state

    training.load = load


@fault("initial_identity", "seed 1 is seed 0: a second seed is no second sample")
def every_seed_is_zero() -> None:
    honest = training.lora.draw_a
    training.lora.draw_a = lambda _seed, name, shape: honest(0, name, shape)


@fault("service_model", "another capacity is trained than the one that was planned")
def rank_ignored() -> None:
    honest = training.adapter_config
    training.adapter_config = lambda asked: replace(honest(asked), rank=8)


@fault("service_model", "the base model's score belongs to another model than the arms'")
def base_sampler_is_another_model() -> None:
    honest = decoder.merge

    def merge(base: Any, config: Any, pairs: Any) -> decoder.DecoderWeights:
        weights = honest(base, config, pairs)
        return weights if config else replace(weights, head=weights.head * 1.05)

    decoder.merge = merge


@fault("service_model", "the arms train another model than the one that was planned")
def another_model_served() -> None:
    honest = base_model.load_base_model

    def load(*arguments: Any, **options: Any) -> base_model.BaseModel:
        base = honest(*arguments, **options)
        base.network.model.norm.weight.mul_(1.1)
        return replace(base, sha256="0" * 64)

    base_model.load_base_model = load


@fault("service_model", "another model answers under the service's address")
def another_name_served() -> None:
    honest = base_model.load_base_model

    def load(*arguments: Any, **options: Any) -> base_model.BaseModel:
        return replace(honest(*arguments, **options), name="embedded/another")

    base_model.load_base_model = load


@fault("service_model", "the record names another model than the one that was asked for")
def another_model_reported() -> None:
    honest = model_routes.json_answer

    def rename(document: dict[str, Any], status: int = 200) -> Any:
        return honest({**document, "model_name": "embedded/another"}, status)

    model_routes.json_answer = rename


@fault("optimizer_rule", "steps are those of another optimizer than the planned one")
def adam_betas_ignored() -> None:
    _adam_with(beta1=0.9, beta2=0.999)


@fault("optimizer_rule", "the second moment forgets at another rate than planned")
def adam_beta2_ignored() -> None:
    _adam_with(beta2=0.95)


@fault("optimizer_rule", "small gradients are stepped on as if they were large")
def adam_eps_ignored() -> None:
    _adam_with(eps=1e-12)


@fault("optimizer_rule", "adapters shrink at every step")
def weight_decay_added() -> None:
    _adam_with(weight_decay=0.1)


def _adam_with(**fixed: float) -> None:
    honest = optimizer.adam_step
    optimizer.adam_step = lambda values, grad, state, params: honest(
        values, grad, state, replace(params, **fixed)
    )


@fault("service_loss_parity", "the gradient shrinks with the length of the batch")
def loss_is_a_mean() -> None:
    honest = losses.token_losses
    losses.token_losses = lambda name, logprobs_T, inputs, config: (
        honest(name, logprobs_T, inputs, config) / len(logprobs_T)
    )


@fault("service_loss_parity", "the importance ratio is clipped: PPO under another name")
def importance_ratio_clipped() -> None:
    clip = losses.PPO_DEFAULTS

    def clipped(logprobs_T: torch.Tensor, inputs: losses.Inputs, _: losses.Config) -> torch.Tensor:
        return losses.ppo(logprobs_T, inputs, clip)

    found = losses.LOSSES["importance_sampling"]
    losses.LOSSES["importance_sampling"] = replace(found, formula=clipped)


@fault("service_loss_parity", "sampling log-probabilities are dropped: no correction for lag")
def importance_ratio_is_one() -> None:
    def plain(logprobs_T: torch.Tensor, inputs: losses.Inputs, _: losses.Config) -> torch.Tensor:
        return -(logprobs_T * inputs["advantages"])

    found = losses.LOSSES["importance_sampling"]
    losses.LOSSES["importance_sampling"] = replace(found, formula=plain)


@fault("service_gradient_parity", "the reported loss is right and its gradient has the wrong sign")
def gradient_sign_flipped() -> None:
    honest = optimizer.optimizer_step
    optimizer.optimizer_step = lambda values, grad, state, params: honest(
        values, grad.neg_(), state, params
    )


@fault("service_gradient_parity", "every step repeats the gradients of all steps before")
def gradient_not_cleared() -> None:
    honest = optimizer.optimizer_step

    def keep(values: Any, grad: torch.Tensor, state: Any, params: Any) -> dict[str, float]:
        kept = grad.clone()
        metrics = honest(values, grad, state, params)
        grad.copy_(kept)
        return metrics

    optimizer.optimizer_step = keep


@fault("service_gradient_parity", "scoring a batch trains on it")
def forward_accumulates() -> None:
    honest = training.run_pass
    training.run_pass = lambda host, state, request: honest(
        host, state, replace(request, forward_only=False)
    )


@fault("lr_scaling", "the learning rate that acts is not the one that is planned")
def learning_rate_capped() -> None:
    honest = optimizer.adam_step
    optimizer.adam_step = lambda values, grad, state, params: honest(
        values, grad, state, replace(params, learning_rate=min(params.learning_rate, 5e-4))
    )
