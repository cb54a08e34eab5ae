"""A Llama base model from a GGUF file, dequantised by transformers and served in full precision.

The four-bit weights become float32 (or float64) numbers once, at the start; adapters, gradients and
samples are then as exact as with any other base. The digest is the GGUF file's own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from harness.digest import sha256_file
from harness.errors import ServiceError
from harness.local_service.base_model import DTYPES, BaseModel, eos_ids, freeze

SUFFIX = ".gguf"

CONTEXT_TOKENS = 1024
"""Longest prompt and answer together. SmolLM2 knows 8192, but its keys and values of 256 rows of
that length would take 190 GB in float64; at this length they take 24 GB at worst."""

THREADS = 2
"""Fixed, whatever the machine has: the order of a sum, and so its last bits, depends on it."""

_PLAIN_LAYOUT: dict[str, tuple[Any, ...]] = {
    "model_type": ("llama",),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "hidden_act": ("silu",),
}


def load_gguf_model(path: Path, *, name: str, dtype_name: str) -> BaseModel:
    """Load and freeze the model in a GGUF file.

    Raises:
        ServiceError: if the file is missing or cannot be read, its architecture is not the plain
            Llama layout, or the dtype is not offered.
    """
    if dtype_name not in DTYPES:
        raise ServiceError(
            "the dtype is not offered", expected="float32 or float64", found=dtype_name
        )
    network = _network(path)
    _check_layout(network.config, path)
    return BaseModel(
        name=name,
        folder=path,
        sha256=sha256_file(path),
        dtype_name=dtype_name,
        network=freeze(network.to(DTYPES[dtype_name])),
        context_length=min(CONTEXT_TOKENS, int(network.config.max_position_embeddings)),
        vocab_size=int(network.config.vocab_size),
        eos_ids=eos_ids(network.config.eos_token_id),
        threads=THREADS,
    )


def _network(path: Path) -> Any:
    # Weights come from this file only; without this transformers may try the network.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_pretrained(
            path.parent,
            gguf_file=path.name,
            dtype=torch.float32,
            attn_implementation="sdpa",
            local_files_only=True,
        )
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise ServiceError(
            "the base model's GGUF file cannot be loaded",
            expected="a GGUF file of a Llama model, and the packages gguf and accelerate",
            found=str(error)[:400],
            where=path.name,
            fix="run make smollm",
        ) from error


def _check_layout(config: Any, path: Path) -> None:
    for key, allowed in _PLAIN_LAYOUT.items():
        found = getattr(config, key, allowed[0])
        if found not in allowed:
            raise ServiceError(
                f"the base model's {key} is not supported",
                expected=" or ".join(map(repr, allowed)),
                found=repr(found),
                where=path.name,
            )
    rope = dict(config.rope_parameters or {}).get("rope_type", "default")
    if rope != "default":
        raise ServiceError(
            "the base model's rotary embedding is not supported",
            expected="default",
            found=repr(rope),
            where=path.name,
        )
