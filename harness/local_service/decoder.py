"""The Qwen3 network written out for sampling: merged weights, KV cache, float64.

Llama is the same network without the norms of queries and keys, which are then None.

The trainer runs transformers' module with LoRA beside each layer. Sampling runs this second
implementation with ``W + scale · B A`` merged once for each snapshot. It computes in float64
whatever the service's dtype: the result of a row then does not depend, to any digit the wire can
carry, on which other rows were in its batch, and equal experiments give equal tokens.

Legend: `_R` rows, `_S` positions of a prompt (padded), `_L` cached positions, H width, E head
size, Q query heads, K key-value heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from harness.local_service.base_model import BaseModel
from harness.local_service.kv_cache import KvCache
from harness.local_service.lora import AdapterConfig, LoraLinear

_FLOAT = torch.float64
Pairs = Mapping[str, tuple[torch.Tensor, torch.Tensor]]
_Lookup = Callable[[str], torch.Tensor]


@dataclass(frozen=True)
class Layer:
    """One decoder layer's merged matrices (out, in) and norm weights, float64."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True)
class DecoderWeights:
    """Everything a forward pass needs; ``cos`` and ``sin`` are (context, E) rotary tables."""

    embed: torch.Tensor
    layers: list[Layer]
    norm: torch.Tensor
    head: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    eps: float
    heads: int
    kv_heads: int
    head_size: int

    @property
    def bytes(self) -> int:
        """Memory of embedding, unembedding and layers' matrices."""
        matrices = [m for x in self.layers for m in (x.qkv, x.o, x.gate_up, x.down)]
        return sum(m.nbytes for m in (self.embed, self.head, *matrices))


def merge(base: BaseModel, config: AdapterConfig | None, pairs: Pairs) -> DecoderWeights:
    """Return float64 weights of the base with an adapter's low-rank terms added."""
    network, scale = base.network, config.scale if config else 0.0

    def matrix(name: str) -> torch.Tensor:
        linear = network.get_submodule(name)
        weight = (linear.base if isinstance(linear, LoraLinear) else linear).weight
        return merged(weight, pairs.get(name), scale)

    def vector(name: str) -> torch.Tensor:
        return network.get_parameter(name + ".weight").detach().to(_FLOAT)

    qwen = network.config
    normed = qwen.model_type == "qwen3"
    cos, sin = _rotary_tables(base)
    return DecoderWeights(
        embed=vector("model.embed_tokens"),
        layers=[
            _layer(f"model.layers.{i}", matrix, vector, normed=normed)
            for i in range(qwen.num_hidden_layers)
        ],
        norm=vector("model.norm"),
        head=matrix("lm_head"),
        cos=cos,
        sin=sin,
        eps=float(qwen.rms_norm_eps),
        heads=int(qwen.num_attention_heads),
        kv_heads=int(qwen.num_key_value_heads),
        head_size=int(qwen.head_dim),
    )


def merged(
    weight: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor] | None, scale: float
) -> torch.Tensor:
    """Return ``W + scale · B A`` in float64, or W where the layer is not adapted."""
    weight = weight.detach().to(_FLOAT)
    if pair is None:
        return weight
    a, b = pair
    return weight + scale * (b.detach().to(_FLOAT) @ a.detach().to(_FLOAT))


def _layer(prefix: str, matrix: _Lookup, vector: _Lookup, *, normed: bool) -> Layer:
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    return Layer(
        input_norm=vector(f"{prefix}.input_layernorm"),
        qkv=torch.cat([matrix(f"{attention}.{name}_proj") for name in "qkv"]),
        q_norm=vector(f"{attention}.q_norm") if normed else None,
        k_norm=vector(f"{attention}.k_norm") if normed else None,
        o=matrix(f"{attention}.o_proj"),
        mlp_norm=vector(f"{prefix}.post_attention_layernorm"),
        gate_up=torch.cat([matrix(f"{mlp}.gate_proj"), matrix(f"{mlp}.up_proj")]),
        down=matrix(f"{mlp}.down_proj"),
    )


def _rotary_tables(base: BaseModel) -> tuple[torch.Tensor, torch.Tensor]:
    # The module itself computes the table in float32; taking it from there keeps the trainer's
    # rotation to the bit.
    rotary = base.network.model.rotary_emb
    positions = torch.arange(base.context_length)[None]
    cos, sin = rotary(torch.zeros(1, dtype=_FLOAT), positions)
    return cos[0], sin[0]


def _rms(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def _heads(
    weights: DecoderWeights, layer: Layer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Project (..., H) to rotated q (..., Q, E), rotated k and v (..., K, E)."""
    projected = functional.linear(_rms(x, layer.input_norm, weights.eps), layer.qkv)
    split = projected.unflatten(-1, (-1, weights.head_size))
    q, k, v = split.split([weights.heads, weights.kv_heads, weights.kv_heads], -2)
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = _rms(q, layer.q_norm, weights.eps), _rms(k, layer.k_norm, weights.eps)
    return _rotate(q, cos, sin), _rotate(k, cos, sin), v


def _finish_layer(
    weights: DecoderWeights, layer: Layer, x: torch.Tensor, mixed: torch.Tensor
) -> torch.Tensor:
    x = x + functional.linear(mixed, layer.o)
    gate, up = functional.linear(_rms(x, layer.mlp_norm, weights.eps), layer.gate_up).chunk(2, -1)
    return x + functional.linear(functional.silu(gate) * up, layer.down)


def logits(weights: DecoderWeights, hidden: torch.Tensor) -> torch.Tensor:
    """Map final hidden states (..., H) to logits (..., V)."""
    return functional.linear(_rms(hidden, weights.norm, weights.eps), weights.head)


def prefill(
    weights: DecoderWeights, tokens_RS: torch.Tensor
) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Run prompts, padded on the right, from position 0.

    Returns:
        hidden states (R, S, H) before the final norm, and each layer's keys and values
        (R, K, S, E). Entries past a row's own length are meaningless.
    """
    x = weights.embed[tokens_RS]
    size = tokens_RS.shape[1]
    cos, sin = weights.cos[:size, None], weights.sin[:size, None]
    kept = []
    for layer in weights.layers:
        q, k, v = (part.transpose(1, 2) for part in _heads(weights, layer, x, cos, sin))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        kept.append((k, v))
        x = _finish_layer(weights, layer, x, mixed.transpose(1, 2).flatten(2))
    return x, kept


def decode_step(
    weights: DecoderWeights, cache: KvCache, tokens_R: torch.Tensor, position_R: torch.Tensor
) -> torch.Tensor:
    """Advance every row by one token at its own position; return logits (R, V).

    Row r occupies slot r and its cache is filled below ``position_R[r]``.
    """
    rows, longest = len(tokens_R), int(position_R.max()) + 1
    slots = torch.arange(rows)
    cos, sin = weights.cos[position_R][:, None], weights.sin[position_R][:, None]
    hidden_RL = torch.arange(longest)[None] > position_R[:, None]
    x = weights.embed[tokens_R]
    for layer, (keys, values) in zip(weights.layers, cache.layers, strict=True):
        q, k, v = _heads(weights, layer, x, cos, sin)
        keys[slots, :, position_R] = k
        values[slots, :, position_R] = v
        mixed = _attend(q, keys[:rows, :, :longest], values[:rows, :, :longest], hidden_RL)
        x = _finish_layer(weights, layer, x, mixed)
    return logits(weights, x)


def _attend(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, hidden_RL: torch.Tensor
) -> torch.Tensor:
    """Attend from one query a row (R, Q, E) to cached (R, K, L, E); return (R, Q·E)."""
    rows, heads, size = q.shape
    grouped = q.view(rows, keys.shape[1], heads // keys.shape[1], size) * size**-0.5
    scores = grouped @ keys.transpose(-1, -2)
    scores.masked_fill_(hidden_RL[:, None, None], float("-inf"))
    return (scores.softmax(-1) @ values).reshape(rows, heads * size)
