"""Sampling through the real SDK: agreement with the trainer, seeds, stops, prompt scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tinker
import torch
from tinker import types
from toy_qwen import CONFIG, CONTEXT, EOS, MODEL, VOCAB, datum, plain_network

from harness.local_service.process import EmbeddedService
from harness.sdk_generation import sampling_client, training_client

pytestmark = pytest.mark.live

FLOAT32 = 2e-5
"""Tolerance between a float32 trainer and the float64 sampler, in log-probability."""

PROMPT = [5, 9, 13, 40, 22]


@pytest.fixture(scope="module")
def sdk(toy_service: EmbeddedService) -> tinker.ServiceClient:
    assert toy_service.running
    return tinker.ServiceClient()


@pytest.fixture(scope="module")
def base(sdk: tinker.ServiceClient) -> tinker.SamplingClient:
    return sampling_client(sdk.create_sampling_client(base_model=MODEL))


def sample(
    client: tinker.SamplingClient, prompt: list[int] = PROMPT, count: int = 1, **params: Any
) -> types.SampleResponse:
    settings: dict[str, Any] = {"max_tokens": 10, "stop": [], **params}
    return client.sample(
        types.ModelInput.from_ints(prompt),
        count,
        types.SamplingParams(**settings),
    ).result()


def tokens(response: types.SampleResponse) -> list[list[int]]:
    return [list(sequence.tokens) for sequence in response.sequences]


def test_trainer_and_sampler_agree_before_and_after_a_step(sdk: tinker.ServiceClient) -> None:
    client = training_client(sdk.create_lora_training_client(MODEL, rank=4, seed=3))
    for step in range(2):
        sampler = sampling_client(client.save_weights_and_get_sampling_client())
        sequence = sample(sampler, seed=step).sequences[0]
        whole = PROMPT + list(sequence.tokens)
        item = datum(whole, weights=[1.0] * (len(whole) - 1))
        scored = client.forward([item], "cross_entropy").result().loss_fn_outputs[0]["logprobs"]
        gap = np.abs(np.asarray(scored.data)[-10:] - np.asarray(sequence.logprobs)).max()
        assert gap < FLOAT32, f"sampler–trainer gap {gap} at step {step}, tolerance {FLOAT32}"
        client.forward_backward([item], "cross_entropy").result()
        client.optim_step(types.AdamParams(learning_rate=0.02)).result()


def test_a_snapshot_keeps_its_weights_while_training_goes_on(sdk: tinker.ServiceClient) -> None:
    client = training_client(sdk.create_lora_training_client(MODEL, rank=4, seed=3))
    item = datum([*PROMPT, 7], weights=[5.0] * len(PROMPT))
    frozen = []
    for _ in range(2):
        scored = client.forward([item], "cross_entropy").result().loss_fn_outputs[0]["logprobs"]
        frozen.append((sampling_client(client.save_weights_and_get_sampling_client()), scored.data))
        client.forward_backward([item], "cross_entropy").result()
        client.optim_step(types.AdamParams(learning_rate=0.05)).result()
    moved = np.abs(np.asarray(frozen[0][1]) - np.asarray(frozen[1][1])).max()
    assert moved > 0.1, f"the step moved log-probabilities by {moved}: test has no force"
    for k, (sampler, trained) in enumerate(frozen):
        found = sampler.compute_logprobs(types.ModelInput.from_ints([*PROMPT, 7])).result()[1:]
        gap = np.abs(np.asarray(found, dtype=np.float64) - np.asarray(trained)).max()
        assert gap < FLOAT32, f"snapshot {k} is {gap} away from the weights it was taken of"


def test_a_saved_sampler_samples_like_the_ephemeral_one(sdk: tinker.ServiceClient) -> None:
    client = training_client(sdk.create_lora_training_client(MODEL, rank=4, seed=3))
    path = client.save_weights_for_sampler("named").result().path
    named = sampling_client(sdk.create_sampling_client(model_path=path))
    ephemeral = sampling_client(client.save_weights_and_get_sampling_client())
    pair = [sample(one, seed=4).sequences[0] for one in (named, ephemeral)]
    assert pair[0].tokens == pair[1].tokens
    assert pair[0].logprobs == pair[1].logprobs


def test_greedy_is_the_argmax_of_transformers_own_network(base: tinker.SamplingClient) -> None:
    network = plain_network(CONFIG)
    found = tokens(sample(base, temperature=0.0))[0]
    sequence = list(PROMPT)
    for step, token in enumerate(found):
        with torch.no_grad():
            logits = network(input_ids=torch.tensor([sequence]), use_cache=False).logits[0, -1]
        assert token == int(logits.argmax()), f"greedy token {step}"
        sequence.append(token)
    assert found == tokens(sample(base, temperature=0.0, top_k=3))[0]


def test_a_seed_repeats_its_draws_and_only_its_own(base: tinker.SamplingClient) -> None:
    first, second = (tokens(sample(base, count=4, seed=21)) for _ in range(2))
    assert first == second, "the same seed must draw the same tokens"
    assert len({tuple(one) for one in first}) == 4, "samples of one request must differ"
    assert tokens(sample(base, count=1, seed=21))[0] == first[0]
    assert tokens(sample(base, count=4, seed=22)) != first


def test_unseeded_requests_differ_yet_a_new_sampler_repeats_them(
    sdk: tinker.ServiceClient,
) -> None:
    def history(order: list[int]) -> dict[int, list[list[list[int]]]]:
        client = sampling_client(sdk.create_sampling_client(base_model=MODEL))
        found: dict[int, list[list[list[int]]]] = {}
        for start in order:
            found.setdefault(start, []).append(tokens(sample(client, [start, 9])))
        return found

    first = history([5, 5, 6, 5])
    assert len({str(one) for one in first[5]}) == 3, "a repeated request must draw anew"
    assert history([6, 5, 5, 5]) == first, "the order of different requests must not matter"


def test_many_concurrent_requests_equal_the_same_ones_alone(base: tinker.SamplingClient) -> None:
    prompts = [[4 + i % 50, 7, 4 + i % 11] for i in range(40)]
    pending = [
        base.sample(
            types.ModelInput.from_ints(prompt),
            1,
            types.SamplingParams(max_tokens=10, seed=i, stop=[]),
        )
        for i, prompt in enumerate(prompts)
    ]
    together = [one.result().sequences[0] for one in pending]
    for i in range(0, 40, 8):
        alone = sample(base, prompts[i], seed=i).sequences[0]
        assert alone.tokens == together[i].tokens
        assert alone.logprobs == together[i].logprobs, "batching changed a log-probability"


def test_stops_by_default_by_id_by_string_and_not_at_all(base: tinker.SamplingClient) -> None:
    free = sample(base, seed=2).sequences[0]
    assert (len(free.tokens), free.stop_reason) == (10, "length")
    third = free.tokens[2]
    cut = free.tokens[: free.tokens.index(third) + 1]
    by_id = sample(base, seed=2, stop=[third]).sequences[0]
    assert (list(by_id.tokens), by_id.stop_reason) == (cut, "stop")
    by_text = sample(base, seed=2, stop=f"w{third} ").sequences[0]
    assert by_text.stop_reason == "stop"
    assert third in by_text.tokens
    ended = [
        sample(base, [5, i], seed=i, stop=None, max_tokens=60).sequences[0] for i in range(4, 24)
    ]
    for one in ended:
        assert (EOS in one.tokens) == (one.stop_reason == "stop")
        assert EOS not in one.tokens[:-1], "sampling went on after the end token"
    assert any(one.stop_reason == "stop" for one in ended), "no sequence ended: test has no force"


def test_prompt_logprobs_are_the_networks(base: tinker.SamplingClient) -> None:
    whole = [*PROMPT, 8, 33, 2]
    found = base.compute_logprobs(types.ModelInput.from_ints(whole)).result()
    with torch.no_grad():
        logits = plain_network(CONFIG)(input_ids=torch.tensor([whole]), use_cache=False).logits[0]
    table = logits.log_softmax(-1)
    assert found[0] is None
    for i, token in enumerate(whole[1:], start=1):
        assert found[i] == pytest.approx(float(table[i - 1, token]), abs=FLOAT32), f"position {i}"
    top = (
        base.sample(
            types.ModelInput.from_ints(whole),
            1,
            types.SamplingParams(max_tokens=1),
            include_prompt_logprobs=True,
            topk_prompt_logprobs=3,
        )
        .result()
        .topk_prompt_logprobs
    )
    assert top is not None
    for i in range(1, len(whole)):
        row = top[i]
        assert row is not None
        assert [token for token, _ in row] == table[i - 1].topk(3).indices.tolist()


@pytest.mark.parametrize(
    ("prompt", "params"),
    [
        ([5] * CONTEXT, {"max_tokens": 1}),
        ([5], {"max_tokens": CONTEXT}),
        ([VOCAB], {}),
        ([], {}),
        ([5], {"temperature": -1.0}),
        ([5], {"top_p": 0.0}),
        ([5], {"top_k": 0}),
        ([5], {"stop": [""]}),
    ],
)
def test_impossible_requests_are_refused_at_once(
    base: tinker.SamplingClient, prompt: list[int], params: dict[str, Any]
) -> None:
    with pytest.raises(tinker.BadRequestError):
        sample(base, prompt, **params)


def test_the_context_can_be_filled_to_the_last_token(base: tinker.SamplingClient) -> None:
    sequence = sample(base, [5] * (CONTEXT - 10), seed=1, max_tokens=10).sequences[0]
    assert len(sequence.tokens) == 10
    open_ended = sample(base, [5, 6], seed=1, max_tokens=None).sequences[0]
    assert len(open_ended.tokens) == CONTEXT - 2
