"""A gate that meets what is not offered is recorded as unknown, wherever in its test that is."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import cast

import pytest
from mini_project import make_project, write_gates
from tinker import TrainingClient
from tinker.types import GetInfoResponse

from harness.service import reported_of

pytest_plugins = ["pytester"]

BODY = """
@pytest.fixture
def refusing_{gate_id}():
    {setup}
    yield
    {teardown}

@pytest.mark.preflight
@pytest.mark.live
@pytest.mark.gate("{gate_id}")
def test_{gate_id}(gate, refusing_{gate_id}):
    gate.check("quantity", {value}, effect="nothing", at_most=2.0)
    {call}
"""
RAISE = (
    "from harness.errors import NotOfferedError;"
    " raise NotOfferedError('asample answered without a thing')"
)


def body(gate_id: str, **parts: str) -> str:
    filled = {"setup": "pass", "teardown": "pass", "call": "pass", "value": "1.0"} | parts
    return BODY.format(gate_id=gate_id, **filled)


def test_not_offered_is_unknown_and_every_other_error_stays_a_fail(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    cases = {
        "initial_identity": body("initial_identity", setup=RAISE),
        "optimizer_rule": body("optimizer_rule", call=RAISE),
        "greedy_decoding": body("greedy_decoding", teardown=RAISE),
        "stop_reasons": body("stop_reasons", call="raise KeyError('ours')"),
        "lr_scaling": body("lr_scaling", value="3.0"),
        "feasibility": body("feasibility"),
    }
    write_gates(root, **cases)
    result = pytester.runpytest_inprocess("-m", "preflight")
    found = json.loads((root / "artifacts" / "last-session.json").read_text())["gates"]
    outcomes = {gate_id: found[gate_id]["outcome"] for gate_id in cases}
    assert outcomes == {
        "initial_identity": "unknown",
        "optimizer_rule": "unknown",
        "greedy_decoding": "unknown",
        "stop_reasons": "fail",
        "lr_scaling": "fail",
        "feasibility": "pass",
    }, found
    for gate_id in ("initial_identity", "optimizer_rule", "greedy_decoding"):
        reason = found[gate_id]["reason"]
        assert reason == "not offered: asample answered without a thing", f"{gate_id}: {reason}"
    text = result.stdout.str()
    assert "NotOfferedError" not in text, "a traceback instead of a sentence"
    assert result.ret == 1, f"a failed gate ends a session with 1, found {result.ret}"


@pytest.mark.parametrize("place", ["top level", "model_data", "nowhere"])
def test_the_models_name_counts_in_either_of_the_sdks_places(place: str) -> None:
    info = GetInfoResponse.model_validate(
        {
            "model_id": "m",
            "model_data": {"model_name": "a/b"} if place == "model_data" else {},
            "model_name": "a/b" if place == "top level" else None,
        }
    )
    training = cast(TrainingClient, SimpleNamespace(get_info=lambda: info))
    expected = None if place == "nowhere" else "a/b"
    found = reported_of(training).get("model_name")
    assert found == expected, f"{place}: expected {expected!r}, found {found!r}"
