"""Which service a session talks to, what identifies it, and that no secret leaks from either."""

from __future__ import annotations

import http.client
import io
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mini_project import ROOT
from small_run import LOCAL_SPEC

from harness import service_access
from harness.errors import ServiceError, UsageError
from harness.health import get_json, public_address
from harness.service_access import (
    START_TIMEOUT_S,
    ServiceAccess,
    choose_service,
    service_identity,
)
from harness.spec import load_spec
from harness.spec_model import ExperimentSpec

SAVED = load_spec(ROOT / "specs" / "exp_6ba12d6b47.json").spec
NOBODY = "http://127.0.0.1:9"
"""Port 9 (discard) of this machine: nothing listens there."""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TINKER_BASE_URL", "TINKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_BASE_URL", NOBODY)
    monkeypatch.setenv("TINKER_API_KEY", "tml-not-a-real-key")


@pytest.mark.parametrize(("spec", "expected"), [(LOCAL_SPEC, "embedded"), (SAVED, "url")])
def test_the_spec_knows_its_service(spec: ExperimentSpec, expected: str) -> None:
    assert choose_service(None, spec) == expected


@pytest.mark.usefixtures("variables")
def test_the_url_service_may_be_asked_for_by_name() -> None:
    assert choose_service("url", LOCAL_SPEC) == "url"


@pytest.mark.parametrize(
    ("asked", "spec", "message"),
    [
        ("modal", LOCAL_SPEC, "expected: embedded or spindle or .* or url .* found: modal"),
        ("embedded", SAVED, "embedded section.*specs/local.json"),
        ("url", LOCAL_SPEC, "missing: TINKER_BASE_URL, TINKER_API_KEY"),
    ],
)
def test_a_service_that_cannot_be_had_is_a_usage_error(
    asked: str, spec: ExperimentSpec, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        choose_service(asked, spec)


def test_the_embedded_service_is_identified_by_model_arithmetic_and_seed() -> None:
    assert LOCAL_SPEC.embedded is not None
    found = service_identity("embedded", LOCAL_SPEC)
    assert found == {
        "service": "embedded",
        "base_model": "embedded/gradeschool",
        "model_sha256": LOCAL_SPEC.embedded.base_model_sha256,
        "dtype": "float32",
        "service_seed": 0,
    }
    other = LOCAL_SPEC.embedded.model_copy(update={"dtype": "float64"})
    changed = service_identity("embedded", LOCAL_SPEC.model_copy(update={"embedded": other}))
    assert changed != found


def test_another_services_identity_is_its_address_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-secret")
    monkeypatch.setenv("TINKER_BASE_URL", "https://user:secret@host:8443/tinker/?sig=secret")
    found = service_identity("url", SAVED)
    assert found == {"service": "url", "base_url": "https://host:8443/tinker"}


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://key@host/", "https://host"),
        ("https://host/a/b?token=x#y", "https://host/a/b"),
        ("https://a@b@[::1]:9/x", "https://[::1]:9/x"),
        ("", ""),
    ],
)
def test_a_public_address_has_no_user_query_or_fragment(url: str, public: str) -> None:
    assert public_address(url) == public


FAULTS = (
    urllib.error.URLError("connection refused"),
    http.client.RemoteDisconnected("closed"),
    http.client.BadStatusLine("not HTTP"),
    TimeoutError("timed out"),
)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[str]]:
    """Return a function that makes every request give one body or fault, and keeps the URLs."""

    def give(body: Any) -> list[str]:
        asked: list[str] = []

        def urlopen(request: urllib.request.Request, timeout: float) -> io.BytesIO:
            assert timeout == 10.0
            asked.append(request.full_url)
            if isinstance(body, Exception):
                raise body
            return io.BytesIO(body)

        monkeypatch.setattr(urllib.request, "urlopen", urlopen)
        return asked

    return give


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_nobody_answering_is_said_without_credentials(
    answers: Callable[[Any], list[str]], fault: Exception
) -> None:
    asked = answers(fault)
    with pytest.raises(ServiceError) as failure:
        get_json("http://user:secret@127.0.0.1:9/?sig=secret", "healthz", "tml-secret")
    message = str(failure.value)
    assert "http://127.0.0.1:9 healthz" in message
    assert "correct TINKER_BASE_URL" in message
    assert "secret" not in message
    assert asked == ["http://127.0.0.1:9/api/v1/healthz"]


@pytest.mark.parametrize(
    ("body", "found"), [(b"[]", "list"), (b"<html>", "DocumentError"), (b"NaN", "DocumentError")]
)
def test_an_answer_that_is_no_object_is_refused(
    answers: Callable[[Any], list[str]], body: bytes, found: str
) -> None:
    answers(body)
    with pytest.raises(ServiceError, match=f"found: {found}"):
        get_json(NOBODY, "healthz", None)


def test_an_answer_is_returned_as_it_is(answers: Callable[[Any], list[str]]) -> None:
    answers(b'{"status": "ok"}')
    assert get_json(NOBODY, "healthz", None) == {"status": "ok"}


def test_a_service_without_variables_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="TINKER_BASE_URL and TINKER_API_KEY"):
        ServiceAccess("url", SAVED, tmp_path).environment()


@pytest.mark.usefixtures("variables")
def test_a_dead_service_is_noticed_before_the_sdk_is(
    tmp_path: Path, answers: Callable[[Any], list[str]]
) -> None:
    answers(FAULTS[0])
    with pytest.raises(ServiceError, match="does not answer"):
        ServiceAccess("url", SAVED, tmp_path).environment()


@pytest.mark.usefixtures("variables")
def test_a_living_service_gets_its_own_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(service_access, "require_health", asked.append)
    found = ServiceAccess("url", SAVED, tmp_path).environment()
    assert found == {
        "TINKER_BASE_URL": NOBODY,
        "TINKER_API_KEY": "tml-not-a-real-key",
        "TINKER_TELEMETRY": "0",
    }
    assert asked == [NOBODY]


class FakeService:
    """An embedded service that only counts."""

    started: list[tuple[Path, dict[str, Any]]]
    stopped = 0
    running = True

    @classmethod
    def start(cls, folder: Path, **options: Any) -> FakeService:
        cls.started.append((folder, options))
        return cls()

    def environment(self) -> dict[str, str]:
        return {"TINKER_BASE_URL": NOBODY}

    def stop(self) -> None:
        type(self).stopped += 1


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeService]:
    FakeService.started, FakeService.stopped, FakeService.running = [], 0, True
    monkeypatch.setattr(service_access, "start_service", FakeService.start)
    return FakeService


def test_the_embedded_service_starts_once_and_as_the_spec_says(
    fake: type[FakeService], tmp_path: Path
) -> None:
    access = ServiceAccess("embedded", LOCAL_SPEC, tmp_path / "service")
    assert fake.started == [], "nothing starts before it is needed"
    assert access.environment() == access.environment()
    assert fake.started == [
        (
            tmp_path / "service" / "data",
            {
                "dtype": "float32",
                "seed": 0,
                "model_dir": None,
                "base_model": "embedded/gradeschool",
                "log_path": tmp_path / "service" / "service.log",
                "timeout_s": START_TIMEOUT_S,
            },
        )
    ]
    access.stop()
    access.stop()
    assert fake.stopped == 1


def test_an_embedded_service_that_died_is_started_again_on_its_folder(
    fake: type[FakeService], tmp_path: Path
) -> None:
    access = ServiceAccess("embedded", LOCAL_SPEC, tmp_path / "service")
    access.environment()
    fake.running = False
    access.environment()
    first, second = fake.started
    assert first == second, "the same folder, so that its checkpoints are found again"
    assert fake.stopped == 1, "what was left of the first is cleaned up"


def test_a_model_other_than_the_specs_is_refused(
    fake: type[FakeService], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.setattr(service_access, "MODEL_DIR", model)
    with pytest.raises(ServiceError, match=r"embedded\.base_model_sha256.*revised spec"):
        ServiceAccess("embedded", LOCAL_SPEC, tmp_path).environment()
    assert fake.started == []


def test_a_missing_model_is_refused(
    fake: type[FakeService], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_access, "MODEL_DIR", tmp_path)
    with pytest.raises(ServiceError, match="missing: run make local-model"):
        ServiceAccess("embedded", LOCAL_SPEC, tmp_path).environment()
    assert fake.started == []
