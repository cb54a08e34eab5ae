"""The frozen base model: a Hugging Face folder with a Qwen3 architecture, checked before use.

One base serves every adapter. Its digest (SHA-256 of the weights file) is written into every
checkpoint, so that an adapter is never loaded onto other weights.

Only the plain Qwen3 layout is taken (no attention bias, no sliding window, default rotary
embedding, SiLU): `decoder.py` writes the same network out by hand for sampling and would
otherwise disagree in silence.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from harness.digest import parse_json, sha256_file
from harness.errors import ServiceError

DEFAULT_NAME = "embedded/gradeschool"
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class BaseModel:
    """A loaded base model and the facts the service reports about it.

    ``network`` is transformers' ``Qwen3ForCausalLM``, or ``LlamaForCausalLM`` of a GGUF file, with
    every parameter frozen; ``folder`` is then that file. ``context_length`` is in tokens;
    ``eos_ids`` are the implicit stop tokens; ``threads`` is how many torch computes with.
    """

    name: str
    folder: Path
    sha256: str
    dtype_name: str
    network: Any
    context_length: int
    vocab_size: int
    eos_ids: frozenset[int]
    threads: int = 1

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, of every adapter and of training."""
        return DTYPES[self.dtype_name]


class ExactRMSNorm(nn.Module):
    """RMS normalisation in the dtype of its input.

    The transformers module computes in float32 whatever the input, which would make a float64
    service only as exact as float32. In float32 both give the same bits.
    """

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
        self.eps = eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension of ``hidden`` (any leading shape)."""
        variance = hidden.pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden * torch.rsqrt(variance + self.eps))


def load_base_model(folder: Path, *, name: str, dtype_name: str) -> BaseModel:
    """Load and freeze the model in ``folder``.

    Raises:
        ServiceError: if a file is missing or corrupt, the architecture is not the plain Qwen3
            layout, the weights do not fit the config, or the dtype is not offered.
    """
    if dtype_name not in DTYPES:
        raise ServiceError(
            "the dtype is not offered", expected="float32 or float64", found=dtype_name
        )
    config = _read_config(folder)
    network = _build(config, folder / "model.safetensors", DTYPES[dtype_name])
    return BaseModel(
        name=name,
        folder=folder,
        sha256=sha256_file(folder / "model.safetensors"),
        dtype_name=dtype_name,
        network=network,
        context_length=int(config["max_position_embeddings"]),
        vocab_size=int(config["vocab_size"]),
        eos_ids=eos_ids(config.get("eos_token_id")),
    )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    for needed in (path, folder / "model.safetensors"):
        if not needed.is_file():
            raise ServiceError(
                "the base model's folder is incomplete",
                expected="config.json and model.safetensors",
                found=f"no {needed.name}",
                where=str(folder),
                fix="run `make local-model`, or give --model-dir a Hugging Face model folder",
            )
    config = parse_json(path.read_bytes(), where=str(path))
    for key, allowed in _PLAIN_LAYOUT.items():
        if config.get(key, allowed[0]) not in allowed:
            raise ServiceError(
                f"the base model's {key} is not supported",
                expected=" or ".join(map(repr, allowed)),
                found=repr(config.get(key)),
                where=str(path),
            )
    return config


_PLAIN_LAYOUT: dict[str, tuple[Any, ...]] = {
    "model_type": ("qwen3",),
    "attention_bias": (False,),
    "use_sliding_window": (False,),
    "hidden_act": ("silu",),
    "rope_scaling": (None,),
}


def _build(config: dict[str, Any], weights_path: Path, dtype: torch.dtype) -> nn.Module:
    # Weights come from this folder only; without this transformers may try the network.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import Qwen3Config, Qwen3ForCausalLM

    qwen = Qwen3Config(**{**config, "attn_implementation": "sdpa"})
    network = Qwen3ForCausalLM(qwen).to(dtype)  # pyright: ignore[reportArgumentType] -- stub of nn.Module.to
    _load_weights(network, weights_path, dtype, tied=bool(qwen.tie_word_embeddings))
    return freeze(network)


def freeze(network: nn.Module) -> nn.Module:
    """Return the network ready to be adapted: no gradients, exact norms, evaluation mode."""
    network.requires_grad_(requires_grad=False)
    _use_exact_norms(network)
    return network.eval()


def _load_weights(network: nn.Module, path: Path, dtype: torch.dtype, *, tied: bool) -> None:
    try:
        tensors = {key: value.to(dtype) for key, value in load_file(path).items()}
        if tied:
            tensors.setdefault("lm_head.weight", tensors["model.embed_tokens.weight"])
        network.load_state_dict(tensors)
    except (SafetensorError, RuntimeError, KeyError) as error:
        raise ServiceError(
            "the base model's weights cannot be loaded",
            expected="a safetensors file that fits config.json",
            found=str(error)[:400],
            where=str(path),
            fix="restore the file (compare its sha256) or run `make local-model`",
        ) from error
    if not all(bool(value.isfinite().all()) for value in tensors.values()):
        raise ServiceError("the base model's weights are not finite", where=str(path))


def _use_exact_norms(network: nn.Module) -> None:
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ in ("Qwen3RMSNorm", "LlamaRMSNorm"):
                exact = ExactRMSNorm(child.weight, float(child.variance_epsilon))  # pyright: ignore[reportArgumentType] -- nn.Module attributes are untyped
                setattr(module, name, exact)


def eos_ids(value: Any) -> frozenset[int]:
    """Return a configuration's end-of-sequence ids, which may be one, several or none."""
    if value is None:
        return frozenset()
    return frozenset(int(token) for token in (value if isinstance(value, list) else [value]))
