"""AdamW on one flat parameter vector, every AdamParams field honoured.

The update is that of torch.optim.AdamW (decoupled weight decay, Loshchilov & Hutter,
arXiv:1711.05101), in the same order of operations. Hyperparameters come with each step, moments
and step count live with the model and are saved with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from harness.local_service.refusals import RefusalError

LARGEST = 1e15
"""Largest rate, eps and decay: no product or quotient of two of them leaves float32."""


@dataclass(frozen=True)
class AdamParams:
    """One step's hyperparameters; defaults and meaning as in the SDK's AdamParams."""

    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float


@dataclass
class AdamState:
    """First and second moments (flat, dtype of the parameters) and the number of steps taken."""

    first: torch.Tensor
    second: torch.Tensor
    step: int = 0


def fresh_state(parameters: torch.Tensor) -> AdamState:
    """Return the state of an optimizer that has taken no step."""
    return AdamState(torch.zeros_like(parameters), torch.zeros_like(parameters))


def check_params(params: AdamParams) -> AdamParams:
    """Refuse hyperparameters for which AdamW is undefined.

    Raises:
        RefusalError: naming the field and its allowed range.
    """
    rules = {
        "learning_rate": 0 <= params.learning_rate <= LARGEST,
        "beta1": 0 <= params.beta1 < 1,
        "beta2": 0 <= params.beta2 < 1,
        "eps": 0 < params.eps <= LARGEST,
        "weight_decay": 0 <= params.weight_decay <= LARGEST,
        "grad_clip_norm": params.grad_clip_norm >= 0,
    }
    for field, holds in rules.items():
        value = getattr(params, field)
        if not holds or not math.isfinite(value):
            raise RefusalError(
                f"AdamW is undefined for this {field}",
                expected="betas in [0, 1), eps > 0, everything else finite and >= 0,"
                f" rate, eps and decay at most {LARGEST:g}",
                found=str(value),
                where=f"adam_params.{field}",
            )
    return params


def clip_gradient(grad: torch.Tensor, max_norm: float) -> float:
    """Scale ``grad`` in place to at most ``max_norm`` (0: leave it); return its norm before."""
    norm = float(torch.linalg.vector_norm(grad, dtype=torch.float64))
    if max_norm > 0 and norm > max_norm:
        grad.mul_(max_norm / norm)
    return norm


def adam_step(
    parameters: torch.Tensor, grad: torch.Tensor, state: AdamState, params: AdamParams
) -> None:
    """Update ``parameters`` and ``state`` in place by one AdamW step."""
    state.step += 1
    parameters.mul_(1 - params.learning_rate * params.weight_decay)
    state.first.lerp_(grad, 1 - params.beta1)
    state.second.mul_(params.beta2).addcmul_(grad, grad, value=1 - params.beta2)
    correction1 = 1 - params.beta1**state.step
    correction2 = 1 - params.beta2**state.step
    denominator = (state.second.sqrt() / math.sqrt(correction2)).add_(params.eps)
    parameters.addcdiv_(state.first, denominator, value=-params.learning_rate / correction1)


def optimizer_step(
    parameters: torch.Tensor, grad: torch.Tensor, state: AdamState, params: AdamParams
) -> dict[str, float]:
    """Clip, step and clear the accumulated gradient.

    Returns:
        ``grad_norm`` (before clipping), ``update_norm`` (L2 of the change) and
        ``optimizer_step``; plain ``step`` would overwrite the cookbook's own in its metrics.

    Raises:
        RefusalError: when the step leaves the range of its numbers. Parameters and state are then
            as before it; the gradient is dropped.
    """
    before = parameters.clone()
    moments, steps = (state.first.clone(), state.second.clone()), state.step
    norm = clip_gradient(grad, params.grad_clip_norm)
    adam_step(parameters, grad, state, params)
    grad.zero_()
    moved = float(torch.linalg.vector_norm(parameters - before, dtype=torch.float64))
    finite = all(bool(part.isfinite().all()) for part in (parameters, state.first, state.second))
    if not (finite and math.isfinite(norm) and math.isfinite(moved)):
        parameters.copy_(before)
        state.first.copy_(moments[0])
        state.second.copy_(moments[1])
        state.step = steps
        raise RefusalError(
            "the step leaves the range of its numbers; the model stays as it was before",
            expected="finite gradient, moments and parameters",
            found=f"gradient norm {norm:g}, change {moved:g}",
            where="optim_step",
            fix="look at what was sent to forward_backward, or lower the learning rate",
        )
    return {"grad_norm": norm, "update_norm": moved, "optimizer_step": float(state.step)}
