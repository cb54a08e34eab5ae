"""The bytes of a checkpoint: safetensors files of adapter, optimizer and PEFT export.

Restoring is exact: the flat parameter vector, both Adam moments and the step count come back bit
for bit. The external form follows Hugging Face PEFT (``adapter_model.safetensors`` with
``…lora_A.weight`` (rank, in) and ``…lora_B.weight`` (out, rank), ``adapter_config.json``), in the
service's own dtype.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from harness.local_service.base_model import BaseModel
from harness.local_service.checkpoints import write_json
from harness.local_service.lora import LORA_ALPHA, Adapter, AdapterConfig, flat_sha256
from harness.local_service.optimizer import AdamState
from harness.local_service.refusals import RefusalError

ADAPTER_FILE = "adapter.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"


def describe(base: BaseModel, adapter: Adapter, state: AdamState | None) -> dict[str, Any]:
    """Return the metadata that a load needs and checks."""
    return {
        "base_model": base.name,
        "base_model_sha256": base.sha256,
        "dtype": base.dtype_name,
        "lora": adapter.config.as_json(),
        "adapter_sha256": adapter.sha256(),
        "optimizer_config": {"type": "adamw"},
        "optimizer_step": state.step if state else None,
    }


def write_adapter(folder: Path, adapter: Adapter) -> None:
    """Write the flat parameter vector."""
    save_file({"flat": adapter.flat.clone()}, folder / ADAPTER_FILE)


def write_optimizer(folder: Path, state: AdamState) -> None:
    """Write moments and step count."""
    step = torch.tensor([state.step], dtype=torch.int64)
    tensors = {"first": state.first.clone(), "second": state.second.clone(), "step": step}
    save_file(tensors, folder / OPTIMIZER_FILE)


def read_flat(folder: Path, metadata: dict[str, Any], base: BaseModel) -> torch.Tensor:
    """Read a saved adapter's parameters and check them against their recorded digest.

    Raises:
        RefusalError: if it belongs to another base model or dtype, or its bytes changed.
    """
    for field, ours in (("base_model_sha256", base.sha256), ("dtype", base.dtype_name)):
        if metadata[field] != ours:
            raise RefusalError(
                f"the checkpoint was made with another {field}",
                expected=ours,
                found=str(metadata[field]),
                fix="start the service with that model and dtype",
            )
    flat = _load(folder / ADAPTER_FILE)["flat"]
    if flat_sha256(saved_config(metadata), flat) != metadata["adapter_sha256"]:
        raise RefusalError(
            "the checkpoint's bytes are not those that were saved", where=ADAPTER_FILE
        )
    return flat


def saved_config(metadata: dict[str, Any]) -> AdapterConfig:
    """Return the adapter configuration recorded in a checkpoint."""
    fields = {key: value for key, value in metadata["lora"].items() if key != "alpha"}
    return AdapterConfig(**fields)


def restore_adapter(adapter: Adapter, flat: torch.Tensor) -> None:
    """Put saved parameters into an adapter of the same shape."""
    adapter.flat.copy_(flat)
    adapter.grad.zero_()


def restore_optimizer(state: AdamState, folder: Path) -> None:
    """Put saved moments and step count into an optimizer state of the same shape."""
    tensors = _load(folder / OPTIMIZER_FILE)
    state.first.copy_(tensors["first"])
    state.second.copy_(tensors["second"])
    state.step = int(tensors["step"][0])


def _load(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise RefusalError(
            "a checkpoint file cannot be read", found=str(error)[:200], where=path.name
        ) from error


def write_external(folder: Path, adapter: Adapter, base: BaseModel) -> None:
    """Write the adapter as PEFT files."""
    tensors: dict[str, torch.Tensor] = {}
    for name, (a, b) in adapter.pairs.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = a.detach().clone()
        tensors[f"base_model.model.{name}.lora_B.weight"] = b.detach().clone()
    save_file(tensors, folder / "adapter_model.safetensors")
    write_json(folder / "adapter_config.json", _peft_config(adapter, base))


def _peft_config(adapter: Adapter, base: BaseModel) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base.name,
        "r": adapter.config.rank,
        "lora_alpha": LORA_ALPHA,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": sorted({name.rsplit(".", 1)[-1] for name in adapter.pairs}),
    }
