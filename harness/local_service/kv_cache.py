"""The keys and values of rows being decoded, in slots without gaps.

Legend: `_R` rows, K key-value heads, S positions of a prompt, E head size.
"""

from __future__ import annotations

import torch

_FLOAT = torch.float64


class KvCache:
    """Keys and values of the rows being decoded: per layer (slots, K, capacity, E), float64.

    Rows occupy slots 0…n-1 without gaps; the buffers double when they run out of room.
    """

    def __init__(
        self, layers: int, kv_heads: int, head_size: int, slots: int = 16, capacity: int = 64
    ) -> None:
        shape = (slots, kv_heads, capacity, head_size)
        self.layers = [
            (torch.zeros(shape, dtype=_FLOAT), torch.zeros(shape, dtype=_FLOAT))
            for _ in range(layers)
        ]

    def reserve(self, slots: int, capacity: int) -> None:
        """Grow to at least this many slots and positions, keeping what is there."""
        have_slots, kv_heads, have_capacity, size = self.layers[0][0].shape
        if slots <= have_slots and capacity <= have_capacity:
            return
        slots = have_slots if slots <= have_slots else max(slots, 2 * have_slots)
        capacity = have_capacity if capacity <= have_capacity else max(capacity, 2 * have_capacity)
        self.layers = [
            (
                _grown(k, (slots, kv_heads, capacity, size)),
                _grown(v, (slots, kv_heads, capacity, size)),
            )
            for k, v in self.layers
        ]

    def put(self, first_slot: int, filled: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Store prefilled rows (R, K, S, E) at slots first_slot…"""
        rows, _, size, _ = filled[0][0].shape
        for (k, v), (new_k, new_v) in zip(self.layers, filled, strict=True):
            k[first_slot : first_slot + rows, :, :size] = new_k
            v[first_slot : first_slot + rows, :, :size] = new_v

    def move(self, source: int, target: int) -> None:
        """Copy one slot over another."""
        for k, v in self.layers:
            k[target], v[target] = k[source], v[source]


def _grown(old: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    new = torch.zeros(shape, dtype=_FLOAT)
    new[: old.shape[0], :, : old.shape[2]] = old
    return new
