"""The embedded service's sampling and evaluation, against a bare batched KV-cache loop.

The bare loop runs the same float64 network on the same prompts in this process: no server, no
requests, no seeds, no log-probabilities, no grading. Shape suffixes as in the sampler: ``_R`` rows,
``_S`` prompt positions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any

import tinker
import torch

from benchmarks import ROOT
from benchmarks.measure import in_turns, peak_bytes, timed
from benchmarks.rows import Row
from harness.arm_dataset import fewshot_prefix, prompt_for, renderer_for
from harness.evaluate import evaluator_object, score
from harness.local_service import decoder, lora
from harness.local_service.base_model import load_base_model
from harness.local_service.decoder import DecoderWeights
from harness.local_service.kv_cache import KvCache
from harness.local_service.process import EmbeddedService
from harness.plan import PlannedRun
from harness.problems import load_problems
from harness.service import register_model_tokenizer
from harness.service_access import MODEL_DIR
from harness.spec import load_spec

SPEC = load_spec(ROOT / "specs" / "local.json")
CONCURRENT, TOKENS = 64, 64
MIB = 2**20


@cache
def bare_weights() -> DecoderWeights:
    """Return the base model's float64 weights."""
    base = load_base_model(MODEL_DIR, name=SPEC.spec.base_model, dtype_name="float32")
    lora.attach(base.network)
    return decoder.merge(base, None, {})


@cache
def prompts() -> tuple[list[int], ...]:
    """Return the tokens of every test prompt."""
    register_model_tokenizer(SPEC.spec)
    renderer, prefix = renderer_for(SPEC.spec), fewshot_prefix(SPEC.spec)
    problems = load_problems(SPEC.spec, "test", None).problems
    return tuple(prompt_for(problem, renderer, prefix).to_ints() for problem in problems)


def decode(prompts_R: Sequence[list[int]], most: int, stops: Sequence[int]) -> int:
    """Decode one batch greedily until every row has stopped; return the tokens that count.

    A row that has stopped stays in the batch: a bare loop does not move rows about.
    """
    weights = bare_weights()
    with torch.inference_mode():
        longest = max(map(len, prompts_R))
        tokens_RS = torch.zeros(len(prompts_R), longest, dtype=torch.long)
        for row, prompt in enumerate(prompts_R):
            tokens_RS[row, : len(prompt)] = torch.tensor(prompt)
        position_R = torch.tensor([len(prompt) for prompt in prompts_R])
        hidden, filled = decoder.prefill(weights, tokens_RS)
        kv = KvCache(len(weights.layers), weights.kv_heads, weights.head_size)
        kv.reserve(len(prompts_R), longest + most)
        kv.put(0, filled)
        last = hidden[torch.arange(len(prompts_R)), position_R - 1]
        tokens_R = decoder.logits(weights, last).argmax(-1)
        ending = torch.tensor(list(stops), dtype=torch.long)
        open_R = torch.ones(len(prompts_R), dtype=torch.bool)
        counted = 0
        for _ in range(most):
            counted += int(open_R.sum())
            open_R &= ~torch.isin(tokens_R, ending)
            if not open_R.any():
                break
            tokens_R = decoder.decode_step(weights, kv, tokens_R, position_R).argmax(-1)
            position_R = position_R + 1
    return counted


def sampling(service: EmbeddedService, quick: bool) -> Row:
    """Measure 64 concurrent requests of 64 tokens each, which no stop token ends."""
    with tinker.ServiceClient(base_url=service.base_url, api_key=service.api_key) as client:
        sampler = client.create_sampling_client(base_model=service.base_model).result()
        asked = prompts()[:CONCURRENT]
        unused = max(max(prompt) for prompt in prompts()) + 1
        parameters = tinker.SamplingParams(max_tokens=TOKENS, temperature=0.0, stop=[unused])
        tokens = 0

        async def ask() -> None:
            nonlocal tokens
            answers = await asyncio.gather(
                *(
                    sampler.sample_async(
                        prompt=tinker.ModelInput.from_ints(prompt),
                        num_samples=1,
                        sampling_params=parameters,
                    )
                    for prompt in asked
                )
            )
            tokens = sum(len(answer.sequences[0].tokens) for answer in answers)

        bare_tokens = decode(asked, TOKENS, [])
        pairs = in_turns(
            lambda: asyncio.run(ask()), lambda: decode(asked, TOKENS, []), 5 if quick else 9
        )
    wall = pairs.facts()["wall_s"]
    share = (tokens / wall["ours"]) / (bare_tokens / wall["bare"])
    facts: dict[str, Any] = pairs.facts() | {
        "tokens_ours": tokens,
        "tokens_bare": bare_tokens,
        "tokens_per_s_ours": tokens / wall["ours"],
        "tokens_per_s_bare": bare_tokens / wall["bare"],
    }
    return Row(
        f"embedded sampling, {CONCURRENT} concurrent requests",
        "tokens/s of a bare batched KV-cache loop, same weights and batch (wall time)",
        share,
        "x",
        least=0.85,
        why="the client's encoding, HTTP and polling of 64 requests share the two cores",
        facts=facts,
    )


def evaluation(service: EmbeddedService, run: PlannedRun, quick: bool) -> list[Row]:
    """Measure the evaluation of all test items on the base model."""
    with tinker.ServiceClient(base_url=service.base_url, api_key=service.api_key) as client:
        sampler = client.create_sampling_client(base_model=service.base_model).result()
        # First: it makes the model's tokenizer known, which the evaluator needs.
        asked = prompts()[: len(run.test_problems())]
        evaluator = evaluator_object(run.spec, run.test_problems())
        decoding = evaluator["decoding"]

        def ours() -> list[dict[str, Any]]:
            return asyncio.run(score(sampler, run, evaluator, {"arm": "base"}, {}, lambda _: None))

        def bare(size: int) -> None:
            for first in range(0, len(asked), size):
                decode(asked[first : first + size], decoding["max_tokens"], decoding["stop"])

        by_size = {size: timed(lambda size=size: bare(size)).wall_s for size in (64, 128, 256, 512)}
        best = min(by_size, key=lambda size: by_size[size])
        pairs = in_turns(ours, lambda: bare(best), 2 if quick else 5)
    facts: dict[str, Any] = pairs.facts() | {
        "bare_s_by_batch": by_size,
        "best_batch": best,
        "items": len(asked),
    }
    name = f"evaluation of {len(asked)} items"
    return [
        Row(
            name,
            f"the bare decode loop on the same items, best batch {best} (wall time)",
            facts["wall_s"]["ratio"],
            "x",
            most=1.25,
            why="the SDK needs more processor time for an item's two requests than the service for"
            " decoding it; rendering and grading are a twentieth of the client's time",
            facts=facts,
        ),
        Row(f"{name}: client's memory", "–", peak_bytes(ours) / MIB, "MiB"),
    ]
