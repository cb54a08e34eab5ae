"""What each training request does, on the engine's thread.

One function a request kind, each called through this module, each taking the model it works on.
A model's adapter and optimizer state live here from creation or load until its session ends.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.local_service import adapter_files, decoder, lora, optimizer
from harness.local_service.base_model import BaseModel
from harness.local_service.checkpoints import CheckpointRef, CheckpointStore, expiry, parse_uri
from harness.local_service.decoder import DecoderWeights
from harness.local_service.lora import Adapter, AdapterConfig
from harness.local_service.optimizer import AdamParams, AdamState
from harness.local_service.refusals import RefusalError
from harness.local_service.requests import Lora
from harness.local_service.trainer import PassResult, Trainer
from harness.local_service.wire import PassRequest


@dataclass(frozen=True)
class TrainingState:
    """One model's adapter and its optimizer."""

    adapter: Adapter
    adam: AdamState


@dataclass(frozen=True)
class Snapshot:
    """Weights frozen for sampling: the base alone, or with a copy of an adapter's parameters."""

    sha256: str
    config: AdapterConfig | None = None
    flat: torch.Tensor | None = None


class TrainingHost:
    """The shared network and the disk, as the functions below need them."""

    def __init__(self, base: BaseModel, store: CheckpointStore) -> None:
        self.base = base
        self.store = store
        self.switch, self.shapes = lora.attach(base.network)
        self.trainer = Trainer(base, self.switch)

    def blank(self, config: AdapterConfig) -> TrainingState:
        """Return an adapter of zeros with a fresh optimizer."""
        adapter = Adapter(config, self.shapes, self.base.dtype)
        return TrainingState(adapter, optimizer.fresh_state(adapter.flat))


def adapter_config(request: Lora) -> AdapterConfig:
    """Return the configuration of a new adapter; a seed that was not given is drawn now."""
    seed = secrets.randbelow(2**31) if request.seed is None else request.seed
    config = AdapterConfig(
        rank=request.rank,
        seed=seed,
        train_attn=request.train_attn,
        train_mlp=request.train_mlp,
        train_unembed=request.train_unembed,
    )
    if not (config.train_attn or config.train_mlp or config.train_unembed):
        raise RefusalError(
            "the adapter would have no parameters",
            expected="at least one of train_attn, train_mlp, train_unembed",
            where="lora_config",
        )
    return config


def create(host: TrainingHost, config: AdapterConfig) -> TrainingState:
    """Return a new adapter, seeded, with a fresh optimizer."""
    state = host.blank(config)
    lora.initialize(state.adapter)
    return state


def run_pass(host: TrainingHost, state: TrainingState, request: PassRequest) -> PassResult:
    """Run forward, or forward and backward (which accumulates into the adapter's gradient)."""
    return host.trainer.run(
        state.adapter,
        request.data,
        request.loss_fn,
        request.config,
        backward=not request.forward_only,
    )


def optim_step(state: TrainingState, params: AdamParams) -> dict[str, float]:
    """Step the optimizer with the accumulated gradient and clear it."""
    return optimizer.optimizer_step(state.adapter.flat, state.adapter.grad, state.adam, params)


def snapshot(state: TrainingState) -> Snapshot:
    """Freeze a copy of the adapter for sampling."""
    adapter = state.adapter
    return Snapshot(adapter.sha256(), adapter.config, adapter.flat.clone())


def merge_snapshot(host: TrainingHost, frozen: Snapshot) -> DecoderWeights:
    """Return a snapshot's merged float64 weights."""
    if frozen.config is None or frozen.flat is None:
        return decoder.merge(host.base, None, {})
    adapter = Adapter(frozen.config, host.shapes, host.base.dtype)
    adapter_files.restore_adapter(adapter, frozen.flat)
    return decoder.merge(host.base, frozen.config, adapter.pairs)


def save(
    host: TrainingHost,
    state: TrainingState,
    ref: CheckpointRef,
    labels: dict[str, Any],
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a checkpoint of the kind that ``ref`` names; return the response's fields."""
    with_optimizer = ref.kind == "weights"
    metadata = adapter_files.describe(
        host.base, state.adapter, state.adam if with_optimizer else None
    )

    def write_files(folder: Path) -> None:
        if ref.kind == "external_weights":
            adapter_files.write_external(folder, state.adapter, host.base)
            return
        adapter_files.write_adapter(folder, state.adapter)
        if with_optimizer:
            adapter_files.write_optimizer(folder, state.adam)

    metadata |= {"user_metadata": labels.get("user_metadata")} | expiry(labels.get("ttl_seconds"))
    host.store.save(ref, metadata, write_files, overwrite=overwrite)
    return {"path": ref.uri, "type": f"save_{_TYPES[ref.kind]}"}


_TYPES = {
    "weights": "weights",
    "sampler_weights": "weights_for_sampler",
    "external_weights": "weights_external",
}


def load(host: TrainingHost, uri: str, *, with_optimizer: bool) -> TrainingState:
    """Return the state saved in a ``weights`` checkpoint.

    With the optimizer, moments and step count are those that were saved; without, the optimizer
    is fresh. The accumulated gradient is empty either way.

    Raises:
        RefusalError: if it is missing, damaged, or of another kind, base model or dtype.
    """
    ref = parse_uri(uri)
    if ref.kind != "weights":
        raise RefusalError(
            "only a training checkpoint can be loaded",
            expected="tinker://<run id>/weights/<name>",
            found=uri[:300],
            where="path",
        )
    metadata, folder = host.store.metadata(ref), host.store.path(ref)
    state = host.blank(adapter_files.saved_config(metadata))
    adapter_files.restore_adapter(
        state.adapter, adapter_files.read_flat(folder, metadata, host.base)
    )
    if with_optimizer:
        adapter_files.restore_optimizer(state.adam, folder)
    return state


def load_snapshot(host: TrainingHost, uri: str) -> Snapshot:
    """Return the weights of a ``sampler_weights`` (or ``weights``) checkpoint for sampling."""
    ref = parse_uri(uri)
    if ref.kind == "external_weights":
        raise RefusalError(
            "external weights cannot be sampled from", found=uri[:300], where="model_path"
        )
    metadata = host.store.metadata(ref)
    flat = adapter_files.read_flat(host.store.path(ref), metadata, host.base)
    return Snapshot(metadata["adapter_sha256"], adapter_files.saved_config(metadata), flat)


def load_into(
    host: TrainingHost, state: TrainingState, uri: str, *, with_optimizer: bool
) -> TrainingState:
    """Return the state to put in place of a model's own, which must not have been used yet.

    Raises:
        RefusalError: if the model has accumulated a gradient or taken a step, if the checkpoint's
            adapter has another shape, or as in `load`.
    """
    if state.adam.step > 0 or bool(state.adapter.grad.any()):
        raise RefusalError(
            "weights can be loaded into a model only before its first training request",
            found=f"{state.adam.step} optimizer steps taken",
            fix="create a new training client from the checkpoint",
        )
    loaded = load(host, uri, with_optimizer=with_optimizer)
    if (
        loaded.adapter.shapes != state.adapter.shapes
        or loaded.adapter.config.rank != state.adapter.config.rank
    ):
        raise RefusalError(
            "the checkpoint's adapter has another shape than the model's",
            expected=str(state.adapter.config.as_json()),
            found=str(loaded.adapter.config.as_json()),
        )
    return loaded
