"""The extra ``smollm``: its model against transformers, its tokenizer, one step of training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.local_service import decoder, draw, lora
from harness.local_service.base_model import BaseModel
from harness.local_service.gguf_model import load_gguf_model
from harness.local_service.gguf_tokenizer import load_smollm_tokenizer
from harness.local_service.lora import Adapter, AdapterConfig
from harness.local_service.sampler import Row, SamplingBatch, StopRule
from harness.local_service.smollm import SMOLLM, smollm_installed, smollm_path
from harness.sdk_generation import training_client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not smollm_installed(), reason="needs an extra. Run: make smollm"),
]

LOGPROB_TOLERANCE = 2e-4
"""Float64 sampling against transformers in float32: 30 layers of rounding."""
TEXTS = (
    "<|im_start|>user\nWhat is 23 + 145? Write \\boxed{7}.<|im_end|>\n<|im_start|>assistant\n",
    "Crème brûlée costs 1,299 roubles;\n\n  it isn't cheap.",
)


@pytest.fixture(scope="module")
def base() -> BaseModel:
    return load_gguf_model(smollm_path(), name=SMOLLM, dtype_name="float32")


def stock_network() -> Any:
    """transformers' own model, none of ours: it reads the file again."""
    from transformers import AutoModelForCausalLM

    path = smollm_path()
    network = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, local_files_only=True
    )
    return network.eval()


def prompts() -> list[list[int]]:
    tokenizer = load_smollm_tokenizer()
    return [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]


def sampled(weights: decoder.DecoderWeights, prompts_P: list[list[int]]) -> list[Row]:
    """Two greedy rows of the first prompt (prefilled once) and one drawn row of each other."""
    rows = [
        Row(
            prompt=prompt,
            max_tokens=6,
            params=draw.DrawParams(temperature, -1, 1.0),
            stop=StopRule(frozenset()),
            stream=draw.UniformStream(draw.seeded_key(3, k)),
            want_prompt=True,
        )
        for k, (prompt, temperature) in enumerate(
            [(prompts_P[0], 0.0), (prompts_P[0], 0.0), *((p, 1.0) for p in prompts_P[1:])]
        )
    ]
    batch = SamplingBatch(weights)
    batch.waiting.extend(rows)
    with torch.inference_mode():
        while batch.busy:
            batch.advance()
    return rows


def test_sampled_logprobs_equal_those_of_the_stock_network(base: BaseModel) -> None:
    _, shapes = lora.attach(base.network)
    adapter = Adapter(AdapterConfig(rank=4, seed=2), shapes, torch.float32)
    generator = torch.Generator().manual_seed(4)
    adapter.flat.copy_(0.02 * torch.randn(len(adapter.flat), generator=generator))
    network = stock_network()
    # The unembedding shares the embedding's tensor, and only the unembedding is adapted.
    network.lm_head.weight = torch.nn.Parameter(network.lm_head.weight.detach().clone())
    for name, (a, b) in adapter.pairs.items():
        weight = network.get_submodule(name).weight
        weight.data += adapter.config.scale * (b.detach() @ a.detach())
    assert len(adapter.pairs) == 30 * 7 + 1, f"{len(adapter.pairs)} adapted layers, not 211"
    rows = sampled(decoder.merge(base, adapter.config, adapter.pairs), prompts())
    assert rows[0].tokens == rows[1].tokens, "two greedy rows of one prompt differ"
    for row in rows:
        tokens = row.prompt + row.tokens
        with torch.no_grad():
            logits = network(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
        stock = logits[:-1].log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
        assert row.prompt_logprobs is not None
        ours = torch.cat([row.prompt_logprobs[1:], torch.tensor(row.logprobs)])
        gap = float((ours - stock).abs().max())
        assert gap <= LOGPROB_TOLERANCE, (
            f"log-probabilities differ by {gap:.2e}, allowed {LOGPROB_TOLERANCE:.0e}"
        )


def test_the_tokenizer_is_the_one_transformers_reads_from_the_file() -> None:
    from transformers import AutoTokenizer

    path = smollm_path()
    stock = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    ours = load_smollm_tokenizer()
    for text in TEXTS:
        ids = ours.encode(text, add_special_tokens=False)
        assert ids == stock.encode(text, add_special_tokens=False), f"other tokens for {text!r}"
        assert ours.decode(ids) == text, f"{text!r} came back as {ours.decode(ids)!r}"
    assert ours.encode("<|im_end|>", add_special_tokens=False) == [2]


def test_one_step_through_the_sdk_lowers_the_loss(tmp_path: Path) -> None:
    import tinker

    from harness.local_service.process import start_service

    prompt, tokenizer = prompts()[0], load_smollm_tokenizer()
    answer = tokenizer.encode("\\boxed{168}<|im_end|>", add_special_tokens=False)
    tokens = prompt + answer
    weights = [0.0] * (len(prompt) - 1) + [1.0] * len(answer)
    datum = tinker.Datum(
        model_input=tinker.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights},  # pyright: ignore[reportArgumentType]
    )
    with (
        start_service(
            tmp_path, model_dir=smollm_path(), base_model=SMOLLM, timeout_s=600
        ) as service,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in service.environment().items():
            patch.setenv(name, value)
        client = training_client(
            tinker.ServiceClient().create_lora_training_client(SMOLLM, rank=8, seed=0)
        )
        losses: list[float] = []
        for _ in range(2):
            done = client.forward_backward([datum], "cross_entropy").result()
            losses.append(done.metrics["loss:sum"])
            client.optim_step(tinker.AdamParams(learning_rate=1e-3)).result()
    assert all(map(math.isfinite, losses)), f"losses {losses}"
    assert losses[1] < losses[0] - 1.0, f"loss {losses[0]:.3f} before and {losses[1]:.3f} after"
