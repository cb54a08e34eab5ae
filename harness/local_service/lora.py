"""LoRA adapters (Hu et al. 2021, arXiv:2106.09685): seeded, flat in memory, switched onto one base.

An adapted linear layer computes ``W x + (alpha / rank) * B (A x)`` with ``A`` (rank, in) drawn
from the seed and ``B`` (out, rank) zero, so a new adapter changes nothing until its first step.
All A and B of one adapter are views into one flat vector (and their gradients into a second), so
that optimizer, checkpoint and digest each handle one tensor.

Layers: q, k, v, o projections (train_attn), gate, up, down (train_mlp), lm_head (train_unembed).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

LORA_ALPHA = 32
"""Fixed for every adapter; the protocol has no field for it. Reported in weights_info."""

MAX_RANK = 128

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")
_UNEMBED = ("lm_head",)


@dataclass(frozen=True)
class AdapterConfig:
    """What defines an adapter's shape and first values. ``seed`` is recorded even when drawn."""

    rank: int
    seed: int
    train_attn: bool = True
    train_mlp: bool = True
    train_unembed: bool = True

    @property
    def scale(self) -> float:
        """The factor alpha / rank in front of B A."""
        return LORA_ALPHA / self.rank

    def as_json(self) -> dict[str, Any]:
        """The fields as a JSON object, alpha included."""
        return {**asdict(self), "alpha": LORA_ALPHA}

    def wants(self, layer: str) -> bool:
        """Whether the layer of this dotted module name is adapted."""
        leaf = layer.rsplit(".", 1)[-1]
        return (
            (self.train_attn and leaf in _ATTENTION)
            or (self.train_mlp and leaf in _MLP)
            or (self.train_unembed and leaf in _UNEMBED)
        )


class Adapter:
    """One adapter's parameters and accumulated gradient.

    Attributes:
        flat: all parameters, one vector in the service's dtype.
        grad: the gradient accumulated since the last optimizer step, same shape.
        pairs: layer name -> (A (rank, in), B (out, rank)), views of ``flat`` with gradients.
    """

    def __init__(
        self, config: AdapterConfig, shapes: dict[str, tuple[int, int]], dtype: torch.dtype
    ) -> None:
        self.config = config
        self.shapes = {name: shape for name, shape in shapes.items() if config.wants(name)}
        size = sum(config.rank * (out + into) for out, into in self.shapes.values())
        self.flat = torch.zeros(size, dtype=dtype)
        self.grad = torch.zeros(size, dtype=dtype)
        self.pairs: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self._cut_views()

    def _cut_views(self) -> None:
        start = 0
        for name, (out, into) in self.shapes.items():
            views = []
            for rows, columns in ((self.config.rank, into), (out, self.config.rank)):
                stop = start + rows * columns
                view = self.flat[start:stop].view(rows, columns).detach().requires_grad_()
                # Autograd adds into an existing .grad in place, so this view collects it.
                view.grad = self.grad[start:stop].view(rows, columns)
                views.append(view)
                start = stop
            self.pairs[name] = (views[0], views[1])

    def sha256(self) -> str:
        """Digest of the adapter's configuration (seed apart) and of its parameters' bytes."""
        return flat_sha256(self.config, self.flat)


def flat_sha256(config: AdapterConfig, flat: torch.Tensor) -> str:
    """Digest of an adapter given as its flat vector; the seed is provenance and stays out."""
    flags = (config.train_attn, config.train_mlp, config.train_unembed)
    head = f"{config.rank}/{LORA_ALPHA}/{flags}/{flat.dtype}/{flat.numel()}/"
    return hashlib.sha256(head.encode() + flat.detach().numpy().tobytes()).hexdigest()


def initialize(adapter: Adapter) -> None:
    """Draw every A from the adapter's seed; leave every B at zero.

    A is uniform in ±1/sqrt(in), drawn in float64 from a generator of its own per layer: the
    values depend on (seed, layer name) only, neither on dtype nor on which layers are trained.
    """
    for name, (a, _b) in adapter.pairs.items():
        a.detach().copy_(draw_a(adapter.config.seed, name, (a.shape[0], a.shape[1])))


def draw_a(seed: int, layer: str, shape: tuple[int, int]) -> torch.Tensor:
    """Return the first value (float64, (rank, in)) of one layer's A."""
    digest = hashlib.sha256(f"lora-a/{seed}/{layer}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    unit = torch.rand(shape, generator=generator, dtype=torch.float64)
    return (2.0 * unit - 1.0) / math.sqrt(shape[1])


def lora_term(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
    """Return ``scale * B (A x)`` for rows ``x`` (..., in); shape (..., out)."""
    return scale * ((x @ a.T) @ b.T)


class AdapterSwitch:
    """Which adapter the network computes with; None is the bare base model."""

    def __init__(self) -> None:
        self.active: Adapter | None = None


class LoraLinear(nn.Module):
    """A frozen linear layer plus the active adapter's term for it, if there is one."""

    def __init__(self, base: nn.Linear, name: str, switch: AdapterSwitch) -> None:
        super().__init__()
        self.base = base
        self.layer_name = name
        self.switch = switch

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (..., in) to (..., out)."""
        y = self.base(x)
        adapter = self.switch.active
        if adapter is None or self.layer_name not in adapter.pairs:
            return y
        a, b = adapter.pairs[self.layer_name]
        return y + lora_term(x, a, b, adapter.config.scale)


def attach(network: nn.Module) -> tuple[AdapterSwitch, dict[str, tuple[int, int]]]:
    """Wrap every adaptable linear layer; return the switch and each layer's (out, in) shape.

    Shapes are sorted by layer name, which is the order of the flat vector.
    """
    switch = AdapterSwitch()
    everything = AdapterConfig(rank=1, seed=0)
    found = [
        (n, m)
        for n, m in network.named_modules()
        if isinstance(m, nn.Linear) and everything.wants(n)
    ]
    for name, linear in found:
        parent, _, leaf = name.rpartition(".")
        setattr(network.get_submodule(parent), leaf, LoraLinear(linear, name, switch))
    shapes = {name: (linear.out_features, linear.in_features) for name, linear in found}
    return switch, dict(sorted(shapes.items()))
