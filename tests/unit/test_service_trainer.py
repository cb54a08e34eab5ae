"""The trainer's gradient against finite differences, and its invariances, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from toy_qwen import VOCAB, exact_network, write_toy_model

from harness.local_service import lora, trainer
from harness.local_service.base_model import load_base_model
from harness.local_service.lora import Adapter, AdapterConfig
from harness.local_service.refusals import RefusalError
from harness.local_service.trainer import Datum, Trainer

PPO = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
CONFIGS = {"importance_sampling": {}, "cross_entropy": {}, "ppo": PPO}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trainer, Adapter]:
    folder = write_toy_model(tmp_path_factory.mktemp("model"), tied=True)
    base = load_base_model(folder, name="toy", dtype_name="float64")
    switch, shapes = lora.attach(base.network)
    adapter = Adapter(AdapterConfig(rank=2, seed=1), shapes, torch.float64)
    generator = torch.Generator().manual_seed(3)
    adapter.flat.copy_(
        0.1 * torch.randn(len(adapter.flat), generator=generator, dtype=torch.float64)
    )
    return Trainer(base, switch), adapter


def data(loss_fn: str, count: int = 6) -> list[Datum]:
    rng = np.random.default_rng(2)
    made = []
    for size in rng.integers(2, 15, count).tolist():
        tokens = rng.integers(0, VOCAB, size + 1)
        values = rng.normal(size=size).astype(np.float32)
        logprobs = rng.normal(-4, 0.5, size).astype(np.float32)
        inputs = (
            {"weights": values}
            if loss_fn == "cross_entropy"
            else {"advantages": values, "logprobs": logprobs}
        )
        made.append(Datum(tokens[:-1].astype(np.int64), tokens[1:].astype(np.int64), inputs))
    return made


def gradient(setup: tuple[Trainer, Adapter], batch: list[Datum], loss_fn: str) -> torch.Tensor:
    runner, adapter = setup
    adapter.grad.zero_()
    runner.run(adapter, batch, loss_fn, CONFIGS[loss_fn], backward=True)
    return adapter.grad.clone()


@pytest.mark.parametrize("loss_fn", CONFIGS)
def test_gradient_equals_finite_differences(setup: tuple[Trainer, Adapter], loss_fn: str) -> None:
    runner, adapter = setup
    batch = data(loss_fn)
    grad = gradient(setup, batch, loss_fn)
    generator = torch.Generator().manual_seed(12)
    for _ in range(4):
        direction = torch.randn(len(adapter.flat), generator=generator, dtype=torch.float64)
        h = 1e-6
        values = []
        for sign in (1, -1):
            adapter.flat.add_(direction, alpha=sign * h)
            result = runner.run(adapter, batch, loss_fn, CONFIGS[loss_fn], backward=False)
            values.append(result.metrics["loss:sum"])
            adapter.flat.sub_(direction, alpha=sign * h)
        slope = (values[0] - values[1]) / (2 * h)
        found = float(grad @ direction)
        assert found == pytest.approx(slope, rel=1e-5, abs=1e-6), (
            f"{loss_fn}: directional derivative {found}, finite difference {slope}"
        )


def test_micro_batches_and_padding_change_nothing(
    setup: tuple[Trainer, Adapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = data("importance_sampling", count=9)
    whole = gradient(setup, batch, "importance_sampling")
    monkeypatch.setattr(trainer, "TOKENS_PER_MICRO_BATCH", 1)
    single = gradient(setup, batch, "importance_sampling")
    error = float((whole - single).norm() / whole.norm())
    assert error < 1e-12, f"padded and unpadded gradients differ by {error} relatively"


def test_any_order_gives_the_same_bits(setup: tuple[Trainer, Adapter]) -> None:
    runner, adapter = setup
    batch = data("importance_sampling", count=9)
    shuffled = [batch[i] for i in (4, 8, 0, 3, 7, 1, 5, 2, 6)]
    grads, losses = [], []
    for order in (batch, shuffled):
        adapter.grad.zero_()
        result = runner.run(adapter, order, "importance_sampling", {}, backward=True)
        grads.append(adapter.grad.clone())
        losses.append(result.metrics["loss:sum"])
    assert torch.equal(*grads), "the gradient depends on the order of the datums"
    assert losses[0] == losses[1]


def test_logprobs_come_back_in_request_order(setup: tuple[Trainer, Adapter]) -> None:
    runner, _ = setup
    bare = Adapter(AdapterConfig(rank=1, seed=0), setup[1].shapes, torch.float64)
    batch = data("cross_entropy", count=7)
    found = runner.run(bare, batch, "cross_entropy", {}, backward=False).logprobs
    network = exact_network(tied=True)
    for i, (datum, ours) in enumerate(zip(batch, found, strict=True)):
        with torch.no_grad():
            logits = network(
                input_ids=torch.from_numpy(datum.tokens)[None], use_cache=False
            ).logits[0]
        table = logits.log_softmax(-1)
        wanted = table.gather(1, torch.from_numpy(datum.targets)[:, None])[:, 0].float().numpy()
        gap = float(np.abs(ours - wanted).max())
        assert gap < 1e-6, f"datum {i}: log-probability gap {gap}"


def test_an_overflowing_loss_is_refused_and_leaves_the_gradient(
    setup: tuple[Trainer, Adapter], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, adapter = setup
    monkeypatch.setattr(trainer, "TOKENS_PER_MICRO_BATCH", 1)
    before = gradient(setup, data("importance_sampling"), "importance_sampling")
    batch = data("importance_sampling", count=3)
    longest = max(batch, key=lambda item: len(item.tokens))
    longest.inputs["logprobs"][0] = -5000.0
    with pytest.raises(RefusalError, match=rf"data\[{batch.index(longest)}\]"):
        runner.run(adapter, batch, "importance_sampling", {}, backward=True)
    assert torch.equal(adapter.grad, before), "a refused pass has changed the gradient"
