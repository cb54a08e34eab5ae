"""LoRA inside transformers' network against dense weights W + (alpha/rank)·B·A, in float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy_qwen import exact_network, write_toy_model

from harness.local_service import lora
from harness.local_service.base_model import BaseModel, load_base_model
from harness.local_service.lora import LORA_ALPHA, Adapter, AdapterConfig

TOKENS = torch.tensor([[5, 9, 40, 7, 11, 2], [8, 8, 1, 60, 33, 4]])
TOLERANCE = 1e-10


@pytest.fixture
def base(tmp_path: Path) -> BaseModel:
    return load_base_model(write_toy_model(tmp_path), name="toy", dtype_name="float64")


def filled(config: AdapterConfig, shapes: dict[str, tuple[int, int]]) -> Adapter:
    """An adapter with random A and B."""
    adapter = Adapter(config, shapes, torch.float64)
    generator = torch.Generator().manual_seed(3)
    adapter.flat.copy_(
        0.1 * torch.randn(len(adapter.flat), generator=generator, dtype=torch.float64)
    )
    return adapter


def dense_logits(adapter: Adapter) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Logits of a stock network whose weights are W + s·B·A, and those weights."""
    network = exact_network()
    weights = {}
    for name, (a, b) in adapter.pairs.items():
        weight = network.get_submodule(name).weight
        weight.data += LORA_ALPHA / adapter.config.rank * (b.detach() @ a.detach())
        weights[name] = weight
    return network(input_ids=TOKENS, use_cache=False).logits, weights


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"train_attn": False},
        {"train_mlp": False},
        {"train_unembed": False},
        {"train_attn": False, "train_mlp": False},
    ],
)
def test_logits_and_gradients_equal_those_of_the_dense_weights(
    base: BaseModel, flags: dict[str, bool]
) -> None:
    switch, shapes = lora.attach(base.network)
    adapter = filled(AdapterConfig(rank=4, seed=1, **flags), shapes)
    switch.active = adapter
    ours = base.network(input_ids=TOKENS, use_cache=False).logits
    expected, weights = dense_logits(adapter)
    gap = float((ours - expected).detach().abs().max())
    assert gap < TOLERANCE, f"logits differ by {gap}, tolerance {TOLERANCE}"
    ours.square().sum().backward()
    expected.square().sum().backward()
    scale = LORA_ALPHA / 4
    for name, (a, b) in adapter.pairs.items():
        grad = weights[name].grad
        assert grad is not None
        assert a.grad is not None
        assert b.grad is not None
        # Chain rule through W + s·B·A.
        for which, found, wanted in (
            ("A", a.grad, scale * b.detach().T @ grad),
            ("B", b.grad, scale * grad @ a.detach().T),
        ):
            error = float((found - wanted).norm() / wanted.norm())
            assert error < TOLERANCE, f"gradient of {name} {which}: relative error {error}"


def test_gradients_accumulate_into_the_flat_vector(base: BaseModel) -> None:
    switch, shapes = lora.attach(base.network)
    adapter = filled(AdapterConfig(rank=2, seed=1), shapes)
    switch.active = adapter
    for _ in range(2):
        base.network(input_ids=TOKENS, use_cache=False).logits.square().sum().backward()
    twice = adapter.grad.clone()
    adapter.grad.zero_()
    base.network(input_ids=TOKENS, use_cache=False).logits.square().sum().backward()
    assert torch.allclose(twice, 2 * adapter.grad, rtol=1e-12), "two passes must add up"
    assert float(adapter.grad.norm()) > 0, "the flat gradient must receive something"


def test_flags_choose_the_layers(base: BaseModel) -> None:
    _, shapes = lora.attach(base.network)
    chosen = {
        flag: {
            name.rsplit(".", 1)[-1]
            for name in Adapter(
                AdapterConfig(1, 0, **{f: f == flag for f in _FLAGS}), shapes, torch.float64
            ).pairs
        }
        for flag in _FLAGS
    }
    assert chosen == {
        "train_attn": {"q_proj", "k_proj", "v_proj", "o_proj"},
        "train_mlp": {"gate_proj", "up_proj", "down_proj"},
        "train_unembed": {"lm_head"},
    }


_FLAGS = ("train_attn", "train_mlp", "train_unembed")


def test_seed_decides_a_and_b_is_zero(base: BaseModel) -> None:
    _, shapes = lora.attach(base.network)
    made = []
    for seed in (7, 7, 8):
        adapter = Adapter(AdapterConfig(rank=4, seed=seed), shapes, torch.float64)
        lora.initialize(adapter)
        assert all(not b.any() for _, b in adapter.pairs.values()), "B must start at zero"
        made.append(adapter)
    assert torch.equal(made[0].flat, made[1].flat), "the same seed must give the same adapter"
    assert not torch.equal(made[0].flat, made[2].flat), "another seed must give another adapter"
    a = made[0].pairs["lm_head"][0]
    assert float(a.detach().abs().max()) <= 24**-0.5, "A lies within ±1/sqrt(in)"
    assert made[0].sha256() == made[1].sha256() != made[2].sha256()


def test_float32_and_float64_draw_the_same_numbers(base: BaseModel) -> None:
    _, shapes = lora.attach(base.network)
    both = []
    for dtype in (torch.float32, torch.float64):
        adapter = Adapter(AdapterConfig(rank=3, seed=5), shapes, dtype)
        lora.initialize(adapter)
        both.append(adapter.flat)
    assert torch.equal(both[0], both[1].float())


def test_without_an_adapter_the_network_is_the_stock_one(base: BaseModel) -> None:
    switch, _ = lora.attach(base.network)
    switch.active = None
    ours = base.network(input_ids=TOKENS, use_cache=False).logits
    stock = exact_network()(input_ids=TOKENS, use_cache=False).logits
    gap = float((ours - stock).detach().abs().max())
    assert gap < TOLERANCE, f"base logits differ from transformers' by {gap}"
