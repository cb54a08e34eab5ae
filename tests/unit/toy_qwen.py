"""A tiny random Qwen3 model and one embedded service that all service tests of a session share.

The model is made here, so that these tests do not depend on the shipped one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
import torch
from safetensors.torch import save_file
from tinker import types
from torch.nn import functional

from harness.local_service.process import EmbeddedService, start_service

VOCAB = 61
EOS = 3
CONTEXT = 96
MODEL = "toy/qwen3"

CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False,
    "eos_token_id": EOS,
}


def plain_network(config: dict[str, Any], seed: int = 5) -> Any:
    """Return transformers' own network with seeded float32 weights, large enough to matter."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    network = Qwen3ForCausalLM(Qwen3Config(**config))
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data = 0.3 * noise if parameter.ndim == 2 else 1.0 + 0.1 * noise
    return network.eval()


def exact_network(*, tied: bool = False) -> Any:
    """The same network in float64 throughout: torch's rms_norm replaces the float32 norms."""
    network = plain_network(CONFIG | {"tie_word_embeddings": tied}).double()
    for module in network.modules():
        if type(module).__name__ == "Qwen3RMSNorm":
            module.forward = partial(
                functional.rms_norm,
                normalized_shape=module.weight.shape,
                weight=module.weight,
                eps=module.variance_epsilon,
            )
    return network


def write_toy_model(folder: Path, *, tied: bool = False) -> Path:
    """Write a Hugging Face folder: config, weights and a word-level tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIG | {"tie_word_embeddings": tied}
    weights = plain_network(config).state_dict()
    if tied:
        weights.pop("lm_head.weight")
    save_file(
        {name: tensor.clone() for name, tensor in weights.items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps(config))
    words = {f"w{i}": i for i in range(VOCAB)}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@dataclass
class Wire:
    """Plain HTTP to the service, without the SDK."""

    base_url: str
    key: str

    def post(self, path: str, body: Any, **headers: str) -> requests.Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        merged = {"X-API-Key": self.key, "Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return requests.post(
            f"{self.base_url}/api/v1/{path}", data=data, headers=merged, timeout=60
        )

    def get(self, path: str) -> requests.Response:
        headers = {"X-API-Key": self.key}
        return requests.get(f"{self.base_url}/api/v1/{path}", headers=headers, timeout=60)

    def result(self, reply: requests.Response) -> Any:
        """Fetch an accepted request's JSON result."""
        assert reply.status_code == 200, reply.text
        body = {"request_id": reply.json()["request_id"]}
        return self.post("retrieve_future", body).json()


def datum(tokens: list[int], **inputs: list[float]) -> types.Datum:
    """A datum that predicts each next token, with the loss's own inputs."""
    loss_inputs: dict[str, Any] = {"target_tokens": tokens[1:], **inputs}
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=loss_inputs
    )


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy_model(tmp_path_factory.mktemp("toy-model"))


@pytest.fixture(scope="session")
def toy_service(
    toy_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedService]:
    """A float32 service; the SDK's variables point at it while it runs."""
    data_dir = tmp_path_factory.mktemp("toy-service")
    with start_service(data_dir, model_dir=toy_model, base_model=MODEL, seed=11) as service:
        before = dict(os.environ)
        os.environ.update(service.environment())
        try:
            yield service
        finally:
            os.environ.clear()
            os.environ.update(before)


@pytest.fixture
def wire(toy_service: EmbeddedService) -> Wire:
    return Wire(toy_service.base_url, toy_service.api_key)
