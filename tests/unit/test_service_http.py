"""Plain HTTP against the service: keys, bad bodies, repetitions, order, sessions."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
import requests
from tinker.proto import tinker_public_pb2 as pb
from toy_qwen import MODEL, Wire

pytestmark = pytest.mark.live

ADAM = {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8}


@pytest.fixture
def session(wire: Wire) -> str:
    reply = wire.post("create_session", {"tags": [], "sdk_version": "0.38.0"})
    return reply.json()["session_id"]


def creation(session: str, number: int = 0, **lora: Any) -> dict[str, Any]:
    return {
        "session_id": session,
        "model_seq_id": number,
        "base_model": MODEL,
        "lora_config": {"rank": 2, "seed": 1, **lora},
        "optimizer_config": {"type": "adamw"},
    }


@pytest.fixture
def model(wire: Wire, session: str) -> str:
    return wire.result(wire.post("create_model", creation(session)))["model_id"]


def refused(reply: requests.Response, status: int) -> str:
    """Check a refusal's form and return its text."""
    assert reply.status_code == status, f"{reply.status_code} {reply.text[:300]}"
    body = reply.json()
    assert set(body) == {"error", "category", "status"}
    assert body["category"] == "user"
    return body["error"]


def step(model: str, number: int, **adam: float) -> dict[str, Any]:
    return {"model_id": model, "seq_id": number, "adam_params": ADAM | adam}


def test_models_follow_the_id_rule_of_the_sdk(model: str, session: str) -> None:
    assert model == f"{session}:train:0"


@pytest.mark.parametrize("key", ["", "tml-wrong", "tml-\u00e9"])
def test_no_call_works_without_the_key(wire: Wire, key: str) -> None:
    stranger = Wire(wire.base_url, key)
    for reply in (stranger.get("get_server_capabilities"), stranger.post("create_session", {})):
        text = refused(reply, 401)
        assert wire.key not in text
    assert requests.get(f"{wire.base_url}/api/v1/healthz", timeout=10).json() == {"status": "ok"}


def test_capabilities_by_plain_get_carry_the_digest_and_dtype(wire: Wire) -> None:
    said = wire.get("get_server_capabilities").json()
    assert (said["embedded"], said["dtype"], said["lora_alpha"]) == (True, "float32", 32)
    assert len(said["model_sha256"]) == 64


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        ("create_session", b"{", "JSON"),
        ("create_session", b'{"tags": [], "tags": []}', "tags"),
        ("create_session", b'{"tags": NaN}', "NaN"),
        ("create_session", {"tags": [], "colour": 1}, "colour"),
        ("optim_step", {"model_id": "m", "seq_id": 1}, "adam_params"),
        ("optim_step", {"model_id": "m", "seq_id": 0, "adam_params": ADAM}, "seq_id"),
        ("optim_step", {"model_id": "m", "seq_id": True, "adam_params": ADAM}, "seq_id"),
        ("retrieve_future", {"request_id": 5}, "request_id"),
        (
            "save_weights_external",
            {"model_id": "m", "seq_id": 1, "path": "a", "age_encryption_recipients": ["age1x"]},
            "age_encryption",
        ),
        ("load_weights", {"path": "tinker://x", "optimizer": False}, "session_id"),
    ],
)
def test_bad_bodies_are_400_and_name_the_field(
    wire: Wire, path: str, body: Any, names: str
) -> None:
    assert names in refused(wire.post(path, body), 400)


def test_a_refused_access_token_is_not_repeated(wire: Wire) -> None:
    body = {"path": "tinker://x", "optimizer": False, "weights_access_token": "very-private"}
    text = refused(wire.post("load_weights", body), 400)
    assert "weights_access_token" in text
    assert "very-private" not in text


def test_unsupported_choices_are_400(wire: Wire, session: str) -> None:
    other_base = creation(session) | {"base_model": "Qwen/Qwen3.5-2B"}
    other_optimizer = creation(session) | {"optimizer_config": {"type": "dimuon"}}
    nothing = creation(session, train_attn=False, train_mlp=False, train_unembed=False)
    for body, names in (
        (other_base, "base_model"),
        (other_optimizer, "optimizer_config"),
        (creation(session, rank=129), "rank"),
        (creation(session, rank=0), "rank"),
        (nothing, "no parameters"),
    ):
        assert names in refused(wire.post("create_model", body), 400)


def test_wrong_media_and_paths_and_sizes_are_refused(wire: Wire) -> None:
    refused(wire.post("create_session", {}, Content_Type="text/plain"), 415)
    refused(wire.post("forward_backward", {}), 415)
    refused(wire.post("create_session", gzip.compress(b"{}"), Content_Encoding="gzip"), 415)
    refused(wire.post("create_custom_loss", {}), 404)
    refused(wire.get("optim_step"), 405)
    refused(wire.post("create_session", b"x" * (64 * 1024 * 1024 + 1)), 413)
    refused(wire.get("training_runs/..%2F..%2Fetc"), 404)
    refused(wire.post("weights_info", {"tinker_path": "tinker://../weights/x"}), 400)


def test_unknown_and_finished_things_are_404_and_410(wire: Wire, model: str, session: str) -> None:
    refused(wire.post("retrieve_future", {"request_id": "req-none"}), 404)
    refused(wire.post("get_info", {"model_id": "session-none:train:0"}), 404)
    refused(wire.post("session_heartbeat", {"session_id": "session-none"}), 404)
    assert wire.post("session_heartbeat", {"session_id": session}).status_code == 200
    finish = {"reason": {"type": "success"}}
    for _ in range(2):
        assert wire.post(f"sessions/{session}/finish", finish).status_code == 200
    refused(wire.post("session_heartbeat", {"session_id": session}), 410)
    refused(wire.post("get_info", {"model_id": model}), 410)
    refused(wire.post("optim_step", step(model, 1)), 410)


def test_a_repeated_step_runs_once_and_gets_the_same_answer(wire: Wire, model: str) -> None:
    first = wire.post("optim_step", step(model, 1))
    again = wire.post("optim_step", step(model, 1))
    assert first.json()["request_id"] == again.json()["request_id"]
    assert wire.result(first)["metrics"]["optimizer_step"] == 1.0
    assert wire.result(wire.post("optim_step", step(model, 2)))["metrics"]["optimizer_step"] == 2.0
    refused(wire.post("optim_step", step(model, 2, learning_rate=0.5)), 409)


def test_an_idempotency_key_runs_once_even_without_numbers(wire: Wire) -> None:
    body = {"tags": ["a"], "sdk_version": "0.38.0"}
    pair = [wire.post("create_session", body, x_idempotency_key="k-one").json() for _ in range(2)]
    assert pair[0] == pair[1]
    assert wire.post("create_session", body, x_idempotency_key="k-two").json() != pair[0]
    other = body | {"tags": ["b"]}
    refused(wire.post("create_session", other, x_idempotency_key="k-one"), 409)


def test_requests_run_in_order_of_their_numbers(wire: Wire, model: str) -> None:
    later = [wire.post("optim_step", step(model, n)) for n in (3, 2)]
    first = wire.post("optim_step", step(model, 1))
    steps = [
        wire.result(reply)["metrics"]["optimizer_step"] for reply in (first, later[1], later[0])
    ]
    assert steps == [1.0, 2.0, 3.0]


def test_a_refused_number_does_not_hold_up_the_next(wire: Wire, model: str) -> None:
    assert "eps" in refused(wire.post("optim_step", step(model, 1, eps=0.0)), 400)
    assert wire.result(wire.post("optim_step", step(model, 2)))["metrics"]["optimizer_step"] == 1.0


def test_a_broken_pass_is_400_and_holds_nobody_up(wire: Wire, model: str) -> None:
    body = pb.ForwardBackwardRequest(model_id=model, seq_id=1, loss_fn="dro")
    media = {"Content_Type": "application/x-protobuf"}
    assert "loss" in refused(wire.post("forward_backward", body.SerializeToString(), **media), 400)
    refused(wire.post("forward_backward", b"\xff\xff", **media), 400)
    assert wire.result(wire.post("optim_step", step(model, 2)))["metrics"]["optimizer_step"] == 1.0


def test_late_legacy_load_is_a_user_error(wire: Wire, model: str) -> None:
    saved = {"model_id": model, "seq_id": 1, "path": "early"}
    path = wire.result(wire.post("save_weights", saved))["path"]
    load = {"model_id": model, "path": path, "optimizer": True}
    early = wire.result(wire.post("load_weights", load | {"seq_id": 2}))
    assert early["model_id"] == model
    wire.result(wire.post("optim_step", step(model, 3)))
    late = wire.result(wire.post("load_weights", load | {"seq_id": 4}))
    assert (late["category"], late["status"]) == ("user", 400)
    assert "first training request" in late["error"]


def test_loading_what_is_not_there_fails_the_future(wire: Wire, session: str) -> None:
    gone = f"tinker://{session}:train:9/weights/none"
    body = {"session_id": session, "model_seq_id": 5, "path": gone, "optimizer": False}
    answer = wire.result(wire.post("load_weights", body))
    assert (answer["category"], answer["status"]) == ("user", 404)
    refused(wire.post("get_info", {"model_id": f"{session}:train:5"}), 404)
