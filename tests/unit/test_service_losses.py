"""The built-in losses against the public formulas, written out one token at a time."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.local_service import losses
from harness.local_service.refusals import RefusalError

TOLERANCE = 1e-12

tokens = st.lists(
    st.tuples(st.floats(-12, 0), st.floats(-12, 0), st.floats(-3, 3)), min_size=1, max_size=12
)


def by_hand(name: str, logp: float, logq: float, a: float, low: float, high: float) -> float:
    ratio = math.exp(logp - logq)
    if name == "importance_sampling":
        return -ratio * a
    if name == "ppo":
        return -min(ratio * a, min(max(ratio, low), high) * a)
    return -logp * a


def tensors(rows: list[tuple[float, float, float]]) -> list[torch.Tensor]:
    return [torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("name", ["importance_sampling", "ppo", "cross_entropy"])
@settings(derandomize=True, deadline=None, max_examples=60)
@given(rows=tokens, low=st.floats(0, 1), high=st.floats(1, 3))
def test_every_token_loss_is_the_public_formula(
    name: str, rows: list[tuple[float, float, float]], low: float, high: float
) -> None:
    logp, logq, a = tensors(rows)
    given_inputs = (
        {"weights": a} if name == "cross_entropy" else {"logprobs": logq, "advantages": a}
    )
    config = {"clip_low_threshold": low, "clip_high_threshold": high} if name == "ppo" else {}
    found = losses.token_losses(name, logp, given_inputs, config).tolist()
    expected = [by_hand(name, *row, low, high) for row in rows]
    for t, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert math.isclose(ours, theirs, rel_tol=TOLERANCE, abs_tol=TOLERANCE), (
            f"{name} loss of token {t}: {ours!r}, formula {theirs!r}, tolerance {TOLERANCE}"
        )


def test_gradient_of_importance_sampling_is_minus_ratio_times_advantage() -> None:
    logp = torch.tensor([-1.0, -2.5, -0.25], dtype=torch.float64, requires_grad=True)
    inputs = {
        "logprobs": torch.tensor([-1.5, -2.5, -3.0], dtype=torch.float64),
        "advantages": torch.tensor([2.0, -1.0, 0.0], dtype=torch.float64),
    }
    losses.token_losses("importance_sampling", logp, inputs, {}).sum().backward()
    assert logp.grad is not None
    expected = [-2.0 * math.exp(0.5), 1.0, 0.0]
    assert torch.allclose(logp.grad, torch.tensor(expected, dtype=torch.float64), atol=TOLERANCE), (
        f"d loss / d logp: {logp.grad.tolist()}, -A·ratio: {expected}, tolerance {TOLERANCE}"
    )


def test_ppo_passes_no_gradient_where_the_clip_binds() -> None:
    logp = torch.tensor([0.0, 0.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    ratios = torch.tensor([1.5, 1.5, 0.5, 0.5], dtype=torch.float64)
    inputs = {
        "logprobs": -torch.log(ratios),
        "advantages": torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64),
    }
    config = losses.loss_config("ppo", {})
    losses.token_losses("ppo", logp, inputs, config).sum().backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == pytest.approx([0.0, 1.5, -0.5, 0.0], abs=TOLERANCE), (
        "gradient must vanish above 1.2 for A > 0 and below 0.8 for A < 0, and only there"
    )


def test_ppo_thresholds_default_to_the_public_ones() -> None:
    assert losses.loss_config("ppo", {}) == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("importance_sampling", {"clip_low_threshold": 0.8}),
        ("cross_entropy", {"temperature": 1.0}),
        ("ppo", {"epsilon": 0.2}),
        ("ppo", {"clip_low_threshold": 1.3}),
        ("ppo", {"clip_low_threshold": -0.1}),
        ("ppo", {"clip_high_threshold": math.inf}),
        ("ppo", {"clip_high_threshold": math.nan}),
        ("stable_reinforce", {}),
        ("", {}),
    ],
)
def test_an_unknown_loss_or_option_is_refused(name: str, config: dict[str, float]) -> None:
    with pytest.raises(RefusalError) as refused:
        losses.loss_config(name, config)
    assert refused.value.status == 400
