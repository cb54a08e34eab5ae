"""The hand-written sampler against transformers' network with the same (dense) weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from toy_qwen import VOCAB, exact_network, write_toy_model

from harness.local_service import decoder, draw, lora
from harness.local_service.base_model import load_base_model
from harness.local_service.lora import LORA_ALPHA, Adapter, AdapterConfig
from harness.local_service.sampler import Row, SamplingBatch, StopRule

TOLERANCE = 1e-10
RANK = 4
NO_STOP = StopRule(frozenset())


@pytest.fixture(scope="module")
def weights_and_network(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[decoder.DecoderWeights, torch.nn.Module]:
    """The service's merged weights, and a stock network with W + s·B·A put in by hand."""
    folder = write_toy_model(tmp_path_factory.mktemp("model"))
    base = load_base_model(folder, name="toy", dtype_name="float64")
    _, shapes = lora.attach(base.network)
    adapter = Adapter(AdapterConfig(rank=RANK, seed=2), shapes, torch.float64)
    generator = torch.Generator().manual_seed(4)
    adapter.flat.copy_(
        0.1 * torch.randn(len(adapter.flat), generator=generator, dtype=torch.float64)
    )
    network = exact_network()
    for name, (a, b) in adapter.pairs.items():
        module = network.get_submodule(name)
        module.weight.data += LORA_ALPHA / RANK * (b.detach() @ a.detach())
    return decoder.merge(base, adapter.config, adapter.pairs), network


def prompts(count: int, seed: int = 6) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 20, (count,), generator=generator).tolist()
    return [torch.randint(0, VOCAB, (n,), generator=generator).tolist() for n in sizes]


def row(prompt: list[int], k: int, temperature: float = 1.0, **more: Any) -> Row:
    stream = draw.UniformStream(draw.seeded_key(9, k))
    settings: dict[str, Any] = {"max_tokens": 12, "stop": NO_STOP, **more}
    return Row(
        prompt=prompt, params=draw.DrawParams(temperature, -1, 1.0), stream=stream, **settings
    )


def sampled(weights: decoder.DecoderWeights, rows: list[Row], arrive_together: bool = True) -> None:
    batch = SamplingBatch(weights)
    batch.waiting.extend(rows if arrive_together else rows[:1])
    late = [] if arrive_together else rows[1:]
    with torch.inference_mode():
        while batch.busy or late:
            if late:
                batch.waiting.append(late.pop(0))
            batch.advance()


def stock_logprobs(network: torch.nn.Module, tokens: list[int]) -> torch.Tensor:
    """log p(next token) at every position of one unpadded sequence, by transformers."""
    with torch.no_grad():
        logits = network(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    return logits[:-1].log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]


def test_sampled_logprobs_equal_the_stock_networks(
    weights_and_network: tuple[decoder.DecoderWeights, torch.nn.Module],
) -> None:
    weights, network = weights_and_network
    rows = [row(prompt, k, want_prompt=True) for k, prompt in enumerate(prompts(9))]
    sampled(weights, rows)
    for one in rows:
        expected = stock_logprobs(network, one.prompt + one.tokens)
        assert one.prompt_logprobs is not None
        found = one.prompt_logprobs[1:].tolist() + one.logprobs
        gap = max(abs(a - b) for a, b in zip(found, expected.tolist(), strict=True))
        assert gap < TOLERANCE, f"log-probability gap {gap}, tolerance {TOLERANCE}, {one.prompt}"


def test_greedy_is_the_argmax_of_the_stock_network(
    weights_and_network: tuple[decoder.DecoderWeights, torch.nn.Module],
) -> None:
    weights, network = weights_and_network
    rows = [row(prompt, k, temperature=0.0) for k, prompt in enumerate(prompts(5))]
    sampled(weights, rows)
    for one in rows:
        tokens = list(one.prompt)
        for step in range(12):
            with torch.no_grad():
                logits = network(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
            tokens.append(int(logits.argmax()))
            assert one.tokens[step] == tokens[-1], f"greedy token {step} of prompt {one.prompt}"


def test_a_row_does_not_depend_on_its_neighbours_or_its_arrival(
    weights_and_network: tuple[decoder.DecoderWeights, torch.nn.Module],
) -> None:
    weights, _ = weights_and_network
    alone, together, staggered = (
        [row(prompt, k, max_tokens=2 + k % 11) for k, prompt in enumerate(prompts(20))]
        for _ in range(3)
    )
    for one in alone:
        sampled(weights, [one])
    sampled(weights, together)
    sampled(weights, staggered, arrive_together=False)
    for a, b, c in zip(alone, together, staggered, strict=True):
        assert a.tokens == b.tokens == c.tokens
        exact = torch.tensor(a.logprobs).float()
        for other in (b, c):
            assert torch.equal(exact, torch.tensor(other.logprobs).float()), (
                "log-probabilities must be equal to the last bit that the wire carries"
            )


def test_stop_ids_end_a_sequence_and_are_kept(
    weights_and_network: tuple[decoder.DecoderWeights, torch.nn.Module],
) -> None:
    weights, _ = weights_and_network
    prompt = [5, 6, 7]
    free = row(prompt, 0)
    sampled(weights, [free])
    stop = free.tokens[4]
    first = free.tokens.index(stop)
    stopped = row(prompt, 0, stop=StopRule(frozenset({stop})))
    sampled(weights, [stopped])
    assert stopped.tokens == free.tokens[: first + 1], "the stop token belongs to the result"
    assert stopped.stopped
    assert not free.stopped
    assert len(free.tokens) == 12


def test_stop_strings_are_looked_for_in_the_text(
    weights_and_network: tuple[decoder.DecoderWeights, torch.nn.Module],
) -> None:
    weights, _ = weights_and_network

    def decode(ids: list[int]) -> str:
        return " ".join(f"w{i}" for i in ids)

    free = row([5, 6, 7], 0)
    sampled(weights, [free])
    needle = decode(free.tokens[2:4])
    stopped = row([5, 6, 7], 0, stop=StopRule(frozenset(), (needle,), decode))
    sampled(weights, [stopped])
    assert needle in decode(stopped.tokens)
    assert needle not in decode(stopped.tokens[:-1]), "it must end with the first occurrence"
    assert stopped.stopped
