"""Hypothesis strategies for bodies that are nearly right: bent JSON and protobuf requests."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from fuzz_bodies import places_of
from hypothesis import strategies as st
from tinker.proto import tinker_public_pb2 as pb
from toy_qwen import CONTEXT, VOCAB

HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, -1, 2**31, 2**63, -(2**63) - 1, 10**40, 10**400, 1e308, -0.0, 1e-400, float("nan")]
    ),
    st.sampled_from([float("inf"), "", "..", "../../etc/passwd", "/etc/passwd", "a" * 5000]),
    st.sampled_from(["\x00", "\ud800", "tinker://a/weights/..", "tinker://x:train:0/weights/../x"]),
    st.text(max_size=20),
    st.lists(st.integers(-3, VOCAB + 3), max_size=8),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    st.integers(1, 200).map(lambda depth: json.loads("[" * depth + "]" * depth)),
)
RAW = st.sampled_from(
    (
        *(b"", b"null", b"[]", b"{", b"\xef\xbb\xbf{}", b"\xff\xfe{", b'{"a":1,"a":2}', b"[1e400]"),
        *(b"[" * 100000, b'{"a":' * 5000, b"9" * 5000, b'"' + b"a" * 100000, b'{"type":NaN}'),
    )
)


@st.composite
def bent(draw: st.DrawFn, document: dict[str, Any]) -> bytes:
    """Return a request's JSON with one thing or two wrong in it."""
    made = json.loads(json.dumps(document))
    places = places_of(made)
    for _ in range(draw(st.integers(1, 2))):
        holder, key = draw(st.sampled_from(places)) if places else (made, "new")
        action = draw(st.sampled_from(["replace", "drop", "add", "rename"]))
        value = draw(HOSTILE)
        if action == "replace":
            holder[key] = value
        elif action == "drop" and isinstance(holder, dict):
            holder.pop(key, None)
        elif isinstance(holder, dict):
            holder[draw(st.text(max_size=6)) if action == "add" else f"{key}_"] = value
    data = json.dumps(made).encode()
    return draw(mangled(data)) if draw(st.integers(0, 3)) == 0 else data


@st.composite
def mangled(draw: st.DrawFn, data: bytes) -> bytes:
    """Return bytes with some flipped, cut, doubled or added."""
    made = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(made)))
        action = draw(st.sampled_from(["flip", "cut", "insert", "double"]))
        if action == "flip" and at < len(made):
            made[at] ^= draw(st.integers(1, 255))
        elif action == "cut":
            del made[at : at + draw(st.integers(1, 40))]
        elif action == "insert":
            made[at:at] = draw(st.binary(min_size=1, max_size=12))
        else:
            made[at:at] = made[max(0, at - 20) : at]
    return bytes(made)


@st.composite
def json_body(draw: st.DrawFn, bodies: dict[str, dict[str, Any]]) -> tuple[str, bytes]:
    """Return an endpoint's path and its bent body."""
    path = draw(st.sampled_from(sorted(bodies)))
    return path, draw(st.one_of(bent(bodies[path]), RAW, st.binary(max_size=60)))


TAILS = st.sampled_from([b"", b"", b"", b"\x01"])
"""What may follow the token ids, which are four bytes each."""


@st.composite
def pass_body(draw: st.DrawFn, model: str) -> bytes:
    """Return a bent forward_backward request; most of the fields are drawn wrong now and then."""
    length = draw(st.sampled_from([0, 1, 3, 3, 3, CONTEXT, CONTEXT + 1]))
    ids = st.sampled_from([0, 1, 5, VOCAB - 1, VOCAB, -1, 2**31 - 1])
    tokens = np.asarray(draw(st.lists(ids, min_size=length, max_size=length)), np.int32)
    floats = st.sampled_from([0.0, 1.0, -1.0, 1e38, float("nan"), float("inf")])
    message = pb.ForwardBackwardRequest(
        model_id=draw(st.sampled_from([model] * 6 + ["", "x:train:0", "\x00"])),
        seq_id=draw(st.sampled_from([2] * 6 + [3, 0, -1, 2**31 - 1])),
        loss_fn=draw(st.sampled_from(["importance_sampling", "cross_entropy", "ppo", "dro", ""])),
        forward_only=draw(st.booleans()),
    )
    for key in draw(st.sampled_from([(), (), (), ("beta",), ("clip_low_threshold", "")])):
        message.loss_fn_config[key] = draw(floats)
    for _ in range(draw(st.integers(0, 3))):
        datum = message.data.add()
        datum.model_input.add().encoded_text.tokens = tokens.tobytes() + draw(TAILS)
        for name in draw(
            st.sampled_from(
                [
                    ("target_tokens", "weights"),
                    ("target_tokens", "logprobs", "advantages"),
                    ("target_tokens",),
                    ("weights", "huge"),
                ]
            )
        ):
            tensor = datum.loss_fn_inputs[name]
            numbers = draw(st.sampled_from([length, length, length, 0, length + 1]))
            kind = np.int64 if name == "target_tokens" else np.float32
            values = (
                draw(st.lists(ids if kind is np.int64 else floats, max_size=0)) or [1] * numbers
            )
            tensor.dense = np.asarray(values, kind).tobytes()
            tensor.dtype = draw(
                st.sampled_from(
                    [pb.DTYPE_INT64 if kind is np.int64 else pb.DTYPE_FLOAT32] * 4
                    + [pb.DTYPE_INT32, pb.DTYPE_FLOAT32]
                )
            )
            tensor.shape.extend(draw(st.sampled_from([[], [numbers], [-1], [2**62, 4]])))
    data = message.SerializeToString()
    kind = draw(st.integers(0, 5))
    if kind > 1:
        return data
    return draw(mangled(data) if kind else st.binary(max_size=80))
