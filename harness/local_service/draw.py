"""How the next token is drawn, and where its randomness comes from.

Every sampled sequence has a generator of its own (Philox, counter-based), keyed by SHA-256:

- with a seed in the request: of (seed, index of the sample) and nothing else;
- without one: of (service seed, digest of the sampler's weights, prompt, sampling parameters, how
  many times this sampler has been asked exactly this before, index of the sample). A repeated
  experiment therefore draws the same tokens whatever order its requests arrive in, and a second
  identical request draws new ones.

One uniform number picks one token by inverting the cumulative distribution in float64.

Legend: `_R` rows (sequences being sampled), `_V` vocabulary.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from harness.digest import canonical_json

_BLOCK = 64


@dataclass(frozen=True)
class DrawParams:
    """Temperature (0: argmax), top_k (-1: all) and top_p (1: all) of one row."""

    temperature: float
    top_k: int
    top_p: float

    @property
    def restricted(self) -> bool:
        """Whether part of the vocabulary may be excluded."""
        return self.top_k > 0 or self.top_p < 1.0


def seeded_key(seed: int, sample_index: int) -> bytes:
    """Generator key of one sample of a request that brought its own seed."""
    return hashlib.sha256(canonical_json(["seeded", seed, sample_index])).digest()


def unseeded_key(
    service_seed: int,
    weights_sha256: str,
    request: dict[str, Any],
    occurrence: int,
    sample_index: int,
) -> bytes:
    """Generator key of one sample of a request without a seed (see the module's docstring)."""
    parts = ["unseeded", service_seed, weights_sha256, request, occurrence, sample_index]
    return hashlib.sha256(canonical_json(parts)).digest()


class UniformStream:
    """Uniform numbers in [0, 1) of one sequence, one a token."""

    def __init__(self, key: bytes) -> None:
        seed = int.from_bytes(key[:16], "big")
        self._generator = np.random.Generator(np.random.Philox(key=seed))
        self._block: list[float] = []

    def next(self) -> float:
        """Return the next number; blocks are drawn only to save calls."""
        if not self._block:
            self._block = self._generator.random(_BLOCK).tolist()[::-1]
        return self._block.pop()


def invert_cdf(weights_RV: torch.Tensor, uniform_R: torch.Tensor) -> torch.Tensor:
    """Return for each row the first token whose cumulative weight exceeds uniform · total.

    Args:
        weights_RV: float64, non-negative, the largest of each row 1. A token of weight 0 is never
            returned.
        uniform_R: float64 in [0, 1); with a total of at least 1, uniform · total stays below it
            also after rounding, so that some token always exceeds it.
    """
    cumulative_RV = weights_RV.cumsum(-1)
    target_R1 = uniform_R[:, None] * cumulative_RV[:, -1:]
    return torch.searchsorted(cumulative_RV, target_R1, right=True)[:, 0]


def restrict(weights_V: torch.Tensor, params: DrawParams) -> torch.Tensor:
    """Zero the weights outside the top_k tokens, then outside the smallest set reaching top_p.

    Ties go to the lower token id. At least one token stays.
    """
    order = torch.argsort(weights_V, descending=True, stable=True)
    kept = weights_V[order].clone()
    if params.top_k > 0:
        kept[params.top_k :] = 0.0
    before = kept.cumsum(0) - kept
    kept[before >= params.top_p * kept.sum()] = 0.0
    out = torch.zeros_like(weights_V)
    out[order] = kept
    return out


def draw_tokens(
    logits_RV: torch.Tensor, params_R: list[DrawParams], streams_R: list[UniformStream]
) -> torch.Tensor:
    """Draw one token for each row from float64 logits; shape (R,).

    Temperature 0 is the argmax, the lowest id on ties; such a row uses no random number.
    """
    tokens_R = logits_RV.argmax(-1)
    warm = [r for r, params in enumerate(params_R) if params.temperature > 0]
    if not warm:
        return tokens_R
    picked = torch.tensor(warm)
    heat = torch.tensor([params_R[r].temperature for r in warm], dtype=torch.float64)
    shifted = logits_RV[picked] - logits_RV[picked].amax(-1, keepdim=True)
    # Shifted first, so that a tiny temperature gives 0 and -inf rather than inf - inf.
    weights = torch.exp(shifted / heat[:, None])
    for i, r in enumerate(warm):
        if params_R[r].restricted:
            weights[i] = restrict(weights[i], params_R[r])
    uniform = torch.tensor([streams_R[r].next() for r in warm], dtype=torch.float64)
    tokens_R[picked] = invert_cdf(weights, uniform)
    return tokens_R


def allowed_range(params: DrawParams) -> str | None:
    """Return what is wrong with sampling parameters, or None."""
    if not (0 <= params.temperature < math.inf):
        return f"temperature {params.temperature}: finite and >= 0"
    if params.top_k != -1 and params.top_k < 1:
        return f"top_k {params.top_k}: -1 (all) or at least 1"
    if not 0 < params.top_p <= 1:
        return f"top_p {params.top_p}: above 0, at most 1"
    return None
