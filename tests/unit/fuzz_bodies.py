"""Bent requests from a plain seeded generator: thousands a second where Hypothesis makes dozens.

Body ``number`` of a seed is the same on every machine and needs no body before it, so a failure is
made again alone. Hypothesis keeps the smaller search that shrinks what it finds.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tinker.proto import tinker_public_pb2 as pb
from toy_qwen import CONTEXT, VOCAB

VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**31,
        2**63,
        -(2**63) - 1,
        10**40,
        10**400,
        1e308,
        -0.0,
        1e-400,
    ),
    *(float("nan"), float("inf"), "", "..", "../../etc/passwd", "/etc/passwd", "a" * 5000),
    *("\x00", "\ud800", "tinker://a/weights/..", "tinker://x:train:0/weights/../x", "\u202e"),
    *([], {}, [[]], [5, 6, VOCAB], [-1], ["w1", 2], {"type": "x"}, {"": 0}),
)
RAW = (
    *(b"", b"null", b"[]", b"{", b"\xef\xbb\xbf{}", b"\xff\xfe{", b'{"a":1,"a":2}', b"[1e400]"),
    *(b"[" * 100000, b'{"a":' * 5000, b"9" * 5000, b'"' + b"a" * 100000, b'{"type":NaN}'),
)
IDS = (0, 1, 5, VOCAB - 1, VOCAB, -1, 2**31 - 1)
FLOATS = (0.0, 1.0, -1.0, 1e38, float("nan"), float("inf"))
LENGTHS = (0, 1, 3, 3, 3, CONTEXT, CONTEXT + 1)
INPUTS = (
    *(("target_tokens", "weights"), ("target_tokens", "logprobs", "advantages")),
    *(("target_tokens",), ("weights", "huge")),
)
LOSSES = ("importance_sampling", "cross_entropy", "ppo", "dro", "")


def rng_of(seed: int, number: int) -> random.Random:
    """Return the generator of one body."""
    return random.Random(f"body {number} of {seed}")


def json_body(rng: random.Random, bodies: Mapping[str, Mapping[str, Any]]) -> tuple[str, bytes]:
    """Return an endpoint and a body for it with one thing or two wrong."""
    path = rng.choice(sorted(bodies))
    kind = rng.random()
    if kind < 0.05:
        return path, rng.choice(RAW)
    if kind < 0.1:
        return path, rng.randbytes(rng.randint(0, 60))
    made = json.loads(json.dumps(bodies[path]))
    for _ in range(rng.randint(1, 2)):
        _bend(rng, made)
    data = json.dumps(made).encode()
    return path, mangled(rng, data) if rng.random() < 0.25 else data


def _bend(rng: random.Random, made: dict[str, Any]) -> None:
    places = places_of(made)
    holder, key = rng.choice(places) if places else (made, "new")
    action = rng.choice(("replace", "replace", "drop", "add", "rename"))
    value = _value(rng)
    if action == "replace":
        holder[key] = value
    elif action == "drop" and isinstance(holder, dict):
        holder.pop(key, None)
    elif isinstance(holder, dict):
        name = "".join(rng.choices("aZ_é\x00 {", k=rng.randint(0, 6)))
        holder[name if action == "add" else f"{key}_"] = value


def _value(rng: random.Random) -> Any:
    kind = rng.random()
    if kind < 0.05:
        depth = rng.randint(1, 200)
        return json.loads("[" * depth + "]" * depth)
    if kind < 0.2:
        return rng.randint(-(2**65), 2**65) >> rng.randint(0, 64)
    # A copy: the next bend may change it.
    return copy.deepcopy(rng.choice(VALUES))


def places_of(value: Any) -> list[tuple[Any, Any]]:
    """Return holder and key of everything in a document, the outer ones first."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, Any]] = []
    for key, inner in items:
        found.append((value, key))
        if isinstance(inner, dict | list):
            found += places_of(inner)
    return found


def mangled(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with some flipped, cut, doubled or added."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(made))
        action = rng.choice(("flip", "cut", "insert", "double"))
        if action == "flip" and at < len(made):
            made[at] ^= rng.randint(1, 255)
        elif action == "cut":
            del made[at : at + rng.randint(1, 40)]
        elif action == "insert":
            made[at:at] = rng.randbytes(rng.randint(1, 12))
        else:
            made[at:at] = made[max(0, at - 20) : at]
    return bytes(made)


def pass_body(rng: random.Random, model: str) -> bytes:
    """Return a forward_backward request in which most fields are wrong now and then."""
    message = pb.ForwardBackwardRequest(
        model_id=rng.choice([model] * 6 + ["", "x:train:0", "\x00"]),
        seq_id=rng.choice([2] * 6 + [3, 0, -1, 2**31 - 1]),
        loss_fn=rng.choice(LOSSES),
        forward_only=rng.random() < 0.5,
    )
    for key in rng.choice([(), (), (), ("beta",), ("clip_low_threshold", "")]):
        message.loss_fn_config[key] = rng.choice(FLOATS)
    length = rng.choice(LENGTHS)
    # One request in two has ids that are all allowed: what follows them is then looked at too.
    ids = IDS[:4] if rng.random() < 0.5 else IDS
    tokens = np.asarray(rng.choices(ids, k=length), np.int32)
    for _ in range(rng.randint(0, 3)):
        _add_datum(rng, message, tokens)
    data = message.SerializeToString()
    kind = rng.randint(0, 5)
    if kind > 1:
        return data
    return mangled(rng, data) if kind else rng.randbytes(rng.randint(0, 80))


def _add_datum(rng: random.Random, message: pb.ForwardBackwardRequest, tokens: Any) -> None:
    datum = message.data.add()
    tail = rng.choice((b"", b"", b"", b"\x01"))
    datum.model_input.add().encoded_text.tokens = tokens.tobytes() + tail
    length = len(tokens)
    for name in rng.choice(INPUTS):
        tensor = datum.loss_fn_inputs[name]
        numbers = rng.choice((length, length, length, 0, length + 1))
        whole = name == "target_tokens"
        pool: Sequence[float] = IDS[:4] if whole else FLOATS[:3] * 8 + FLOATS
        values = rng.choices(pool, k=numbers)
        tensor.dense = np.asarray(values, np.int64 if whole else np.float32).tobytes()
        right = pb.DTYPE_INT64 if whole else pb.DTYPE_FLOAT32
        tensor.dtype = rng.choice([right] * 8 + [pb.DTYPE_INT32, pb.DTYPE_FLOAT32])
        tensor.shape.extend(rng.choice(([], [], [numbers], [-1], [2**62, 4])))
