"""Muon: momentum whose update of a matrix is made orthogonal (K. Jordan and others, 2024).

Departures from the published optimizer: everything stays float32, because bfloat16 is emulated
and slow on a CPU, and matrices of one shape are orthogonalised together, because at width 64 the
time goes into calls rather than arithmetic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Quintic coefficients; they drive singular values into about [0.7, 1.2], not exactly to 1."""

NEWTON_SCHULZ_ROUNDS = 5
MOMENTUM = 0.95


class Muon:
    """Muon with Nesterov momentum for two-dimensional parameters, without weight decay.

    Args:
        parameters: matrices of any shapes.
        lr: step size; an update's largest singular value is about ``lr·sqrt(max(1, rows/cols))``.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float) -> None:
        self.lr = lr
        self._by_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            self._by_shape[parameter.shape].append(parameter)
        self._momentum = {
            shape: torch.zeros(len(group), *shape) for shape, group in self._by_shape.items()
        }

    @torch.no_grad()
    def step(self) -> None:
        """Apply one update from the parameters' gradients; one without a gradient counts as 0."""
        for shape, group in self._by_shape.items():
            gradient = torch.stack(
                [torch.zeros(shape) if p.grad is None else p.grad for p in group]
            )
            momentum = self._momentum[shape].lerp_(gradient, 1 - MOMENTUM)
            update = orthogonalise(gradient.lerp(momentum, MOMENTUM))
            scale = self.lr * max(1.0, shape[0] / shape[1]) ** 0.5
            for parameter, change in zip(group, update, strict=True):
                parameter.sub_(change, alpha=scale)


def orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """Return ``U·Vᵀ`` of each matrix's singular value decomposition, approximately.

    Args:
        matrices: shape (N, rows, columns), float32 or float64; a zero matrix stays zero.
    """
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(NEWTON_SCHULZ_ROUNDS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
