"""A service that does not answer: live gates are not run, say why, and no fail is recorded."""

from __future__ import annotations

import json

import pytest
from mini_project import make_project

from harness import service_access
from harness.errors import ServiceError

pytest_plugins = ["pytester"]


def test_live_gates_are_skipped_with_the_reason_and_without_a_traceback(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(base_url: str) -> None:
        asked.append(base_url)
        raise ServiceError("the training service does not answer", fix="start the service")

    monkeypatch.setattr(service_access, "require_health", refuse)
    monkeypatch.setenv("TINKER_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TINKER_API_KEY", "tml-not-for-anybody")
    root = make_project(pytester)
    result = pytester.runpytest_inprocess("-m", "preflight", "--service", "url", "-rs")
    text = result.stdout.str()
    assert result.ret == 10, text
    assert "Traceback" not in text
    assert "ServiceError" not in text
    assert "not run: the training service does not answer | do: start the service" in text
    assert asked == ["http://127.0.0.1:9"], "asked once, not once a gate"
    gates = json.loads((root / "artifacts" / "last-session.json").read_text())["gates"]
    live = {gate["outcome"] for gate in gates.values() if gate["live"]}
    assert live == {"unknown"}, f"live gates were recorded as {live}"
