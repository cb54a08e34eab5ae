"""Token draws: exact frequencies, restrictions by enumeration, and independence of seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.local_service import draw
from harness.local_service.draw import DrawParams, UniformStream

ALL = DrawParams(1.0, -1, 1.0)


def test_inverting_the_cdf_gives_each_token_its_share_exactly() -> None:
    weights = torch.tensor([0.4, 0.0, 0.2, 1.0], dtype=torch.float64)
    grid = (torch.arange(800, dtype=torch.float64) + 0.5) / 800
    tokens = draw.invert_cdf(weights.expand(800, 4), grid)
    shares = torch.bincount(tokens, minlength=4).tolist()
    assert shares == [200, 0, 100, 500], f"800 evenly spread uniforms gave {shares}"


@settings(derandomize=True, deadline=None, max_examples=200)
@given(others=st.lists(st.floats(0, 1), max_size=9), place=st.integers(0, 9))
def test_the_extreme_uniforms_never_pick_a_token_without_weight(
    others: list[float], place: int
) -> None:
    row = [0.0, *others[:place], 1.0, *others[place:], 0.0]
    weights = torch.tensor([row], dtype=torch.float64)
    for uniform in (0.0, math.nextafter(1.0, 0.0)):
        token = int(draw.invert_cdf(weights, torch.tensor([uniform], dtype=torch.float64)))
        assert row[token] > 0, f"uniform {uniform} picked token {token} of {row}"


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    weights=st.lists(st.integers(1, 50), min_size=1, max_size=8),
    top_k=st.one_of(st.just(-1), st.integers(1, 9)),
    top_p=st.floats(0.05, 1.0),
)
def test_top_k_and_top_p_keep_the_likeliest_tokens(
    weights: list[int], top_k: int, top_p: float
) -> None:
    ranked = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    ranked = ranked if top_k == -1 else ranked[:top_k]
    total, kept, mass = sum(weights[i] for i in ranked), [], 0
    for i in ranked:
        if kept and mass >= top_p * total:
            break
        kept.append(i)
        mass += weights[i]
    given_weights = torch.tensor(weights, dtype=torch.float64)
    found = draw.restrict(given_weights, DrawParams(1.0, top_k, top_p))
    expected = [float(w) if i in kept else 0.0 for i, w in enumerate(weights)]
    assert found.tolist() == expected


def frequencies(temperature: float, draws: int) -> list[float]:
    logits = torch.log(torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)).expand(draws, 3)
    params = [DrawParams(temperature, -1, 1.0)] * draws
    streams = [UniformStream(draw.seeded_key(k, 0)) for k in range(draws)]
    counts = torch.bincount(draw.draw_tokens(logits.clone(), params, streams), minlength=3)
    return (counts / draws).tolist()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_sharpens_or_flattens_as_defined(temperature: float) -> None:
    draws = 8000
    powered = np.array([1.0, 2.0, 4.0]) ** (1 / temperature)
    expected = powered / powered.sum()
    found = frequencies(temperature, draws)
    for token, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        allowed = 5 * math.sqrt(theirs * (1 - theirs) / draws)
        assert abs(ours - theirs) < allowed, (
            f"share of token {token} at temperature {temperature}: {ours}, "
            f"expected {theirs}, allowed ±{allowed}"
        )


def test_temperature_zero_is_the_first_argmax_and_uses_no_randomness() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0], [5.0, 1.0, 5.0]], dtype=torch.float64)
    streams = [UniformStream(b"0" * 32), UniformStream(b"1" * 32)]
    tokens = draw.draw_tokens(logits, [DrawParams(0.0, -1, 1.0)] * 2, streams)
    assert tokens.tolist() == [1, 0]
    assert streams[0].next() == UniformStream(b"0" * 32).next(), "greedy rows must not draw"


def test_a_tiny_temperature_is_still_defined() -> None:
    logits = torch.tensor([[0.0, 3.0, 2.9]], dtype=torch.float64)
    params = [DrawParams(1e-300, -1, 1.0)]
    assert draw.draw_tokens(logits, params, [UniformStream(b"2" * 32)]).tolist() == [1]


def test_seeded_streams_depend_on_seed_and_index_only() -> None:
    keys = {(s, k): draw.seeded_key(s, k) for s in range(20) for k in range(20)}
    assert len(set(keys.values())) == 400, "different seeds or samples share a random stream"
    assert UniformStream(keys[3, 4]).next() == UniformStream(draw.seeded_key(3, 4)).next()


def test_unseeded_streams_differ_in_everything_they_are_made_from() -> None:
    request = {"prompt": [1, 2], "params": {"temperature": 1.0}}
    same = draw.unseeded_key(0, "w", request, 0, 0)
    assert same == draw.unseeded_key(0, "w", dict(reversed(request.items())), 0, 0)
    others = [
        draw.unseeded_key(1, "w", request, 0, 0),
        draw.unseeded_key(0, "v", request, 0, 0),
        draw.unseeded_key(0, "w", request | {"prompt": [2, 1]}, 0, 0),
        draw.unseeded_key(0, "w", request, 1, 0),
        draw.unseeded_key(0, "w", request, 0, 1),
        draw.seeded_key(0, 0),
    ]
    assert len({same, *others}) == 7


def test_uniforms_are_uniform() -> None:
    stream = UniformStream(b"3" * 32)
    values = [stream.next() for _ in range(4000)]
    assert min(values) >= 0
    assert max(values) < 1
    assert len(set(values)) == 4000
    assert abs(sum(values) / 4000 - 0.5) < 5 * math.sqrt(1 / 12 / 4000)
