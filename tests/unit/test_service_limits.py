"""What a client may ask the embedded service to keep: counts, metadata, stop rules, lengths.

Every limit is asked for at its edge (taken) and one beyond (refused by status and field), and what
was refused is taken again once room was made. The limits that are thousands are lowered here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from memory_service import MemoryService, Reply, done, memory_service, refused
from tinker.proto import tinker_public_pb2 as pb
from toy_qwen import CONTEXT, MODEL, VOCAB

from harness.local_service import futures, sampling_routes, sessions
from harness.local_service.requests import MAX_METADATA_BYTES

FINISH = {"reason": {"type": "success"}}


@pytest.fixture(scope="module")
def served(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryService]:
    with memory_service(toy_model, tmp_path_factory.mktemp("limits"), MODEL) as service:
        yield service


@pytest.fixture
def session(served: MemoryService) -> Iterator[str]:
    opened = served.post("create_session", {}).json()["session_id"]
    yield opened
    served.post(f"sessions/{opened}/finish", FINISH)


def busy(reply: Reply) -> None:
    """Check a refusal for want of room: 429, which the SDK may try again."""
    refused(reply, 429, "too many")
    assert "x-should-retry" not in reply.headers, "the SDK is told not to try again"


def model(session: str, number: int, **more: Any) -> dict[str, Any]:
    lora = {"rank": 2, "seed": 1}
    about = {"session_id": session, "model_seq_id": number, "base_model": MODEL}
    return {**about, "lora_config": lora, **more}


def sampler(session: str, number: int) -> dict[str, Any]:
    return {"session_id": session, "sampling_session_seq_id": number, "base_model": MODEL}


def sample(session: str, seq_id: int, rows: int = 1, **params: Any) -> dict[str, Any]:
    return {
        "sampling_session_id": f"{session}:sample:0",
        "seq_id": seq_id,
        "num_samples": rows,
        "prompt": {"chunks": [{"tokens": [5, 6, 7]}]},
        "sampling_params": {"max_tokens": 4, "seed": 1, **params},
    }


def test_sessions_that_are_open_are_counted(
    served: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_OPEN", len(served.service.registry.sessions) + 2)
    made = [served.post("create_session", {}).json()["session_id"] for _ in range(2)]
    busy(served.post("create_session", {}))
    assert served.post("session_heartbeat", {"session_id": made[0]}).status == 200
    assert served.post(f"sessions/{made[0]}/finish", FINISH).status == 200
    made.append(served.post("create_session", {}).json()["session_id"])
    busy(served.post("create_session", {}))
    for opened in made[1:]:
        served.post(f"sessions/{opened}/finish", FINISH)


def test_models_and_samplers_are_counted_and_go_with_their_session(
    served: MemoryService, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_OPEN", 2)
    other = served.post("create_session", {}).json()["session_id"]
    done(served, served.post("create_model", model(other, 0)))
    done(served, served.post("create_model", model(session, 0)))
    busy(served.post("create_model", model(session, 1)))
    for of in (other, session):
        assert served.post("create_sampling_session", sampler(of, 0)).status == 200
    busy(served.post("create_sampling_session", sampler(session, 1)))
    served.post(f"sessions/{other}/finish", FINISH)
    done(served, served.post("create_model", model(session, 1)))
    assert served.post("create_sampling_session", sampler(session, 1)).status == 200


def test_samples_that_wait_are_counted_by_row(
    served: MemoryService, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling_routes, "MAX_ROWS_WAITING", 5)
    assert served.post("create_sampling_session", sampler(session, 0)).status == 200
    busy(served.post("asample", sample(session, 0, rows=6)))
    for seq_id in (1, 2):
        # The second one finds room only if the first gave its five rows back.
        answer = done(served, served.post("asample", sample(session, seq_id, rows=5)))
        assert len(pb.SampleResponse.FromString(answer.body).sequences) == 5


def test_results_that_nobody_fetches_are_counted(
    served: MemoryService, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(futures, "MAX_KEPT", 1)
    monkeypatch.setattr(served.service, "futures", futures.FutureStore())
    served.post("create_sampling_session", sampler(session, 0))
    first = served.post("asample", sample(session, 0))
    busy(served.post("asample", sample(session, 1)))
    done(served, first)
    done(served, served.post("asample", sample(session, 1)))


@pytest.mark.parametrize("where", ["create_session", "create_model", "save_weights"])
def test_metadata_is_at_most_64_kib(served: MemoryService, session: str, where: str) -> None:
    assert MAX_METADATA_BYTES == 65536
    done(served, served.post("create_model", model(session, 0)))

    def asked(size: int) -> Reply:
        metadata = {"k": "a" * (size - len('{"k":""}'))}
        body = {
            "create_session": {},
            "create_model": model(session, 1),
            "save_weights": {"model_id": f"{session}:train:0", "seq_id": 1, "path": "m"},
        }[where]
        return served.post(where, {**body, "user_metadata": metadata})

    refused(asked(65537), 400, "user_metadata")
    assert asked(65536).status == 200


STOPS: dict[str, tuple[Any, Any]] = {
    "strings": (["w1"] * 64, ["w1"] * 65),
    "a string's length": ("w" * 256, "w" * 257),
    "a listed string's length": (["w" * 256], ["w" * 257]),
    "ids": ([VOCAB + 9] * 64, [1] * 65),
    "empty string": ("w1", ""),
    "empty string in a list": (["w1"], ["w1", ""]),
}


@pytest.mark.parametrize("name", STOPS)
def test_stop_rules_are_few_and_short(served: MemoryService, session: str, name: str) -> None:
    allowed, beyond = STOPS[name]
    served.post("create_sampling_session", sampler(session, 0))
    refused(served.post("asample", sample(session, 1, stop=beyond)), 400, "stop")
    done(served, served.post("asample", sample(session, 1, stop=allowed)))


FIELDS: dict[str, tuple[Any, Any]] = {
    "max_tokens": (CONTEXT - 3, CONTEXT - 2),
    "num_samples": (1024, 1025),
    "topk_prompt_logprobs": (VOCAB, VOCAB + 1),
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_sample_is_no_larger_than_the_context_and_the_vocabulary(
    served: MemoryService, session: str, name: str
) -> None:
    served.post("create_sampling_session", sampler(session, 0))

    def asked(value: int) -> dict[str, Any]:
        body = sample(session, 1, max_tokens=1)
        (body["sampling_params"] if name == "max_tokens" else body)[name] = value
        return body

    allowed, beyond = FIELDS[name]
    refused(served.post("asample", asked(beyond)), 400, name)
    done(served, served.post("asample", asked(allowed)))
