"""Training through the real SDK: losses, steps, checkpoints, restoration, export."""

from __future__ import annotations

import hashlib
import json
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tinker
import torch
from safetensors.torch import load
from tinker import types
from toy_qwen import MODEL, VOCAB, datum

from harness.local_service.process import EmbeddedService
from harness.sdk_generation import rest_client, training_client

pytestmark = pytest.mark.live

FLOAT32 = 5e-6
"""Tolerance between float32 log-probabilities computed in two ways."""

LARGE = types.AdamParams(learning_rate=1e-2, eps=1e-8)


@pytest.fixture(scope="module")
def sdk(toy_service: EmbeddedService) -> tinker.ServiceClient:
    assert toy_service.running
    return tinker.ServiceClient()


@pytest.fixture
def new_client(sdk: tinker.ServiceClient) -> Callable[..., tinker.TrainingClient]:
    def make(seed: int | None = 1, rank: int = 4, **flags: Any) -> tinker.TrainingClient:
        return training_client(
            sdk.create_lora_training_client(MODEL, rank=rank, seed=seed, **flags)
        )

    return make


def batch(loss_fn: str = "importance_sampling", count: int = 5) -> list[types.Datum]:
    rng = np.random.default_rng(8)
    made = []
    for size in rng.integers(4, 20, count).tolist():
        tokens = rng.integers(4, VOCAB, size + 1).tolist()
        values = rng.normal(size=size).astype(np.float32).tolist()
        if loss_fn == "cross_entropy":
            made.append(datum(tokens, weights=values))
        else:
            logprobs = (-4 + 0.5 * rng.normal(size=size)).astype(np.float32).tolist()
            made.append(datum(tokens, logprobs=logprobs, advantages=values))
    return made


def logprobs(client: tinker.TrainingClient, data: list[types.Datum]) -> list[np.ndarray]:
    """The model's log-probabilities of the batch's targets."""
    scored = [
        datum(
            [*d.model_input.to_ints(), int(d.loss_fn_inputs["target_tokens"].data[-1])],
            weights=[0.0] * d.model_input.length,
        )
        for d in data
    ]
    output = client.forward(scored, "cross_entropy").result()
    return [np.asarray(item["logprobs"].data) for item in output.loss_fn_outputs]


def train(client: tinker.TrainingClient, params: types.AdamParams = LARGE) -> dict[str, float]:
    passed = client.forward_backward(batch(), "importance_sampling")
    stepped = client.optim_step(params)
    passed.result()
    return dict(stepped.result().metrics or {})


def equal(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_capabilities_and_info_say_what_is_served(
    sdk: tinker.ServiceClient, new_client: Callable[..., tinker.TrainingClient]
) -> None:
    model = sdk.get_server_capabilities().supported_models[0]
    assert (model.model_name, model.trainable, model.sampleable) == (MODEL, True, True)
    info = new_client(rank=3).get_info()
    assert (info.model_name, info.is_lora, info.lora_rank) == (MODEL, True, 3)


@pytest.mark.parametrize("loss_fn", ["importance_sampling", "ppo", "cross_entropy"])
def test_loss_sum_is_the_formula_over_the_returned_logprobs(
    new_client: Callable[..., tinker.TrainingClient], loss_fn: str
) -> None:
    client, data = new_client(), batch(loss_fn)
    forward = client.forward(data, loss_fn).result()  # pyright: ignore[reportArgumentType] -- a Literal
    expected = 0.0
    for item, output in zip(data, forward.loss_fn_outputs, strict=True):
        inputs = {k: np.asarray(v.data, np.float64) for k, v in item.loss_fn_inputs.items()}
        logp = np.asarray(output["logprobs"].data, np.float64)
        if loss_fn == "cross_entropy":
            expected -= float((logp * inputs["weights"]).sum())
            continue
        ratio = np.exp(logp - inputs["logprobs"])
        clipped = ratio if loss_fn == "importance_sampling" else np.clip(ratio, 0.8, 1.2)
        a = inputs["advantages"]
        expected -= float(np.minimum(ratio * a, clipped * a).sum())
    found = forward.metrics["loss:sum"]
    assert found == pytest.approx(expected, rel=1e-12), f"loss:sum {found}, formula {expected}"


def test_forward_leaves_no_gradient_and_a_step_uses_and_clears_it(
    new_client: Callable[..., tinker.TrainingClient],
) -> None:
    client = new_client()
    client.forward(batch(), "importance_sampling").result()
    idle = client.optim_step(LARGE).result().metrics or {}
    assert idle["grad_norm"] == 0.0, f"forward accumulated a gradient of {idle['grad_norm']}"
    once = train(new_client())["grad_norm"]
    twice = new_client()
    twice.forward_backward(batch(), "importance_sampling").result()
    assert train(twice)["grad_norm"] == pytest.approx(2 * once, rel=1e-5), "gradients must add up"
    assert (twice.optim_step(LARGE).result().metrics or {})["grad_norm"] == 0.0


def test_order_of_the_datums_does_not_change_the_update(
    new_client: Callable[..., tinker.TrainingClient],
) -> None:
    results = []
    for data in (batch(), batch()[::-1]):
        client = new_client()
        client.forward_backward(data, "importance_sampling").result()
        client.optim_step(LARGE).result()
        results.append(logprobs(client, batch()))
    assert equal(*results), "the same datums in another order gave another update"


def test_seeds_decide_the_adapter(new_client: Callable[..., tinker.TrainingClient]) -> None:
    after = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2), ("d", None), ("e", None)):
        client = new_client(seed=seed)
        train(client)
        after[name] = logprobs(client, batch())
    assert equal(after["a"], after["b"]), "one seed must give one adapter"
    assert not equal(after["a"], after["c"]), "another seed must give another"
    assert not equal(after["d"], after["e"]), "without a seed every adapter is new"


def test_custom_loss_gives_the_built_in_update(
    new_client: Callable[..., tinker.TrainingClient],
) -> None:
    data = batch()

    def custom(
        items: list[types.Datum], logprobs_list: list[torch.Tensor]
    ) -> tuple[torch.Tensor, dict[str, float]]:
        losses = [
            -(
                torch.exp(lp - torch.tensor(d.loss_fn_inputs["logprobs"].data))
                * torch.tensor(d.loss_fn_inputs["advantages"].data)
            ).sum()
            for d, lp in zip(items, logprobs_list, strict=True)
        ]
        return torch.stack(losses).sum(), {}

    built_in, by_custom = new_client(), new_client()
    expected = built_in.forward_backward(data, "importance_sampling").result().metrics["loss:sum"]
    result = by_custom.forward_backward_custom(data, custom).result()
    assert result.metrics["loss:sum"] == pytest.approx(expected, rel=1e-5)
    norms = [
        (c.optim_step(LARGE).result().metrics or {})["grad_norm"] for c in (built_in, by_custom)
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5), f"gradient norms {norms}"
    gap = max(
        float(np.abs(a - b).max())
        for a, b in zip(logprobs(built_in, data), logprobs(by_custom, data), strict=True)
    )
    assert gap < 1e-3, f"after one step the two updates differ by {gap} in log-probability"


def test_restoring_with_the_optimizer_is_exact_and_without_it_differs(
    sdk: tinker.ServiceClient, new_client: Callable[..., tinker.TrainingClient]
) -> None:
    client = new_client()
    train(client)
    train(client)
    path = client.save_state("two-steps").result().path
    warm = training_client(sdk.create_training_client_from_state_with_optimizer(path))
    cold = training_client(sdk.create_training_client_from_state(path))
    saved = logprobs(client, batch())
    assert equal(saved, logprobs(warm, batch()))
    assert equal(saved, logprobs(cold, batch()))
    steps = {
        name: train(c)["optimizer_step"]
        for name, c in (("on", client), ("warm", warm), ("cold", cold))
    }
    assert steps == {"on": 3.0, "warm": 3.0, "cold": 1.0}
    went_on = logprobs(client, batch())
    assert equal(went_on, logprobs(warm, batch())), "restored run must equal the uninterrupted one"
    assert not equal(went_on, logprobs(cold, batch())), "fresh moments must make a difference"


def test_names_are_immutable_and_the_refusal_is_prompt(
    new_client: Callable[..., tinker.TrainingClient],
) -> None:
    client = new_client()
    client.save_state("once").result()
    with pytest.raises(tinker.RequestFailedError, match="immutable") as failed:
        client.save_state("once").result(timeout=20)
    assert failed.value.category.value == "user"
    client.save_state("once", overwrite=True).result()
    train(client)


def test_export_can_be_downloaded_and_is_the_adapter(
    new_client: Callable[..., tinker.TrainingClient],
) -> None:
    client = new_client(rank=2, train_mlp=False)
    train(client)
    path = client.save_weights_external("out").result().path
    listing = rest_client(tinker.ServiceClient()).get_external_weights_urls(path).result()
    assert sorted(listing.urls) == ["adapter_config.json", "adapter_model.safetensors"]
    files = {name: _fetch(url) for name, url in listing.urls.items()}
    config = json.loads(files["adapter_config.json"])
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 32)
    assert config["target_modules"] == ["k_proj", "lm_head", "o_proj", "q_proj", "v_proj"]
    tensors = load(files["adapter_model.safetensors"])
    head = "base_model.model.lm_head"
    assert tensors[f"{head}.lora_A.weight"].shape == (2, 24)
    assert tensors[f"{head}.lora_B.weight"].shape == (VOCAB, 2)
    assert float(tensors[f"{head}.lora_B.weight"].abs().max()) > 0, "a trained B is not zero"
    again = client.save_weights_external("out2").result().path
    urls = rest_client(tinker.ServiceClient()).get_external_weights_urls(again).result().urls
    digests = {
        hashlib.sha256(data).hexdigest()
        for data in (files["adapter_model.safetensors"], _fetch(urls["adapter_model.safetensors"]))
    }
    assert len(digests) == 1, "exporting the same adapter twice must give the same bytes"


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as reply:
        return reply.read()


def test_rest_calls_describe_list_and_delete(
    new_client: Callable[..., tinker.TrainingClient],
) -> None:
    client, rest = new_client(rank=5, train_attn=False), rest_client(tinker.ServiceClient())
    name = f"listed-{uuid.uuid4().hex[:6]}"
    path = client.save_state(name, ttl_seconds=7200, user_metadata={"arm": "x"}).result().path
    run = types.ParsedCheckpointTinkerPath.from_tinker_path(path).training_run_id
    info: Any = rest.get_weights_info_by_tinker_path(path).result()
    assert (info.base_model, info.lora_rank, info.train_attn) == (MODEL, 5, False)
    assert rest.get_training_run(run).result().lora_rank == 5
    listed = rest.list_checkpoints(run).result().checkpoints
    assert [(c.tinker_path, c.checkpoint_type, c.user_metadata) for c in listed] == [
        (path, "training", {"arm": "x"})
    ]
    assert listed[0].expires_at is not None
    rest.set_checkpoint_ttl_from_tinker_path(path, None).result()
    assert rest.list_checkpoints(run).result().checkpoints[0].expires_at is None
    rest.delete_checkpoint_from_tinker_path(path).result()
    assert rest.list_checkpoints(run).result().checkpoints == []
