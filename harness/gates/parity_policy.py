"""A policy small enough for exact gradients: a two-layer causal transformer in float64.

It stands in for the trained model wherever the path from rollouts to a parameter gradient is
checked. Causal, with positions, so that packing several turns into one sequence leaves every
log-probability unchanged, and a shifted target or a lost turn does not.

Shape suffixes: ``_D`` sequences, ``_T`` tokens, ``_DT`` padded to the longest; V vocabulary,
H width.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence

VOCABULARY = 40
WIDTH = 12
HIDDEN = 24
LAYERS = 2
LONGEST = 64
"""Tokens in the longest sequence the policy has positions for."""

Parameters = Mapping[str, torch.Tensor]
Sequences = Sequence[tuple[Sequence[int], Sequence[int]]]
"""Input tokens and their targets, position by position."""


@dataclass(frozen=True, eq=False)
class Policy:
    """The parameters, every one a float64 leaf that takes a gradient."""

    parameters: Parameters

    @classmethod
    def seeded(cls, seed: int) -> Policy:
        """Draw every parameter from N(0, 1/H), so that all of them carry gradient."""
        generator = torch.Generator().manual_seed(seed)
        return cls(
            {
                name: (
                    torch.randn(shape, generator=generator, dtype=torch.float64) / math.sqrt(WIDTH)
                ).requires_grad_()
                for name, shape in _shapes().items()
            }
        )

    def moved(self, direction: torch.Tensor, length: float) -> Policy:
        """Return the policy at ``parameters + length * direction`` (a flat vector)."""
        moved: dict[str, torch.Tensor] = {}
        offset = 0
        for name, tensor in self.parameters.items():
            part = direction[offset : offset + tensor.numel()].reshape(tensor.shape)
            moved[name] = (tensor.detach() + length * part).requires_grad_()
            offset += tensor.numel()
        return Policy(moved)

    def size(self) -> int:
        """Return the number of parameters."""
        return sum(tensor.numel() for tensor in self.parameters.values())

    def sha256(self) -> str:
        """Digest of every parameter's bytes, in order."""
        hasher = hashlib.sha256()
        for name, tensor in self.parameters.items():
            hasher.update(name.encode() + tensor.detach().numpy().tobytes())
        return hasher.hexdigest()

    def logprobs_D(self, sequences_D: Sequences) -> list[torch.Tensor]:  # noqa: N802
        """Return the log-probabilities of each sequence's targets, one (T,) tensor a sequence."""
        tokens_DT = pad_sequence([torch.tensor(list(t)) for t, _ in sequences_D], batch_first=True)
        targets_DT = pad_sequence([torch.tensor(list(t)) for _, t in sequences_D], batch_first=True)
        logits = self._logits(tokens_DT)
        logprobs_DT = logits.log_softmax(-1).gather(-1, targets_DT[..., None]).squeeze(-1)
        return [
            row_T[: len(targets_T)]
            for row_T, (_, targets_T) in zip(logprobs_DT, sequences_D, strict=True)
        ]

    def gradient(
        self, outputs: Sequence[torch.Tensor], weights: Sequence[torch.Tensor] | None = None
    ) -> dict[str, torch.Tensor]:
        """Return d (sum of outputs, or of weights times outputs) / d parameter, by name."""
        given = torch.autograd.grad(
            list(outputs),
            list(self.parameters.values()),
            None if weights is None else list(weights),
        )
        return dict(zip(self.parameters, given, strict=True))

    def _logits(self, tokens_DT: torch.Tensor) -> torch.Tensor:
        p = self.parameters
        length = tokens_DT.shape[1]
        state = p["embedding"][tokens_DT] + p["position"][:length]
        future = torch.full((length, length), -math.inf, dtype=torch.float64).triu(1)
        for layer in range(LAYERS):
            query, key, value = (state @ p[f"{layer}.{name}"] for name in ("q", "k", "v"))
            scores = query @ key.transpose(1, 2) / math.sqrt(WIDTH) + future
            state = state + scores.softmax(-1) @ value @ p[f"{layer}.o"]
            state = state + (state @ p[f"{layer}.up"]).tanh() @ p[f"{layer}.down"]
        return state @ p["unembedding"]


def flat(gradient: Parameters) -> torch.Tensor:
    """Return every entry of a gradient as one vector."""
    return torch.cat([tensor.reshape(-1) for tensor in gradient.values()])


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "embedding": (VOCABULARY, WIDTH),
        "position": (LONGEST, WIDTH),
    }
    for layer in range(LAYERS):
        shapes |= {f"{layer}.{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "o")}
        shapes |= {f"{layer}.up": (WIDTH, HIDDEN), f"{layer}.down": (HIDDEN, WIDTH)}
    return shapes | {"unembedding": (WIDTH, VOCABULARY)}
