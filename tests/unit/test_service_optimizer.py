"""The service's AdamW against torch.optim.AdamW, and its clipping against the definition."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.local_service import optimizer
from harness.local_service.optimizer import AdamParams
from harness.local_service.refusals import RefusalError

PLAIN = AdamParams(1e-3, 0.9, 0.95, 1e-8, 0.0, 0.0)


def gradients(steps: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(17)
    return [torch.randn(size, generator=generator).to(dtype) for _ in range(steps)]


def theirs(start: torch.Tensor, grads: list[torch.Tensor], params: AdamParams) -> torch.Tensor:
    parameter = torch.nn.Parameter(start.clone())
    torch_adamw = torch.optim.AdamW(
        [parameter],
        lr=params.learning_rate,
        betas=(params.beta1, params.beta2),
        eps=params.eps,
        weight_decay=params.weight_decay,
        foreach=False,
    )
    for grad in grads:
        parameter.grad = grad.clone()
        torch_adamw.step()
    return parameter.detach()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    lr=st.floats(1e-6, 1e4),
    beta1=st.floats(0, 0.999),
    beta2=st.floats(0, 0.9999),
    eps=st.floats(1e-12, 1e4),
    decay=st.floats(0, 0.5),
)
def test_steps_equal_torch_adamw_bit_for_bit(
    dtype: torch.dtype, lr: float, beta1: float, beta2: float, eps: float, decay: float
) -> None:
    params = AdamParams(lr, beta1, beta2, eps, decay, 0.0)
    start = torch.linspace(-1, 1, 9, dtype=dtype)
    grads = gradients(4, 9, dtype)
    ours = start.clone()
    state = optimizer.fresh_state(ours)
    for grad in grads:
        optimizer.adam_step(ours, grad.clone(), state, params)
    expected = theirs(start, grads, params)
    assert torch.equal(ours, expected), (
        f"parameters after 4 steps differ by {float((ours - expected).abs().max())}, allowed 0"
    )


def test_gradients_above_the_norm_are_scaled_to_it_and_others_left() -> None:
    grad = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert optimizer.clip_gradient(grad, 0.0) == 5.0
    assert grad.tolist() == [3.0, 4.0], "0 must mean no clipping"
    optimizer.clip_gradient(grad, 5.5)
    assert grad.tolist() == [3.0, 4.0], "a gradient inside the norm must be left alone"
    assert optimizer.clip_gradient(grad, 1.0) == 5.0, "the norm before clipping is returned"
    assert grad.tolist() == pytest.approx([0.6, 0.8], abs=1e-15)


def test_a_step_clears_the_gradient_and_reports_what_moved() -> None:
    parameters = torch.zeros(4, dtype=torch.float64)
    grad = torch.tensor([1.0, -2.0, 0.0, 5.0], dtype=torch.float64)
    state = optimizer.fresh_state(parameters)
    metrics = optimizer.optimizer_step(parameters, grad, state, PLAIN)
    assert grad.tolist() == [0.0] * 4, "optim_step must clear the accumulated gradient"
    assert metrics["optimizer_step"] == 1.0
    assert metrics["grad_norm"] == pytest.approx(math.sqrt(30), rel=1e-12)
    # A first Adam step moves each parameter with a gradient by the learning rate.
    assert metrics["update_norm"] == pytest.approx(1e-3 * math.sqrt(3), rel=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": -1.0},
        {"learning_rate": math.inf},
        {"beta1": 1.0},
        {"beta2": -0.1},
        {"eps": 0.0},
        {"weight_decay": -0.5},
        {"grad_clip_norm": math.nan},
    ],
)
def test_undefined_hyperparameters_are_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(RefusalError, match=f"adam_params.{next(iter(wrong))}"):
        optimizer.check_params(replace(PLAIN, **wrong))


@pytest.mark.parametrize(
    ("grad", "params"),
    [
        ([0.0, 0.0], replace(PLAIN, eps=1e-60)),
        ([1e38, 1.0], PLAIN),
        ([float("nan"), 1.0], PLAIN),
        ([float("inf"), 1.0], replace(PLAIN, grad_clip_norm=1.0)),
        ([1.0, 1.0], replace(PLAIN, learning_rate=1e15, weight_decay=1e15)),
    ],
    ids=["0/0", "second moment", "nan gradient", "infinite gradient", "decay"],
)
def test_a_step_out_of_range_is_refused_and_changes_nothing(
    grad: list[float], params: AdamParams
) -> None:
    parameters = torch.tensor([1e9, -1e9])
    state = optimizer.fresh_state(parameters)
    optimizer.optimizer_step(parameters, torch.tensor([0.5, 0.0]), state, PLAIN)
    before = [parameters.clone(), state.first.clone(), state.second.clone()]
    gradient = torch.tensor(grad)
    with pytest.raises(RefusalError, match="leaves the range") as refused:
        optimizer.optimizer_step(parameters, gradient, state, optimizer.check_params(params))
    assert refused.value.status == 400
    after = [parameters, state.first, state.second]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)), f"{before} {after}"
    assert state.step == 1, f"a refused step was counted: {state.step}"
    assert gradient.tolist() == [0.0, 0.0], "the gradient of a refused step is kept"
    optimizer.optimizer_step(parameters, torch.tensor([0.5, 0.25]), state, PLAIN)
    assert state.step == 2


@pytest.mark.parametrize("field", ["learning_rate", "eps", "weight_decay"])
def test_what_float32_cannot_hold_is_refused_by_name(field: str) -> None:
    optimizer.check_params(replace(PLAIN, **{field: optimizer.LARGEST}))
    with pytest.raises(RefusalError, match=field):
        optimizer.check_params(replace(PLAIN, **{field: 1e308}))
