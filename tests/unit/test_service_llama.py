"""A Llama base: the sampler without query and key norms, shared prompts, and memory kept idle."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from harness.errors import ServiceError
from harness.local_service import decoder, draw, lora
from harness.local_service.base_model import BaseModel, freeze
from harness.local_service.engine import IDLE_BATCHES_KEPT, IDLE_BYTES_KEPT, Engine
from harness.local_service.gguf_model import load_gguf_model
from harness.local_service.lora import Adapter, AdapterConfig
from harness.local_service.sampler import Row, SamplingBatch, StopRule

VOCAB = 50
TOLERANCE = 1e-6
"""transformers normalises and rotates in float32 whatever the dtype."""


def tiny_network() -> Any:
    """Grouped queries (4 over 2) and tied embeddings, as SmolLM2 has."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
    }
    return LlamaForCausalLM(LlamaConfig(**shape)).double().eval()


def merged() -> tuple[decoder.DecoderWeights, Any]:
    """The sampler's weights, and a stock network with W + s·B·A put in by hand."""
    base = BaseModel(
        "toy", Path(), "0" * 64, "float64", freeze(tiny_network()), 64, VOCAB, frozenset()
    )
    _, shapes = lora.attach(base.network)
    adapter = Adapter(AdapterConfig(rank=2, seed=2), shapes, torch.float64)
    adapter.flat.copy_(0.1 * torch.randn(len(adapter.flat), dtype=torch.float64))
    network = tiny_network()
    network.lm_head.weight = torch.nn.Parameter(network.lm_head.weight.detach().clone())
    for name, (a, b) in adapter.pairs.items():
        network.get_submodule(name).weight.data += adapter.config.scale * (b.detach() @ a.detach())
    return decoder.merge(base, adapter.config, adapter.pairs), network


def row(prompt: list[int], k: int) -> Row:
    return Row(
        prompt=prompt,
        max_tokens=8,
        params=draw.DrawParams(1.0, -1, 1.0),
        stop=StopRule(frozenset()),
        stream=draw.UniformStream(draw.seeded_key(k, 0)),
    )


def sampled(weights: decoder.DecoderWeights, rows: list[Row]) -> list[Row]:
    batch = SamplingBatch(weights)
    batch.waiting.extend(rows)
    with torch.inference_mode():
        while batch.busy:
            batch.advance()
    return rows


def test_sampling_follows_the_stock_llama() -> None:
    weights, network = merged()
    for one in sampled(weights, [row([3, 1, 4, 1, 5], 0), row([9, 2], 1)]):
        tokens = one.prompt + one.tokens
        with torch.no_grad():
            logits = network(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
        stock = logits[:-1].log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
        gap = float((torch.tensor(one.logprobs) - stock[len(one.prompt) - 1 :]).abs().max())
        assert gap <= TOLERANCE, f"log-probabilities differ by {gap:.2e}, allowed {TOLERANCE:.0e}"


def test_rollouts_of_one_prompt_are_what_each_would_be_alone() -> None:
    weights, _ = merged()
    asked = [([7, 7, 1], 0), ([2], 1), ([7, 7, 1], 2), ([2], 3), ([7, 7, 1], 4)]
    together = sampled(weights, [row(prompt, k) for prompt, k in asked])
    for one, (prompt, k) in zip(together, asked, strict=True):
        (alone,) = sampled(weights, [row(prompt, k)])
        assert one.tokens == alone.tokens, f"row {k}: {one.tokens}, alone {alone.tokens}"
        assert one.logprobs == pytest.approx(alone.logprobs, abs=1e-12)


@pytest.mark.parametrize(
    ("bytes_each", "kept"), [(1, IDLE_BATCHES_KEPT), (IDLE_BYTES_KEPT // 2, 2), (10**12, 1)]
)
def test_idle_weights_stay_within_their_memory(bytes_each: int, kept: int) -> None:
    engine = Engine()
    for name in "abcdefg":
        idle: Any = SimpleNamespace(busy=False, weights=SimpleNamespace(bytes=bytes_each))
        engine._batches[name] = idle
    engine._drop_idle()
    assert list(engine._batches) == list("abcdefg")[-kept:], "the newest are kept"


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not a model")
    with pytest.raises(ServiceError, match=r"GGUF file cannot be loaded.*make smollm"):
        load_gguf_model(path, name="toy", dtype_name="float32")
