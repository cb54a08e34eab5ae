"""Muon's update against a singular value decomposition and the written-out momentum."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.local_service.muon import MOMENTUM, Muon, orthogonalise


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_orthogonalised_matrices_have_near_unit_singular_values(m: int, n: int, seed: int) -> None:
    matrix = torch.randn(1, m, n, generator=torch.Generator().manual_seed(seed)).double()
    left, values, right = np.linalg.svd(matrix[0].numpy(), full_matrices=False)
    update = orthogonalise(matrix)[0].numpy()
    # In the matrix's own singular basis the update must be diagonal.
    inside = left.T @ update @ right.T
    off = np.abs(inside - np.diag(np.diag(inside))).max()
    assert off < 1e-6, f"{off} outside the diagonal, allowed 1e-6"
    clear = np.diag(inside)[values > 0.1 * values.max()]
    assert ((clear > 0.6) & (clear < 1.3)).all(), f"singular values {clear}"


def test_muon_moves_by_the_orthogonalised_nesterov_momentum() -> None:
    weight = torch.nn.Parameter(torch.zeros(4, 2, dtype=torch.float32))
    muon = Muon([weight], lr=0.1)
    # Gradients that turn: along one direction, momentum would not change the update.
    gradients = [torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])]
    gradients += [torch.tensor([[0.0, 1.0], [3.0, 0.0], [0.0, 0.0], [0.0, -2.0]])]
    momentum, expected = torch.zeros(4, 2), torch.zeros(4, 2)
    for gradient in gradients:
        weight.grad = gradient
        muon.step()
        momentum = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        blend = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        expected -= 0.1 * 2**0.5 * orthogonalise(blend[None])[0]
    assert torch.allclose(weight.detach(), expected, atol=1e-6), f"{weight} for {expected}"
