"""How large a body may be, that nothing is unpacked, and bounds that fuzzing cannot judge.

Fuzzing sees a bound only when its absence ends in a 5xx. Those whose absence ends in a quiet
answer are asked for here by value, and each check is shown to catch its planted defect.
"""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_service import KEY, MemoryService, Reply, done, memory_service, refused
from tinker.proto import tinker_public_pb2 as pb
from toy_qwen import CONTEXT, MODEL

from harness.local_service import checkpoint_routes, wire
from harness.local_service.messages import MAX_BODY_BYTES
from harness.reading import MAX_DOCUMENT_BYTES

PROTOBUF = "application/x-protobuf"
CHUNKED = (
    b"POST /api/v1/create_session HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nX-API-Key: " + KEY.encode() + b"\r\nTransfer-Encoding: "
)


@pytest.fixture(scope="module")
def served(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryService]:
    with memory_service(toy_model, tmp_path_factory.mktemp("bodies"), MODEL) as service:
        yield service


def test_a_json_body_is_at_most_16_mib_and_any_body_64(served: MemoryService) -> None:
    assert (MAX_DOCUMENT_BYTES, MAX_BODY_BYTES) == (16 * 2**20, 64 * 2**20)
    assert served.post("create_session", b"{}".ljust(MAX_DOCUMENT_BYTES)).status == 200
    refused(served.post("create_session", b"{}".ljust(MAX_DOCUMENT_BYTES + 1)), 400, "bytes")
    for path in ("create_session", "forward_backward"):
        kind = PROTOBUF if path == "forward_backward" else "application/json"
        large = b"{}".ljust(MAX_BODY_BYTES + 1)
        refused(served.post(path, large, Content_Type=kind), 413, "67108864 bytes")


BOMB_BYTES = 1 << 29
PIECE = bytes(1 << 20)


def bombs() -> dict[str, bytes]:
    """Half a GiB of zeros in each coding that HTTP knows and Python can make."""
    raw = zlib.compressobj(9, wbits=-15)
    made = {"gzip": zlib.compressobj(9, wbits=31), "deflate": zlib.compressobj(9), "raw": raw}
    bodies: dict[str, bytes] = {}
    for name, coder in made.items():
        pieces = [coder.compress(PIECE) for _ in range(BOMB_BYTES // len(PIECE))]
        bodies[name] = b"".join(pieces) + coder.flush()
    return {"gzip": bodies["gzip"], "deflate": bodies["deflate"], "br": bodies["raw"]}


@pytest.mark.slow
def test_a_compressed_bomb_is_refused_and_never_unpacked(served: MemoryService) -> None:
    for coding, body in bombs().items():
        assert len(body) < BOMB_BYTES // 500, f"{coding} does not pack well"
        for path, kind in (("create_session", "application/json"), ("forward_backward", PROTOBUF)):
            tracemalloc.start()
            reply = served.post(path, body, Content_Type=kind, Content_Encoding=coding)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            refused(reply, 415, coding)
            allowed = 8 * len(body) + 2**22
            assert peak <= allowed, f"{peak} bytes for {len(body)} packed ones, not {allowed}"


CODINGS = ["gzip", "deflate", "br", "zstd", "x-gzip", "compress", "gzip, gzip", "GZIP", " "]


@pytest.mark.parametrize("coding", CODINGS)
def test_every_coding_of_a_body_is_refused(served: MemoryService, coding: str) -> None:
    body = gzip.compress(b'{"tags": ["packed"]}')
    reply = served.post("create_session", body, Content_Encoding=coding)
    if coding.strip():
        refused(reply, 415, "not encoded")
    assert reply.status in (400, 415), f"{reply.status}: {reply.body[:200]!r}"


def test_a_bomb_in_the_transfer_coding_is_not_unpacked(served: MemoryService) -> None:
    body = gzip.compress(b"{}" + bytes(1 << 22))
    head = CHUNKED + b"gzip, chunked\r\n\r\n"
    answer = served.raw(head + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")
    assert answer.split(b" ")[1] == b"400", f"packed bytes were taken as JSON: {answer[:200]!r}"


def test_a_body_without_a_length_is_bounded_too(served: MemoryService) -> None:
    head = CHUNKED + b"chunked\r\n\r\n"
    chunk = b"%x\r\n" % len(PIECE) + PIECE + b"\r\n"
    answer = served.raw(head + chunk * 65 + b"0\r\n\r\n")
    assert answer.split(b" ")[1] == b"413", f"65 MiB in chunks: {answer[:200]!r}"


def pass_of(served: MemoryService, session: str, tokens: bytes, numbers: int) -> Reply:
    """Ask for a pass over one datum with these token bytes and so many loss inputs."""
    message = pb.ForwardBackwardRequest(
        model_id=f"{session}:train:0", seq_id=1, loss_fn="cross_entropy"
    )
    datum = message.data.add()
    datum.model_input.add().encoded_text.tokens = tokens
    for name, kind, dtype in (
        ("target_tokens", np.int64, pb.DTYPE_INT64),
        ("weights", np.float32, pb.DTYPE_FLOAT32),
    ):
        datum.loss_fn_inputs[name].dense = np.ones(numbers, kind).tobytes()
        datum.loss_fn_inputs[name].dtype = dtype
    return served.post("forward_backward", message.SerializeToString(), Content_Type=PROTOBUF)


def check_token_bytes(served: MemoryService, session: str) -> None:
    """Token ids are whole int32s, one for each loss input, at most the context."""
    four = np.arange(4, dtype="<i4").tobytes()
    for torn in (four + b"\x01", four[:-1], b"\x01"):
        refused(pass_of(served, session, torn, 4), 400, "int32 token ids")
    refused(pass_of(served, session, four, 3), 400, "one value for each input token")
    refused(pass_of(served, session, four, 5), 400, "one value for each input token")
    long = bytes(4 * (CONTEXT + 1))
    refused(pass_of(served, session, long, CONTEXT + 1), 400, "context")
    assert pass_of(served, session, four, 4).status == 200


def check_pages(served: MemoryService, session: str) -> None:
    """A page is asked for by a limit of 1 to 1000 and an offset of 0 or more, nothing else."""
    wrong = [f"limit={n}" for n in ("0", "-1", "1001", "1e3", "", "9" * 4400, "nan")]
    wrong += [f"offset={n}" for n in ("-1", "1.0", "", "-" + "9" * 4400)]
    for query in wrong:
        for place in ("training_runs", "checkpoints"):
            refused(served.send("GET", f"/api/v1/{place}?{query}"), 400, "limit")
    saved = {"model_id": f"{session}:train:0", "path": "p"}
    done(served, served.post("save_weights", {**saved, "seq_id": 1}))
    done(served, served.post("save_weights", {**saved, "path": "q", "seq_id": 2}))
    whole = served.send("GET", "/api/v1/checkpoints?limit=1000&offset=0").json()["checkpoints"]
    assert len(whole) >= 2, f"{len(whole)} checkpoints are listed, two were saved"
    for query, wanted in (("limit=1", whole[:1]), ("offset=1", whole[1:]), ("offset=9999999", [])):
        page = served.send("GET", f"/api/v1/checkpoints?{query}").json()["checkpoints"]
        assert page == wanted, f"{len(page)} checkpoints under {query}, not {len(wanted)}"


Check = Callable[[MemoryService, str], None]
CHECKS: dict[str, Check] = {"token bytes": check_token_bytes, "pages": check_pages}


@pytest.fixture
def trained(served: MemoryService) -> Iterator[str]:
    """A session with a model."""
    session = served.post("create_session", {}).json()["session_id"]
    about = {"session_id": session, "model_seq_id": 0, "base_model": MODEL}
    done(served, served.post("create_model", {**about, "lora_config": {"rank": 2, "seed": 1}}))
    yield session
    served.post(f"sessions/{session}/finish", {"reason": {"type": "success"}})


@pytest.mark.parametrize("name", CHECKS)
def test_bounds_hold(served: MemoryService, trained: str, name: str) -> None:
    CHECKS[name](served, trained)
    assert served.alarm.records == [], f"something unforeseen: {served.alarm.records[:1]}"


def _unchecked_tokens(chunks: Any, where: str) -> np.ndarray:
    del where
    parts = [chunk.encoded_text.tokens for chunk in chunks]
    return np.frombuffer(b"".join(part[: len(part) // 4 * 4] for part in parts), "<i4")


def _lax_page(request: Any, items: list[Any]) -> tuple[list[Any], dict[str, int]]:
    limit, offset = (int(request.query.get(k, d)) for k, d in (("limit", 20), ("offset", 0)))
    return items[offset : offset + limit], {}


DEFECTS: dict[str, tuple[str, Any, str, Any]] = {
    "torn token ids are cut": ("token bytes", wire, "_decode_tokens", _unchecked_tokens),
    "lengths are not compared": ("token bytes", wire, "_check_lengths", lambda *_: None),
    "any limit and offset": ("pages", checkpoint_routes, "_page", _lax_page),
}
"""Planted defects that answers below 500 hide from fuzzing: the check, where, what, instead."""


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_of_a_bound_is_caught(
    served: MemoryService, trained: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, module, function, instead = DEFECTS[name]
    monkeypatch.setattr(module, function, instead)
    with pytest.raises(AssertionError):
        CHECKS[check](served, trained)
    served.alarm.records.clear()
