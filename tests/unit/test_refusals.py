"""A refused gate is ended by what the service answers, and is unknown, never a pass or a fail."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from mini_project import make_project, run, write_gates
from test_capacity import HandClock

from harness.errors import RefusedError
from harness.gates.refusals import LIMIT_S, Refusals
from harness.redact import Redactor

pytest_plugins = ["pytester"]

ASAMPLE, BEAT, CONFIG = (
    f"/api/v1/{name}" for name in ("asample", "session_heartbeat", "client/config")
)


class Service:
    """Answers on a clock that is moved by hand."""

    def __init__(self) -> None:
        self.hand = HandClock()
        self.refusals = Refusals(
            Redactor.from_environment({"TINKER_API_KEY": "tml-secret-words"}),
            lambda: self.hand.at_s,
        )

    def says(self, status: int, path: str = ASAMPLE, after_s: float = 0.0, text: str = "") -> str:
        self.hand.at_s += after_s
        self.refusals.answer(path, status, text)
        return self.refusals.look()


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.mark.parametrize("status", [429, 503])
def test_a_gate_is_refused_for_two_minutes_before_it_ends(service: Service, status: int) -> None:
    assert LIMIT_S == 120.0
    assert service.says(status) == ""
    assert service.says(status, after_s=119.0) == ""
    assert service.says(status, after_s=1.0) == f"{status} asample:, for 120 s"


def test_the_limit_passes_without_another_answer(service: Service) -> None:
    service.says(429)
    service.hand.at_s += 120.0
    assert service.refusals.look() == "429 asample:, for 120 s"


def test_a_refusal_that_an_answer_broke_begins_anew(service: Service) -> None:
    for _ in range(5):
        assert service.says(429, after_s=60.0) == ""
        assert service.says(200, after_s=50.0) == ""


def test_a_bill_ends_a_gate_at_once_and_names_no_secret(service: Service) -> None:
    said = service.says(402, text='{"error": "tml-secret-words owes"}')
    assert said.startswith("402 asample: "), said
    assert "owes" in said
    assert "secret-words" not in said, said


def test_housekeeping_is_no_work_but_a_client_that_opens_needs_its_configuration(
    service: Service,
) -> None:
    service.says(402, BEAT)
    service.says(503, CONFIG)
    assert service.says(408, after_s=120.0) == "503 client:, for 120 s"
    service = Service()
    service.says(200, "/api/v1/create_session")
    service.says(503, CONFIG)
    assert service.says(200, after_s=500.0) == "", "asked for again beside working requests"


def refused(
    service: Service, status: int = 402, path: str = ASAMPLE, *, swallow: bool = False
) -> None:
    """Wait as a gate does inside the SDK, which never comes back."""
    with service.refusals.watching():
        service.refusals.answer(path, status, "pay" if status == 402 else "")
        try:
            threading.Event().wait(30.0)
        except RefusedError:
            if not swallow:
                raise


@pytest.mark.parametrize("swallow", [False, True], ids=["raised", "taken for something else"])
def test_what_waits_for_a_refusing_service_is_ended(service: Service, swallow: bool) -> None:
    with pytest.raises(RefusedError, match="402 asample: pay"):
        refused(service, swallow=swallow)


def test_what_comes_after_a_refused_gate_has_no_patience_left(service: Service) -> None:
    with pytest.raises(RefusedError):
        refused(service)
    # Its clients are closed in a block of their own, which the service may refuse as well.
    with pytest.raises(RefusedError, match="503 sessions:, for 0 s"):
        refused(service, 503, "/api/v1/sessions/s-1/finish")


def test_a_block_that_is_not_refused_passes(service: Service) -> None:
    with service.refusals.watching():
        service.refusals.answer(ASAMPLE, 429, "")
        service.refusals.answer(ASAMPLE, 200, "")
    assert service.refusals.reason == ""


BODY = """
@pytest.mark.preflight{mark}
@pytest.mark.gate("{gate_id}")
def test_{gate_id}(gate):
    import httpx, tinker
    from harness.capacity import CapacityExhaustedError
    from harness.errors import ServiceError
    from harness.service_fault import Fault, FaultKind
    answer = httpx.Response({code}, request=httpx.Request("POST", "http://127.0.0.1:9"))
    gate.check("quantity", 1.0, effect="nothing", at_most=2.0)
    {act}
"""
RATE = 'raise tinker.RateLimitError("busy", response=answer, body=None)'
REFUSED = {
    "the SDK gives up on 429": (429, RATE),
    "the pilot had no capacity": (429, 'raise CapacityExhaustedError("429 busy", 0, 600)'),
    "the pilot got a bill": (402, 'raise Fault(FaultKind.BILLING, "402 owed").error("arm")'),
}
OWN_FINDINGS = {
    "optimizer_rule": (200, 'raise ValueError("a defect of the gate itself")'),
    "stop_reasons": (410, 'raise Fault(FaultKind.GONE, "410").error("arm")'),
    "sampling_seeds": (429, 'gate.check("quantity", 3.0, effect="nothing", at_most=2.0)'),
}
LIVE = "\n@pytest.mark.live"


def outcomes_of(root: Path) -> dict[str, dict[str, str]]:
    return json.loads((root / "artifacts" / "last-session.json").read_text())["gates"]


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_gate_whose_work_was_refused_is_unknown_and_the_next_one_does_not_ask(
    pytester: pytest.Pytester, name: str
) -> None:
    code, act = REFUSED[name]
    gate_id, later = "optimizer_rule", "feasibility"
    root = make_project(pytester)
    body = BODY.format(mark=LIVE, gate_id=gate_id, code=code, act=act)
    write_gates(root, **{gate_id: body})
    result = run(pytester, "-m", "preflight", "-k", f"{gate_id} or {later}")
    found = outcomes_of(root)
    assert result.ret == 10, "blocked, not failed"
    assert {found[gate_id]["outcome"], found[later]["outcome"]} == {"unknown"}, found
    reason = found[gate_id]["reason"]
    assert reason.startswith("not measured, because the service refused: "), reason
    assert "busy" in reason or f"{code} owed" in reason, reason
    assert found[later]["reason"].startswith("not run, because the service refused: "), found


def test_what_is_no_refusal_stays_a_fail(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    bodies = {
        gate_id: BODY.format(mark=LIVE, gate_id=gate_id, code=code, act=act)
        for gate_id, (code, act) in OWN_FINDINGS.items()
    }
    write_gates(root, **bodies)
    assert run(pytester, "-m", "preflight", "-k", " or ".join(bodies)).ret == 1
    outcomes = {gate_id: found["outcome"] for gate_id, found in outcomes_of(root).items()}
    assert outcomes == dict.fromkeys(bodies, "fail"), outcomes


def test_an_offline_gate_asks_no_service_so_that_its_errors_are_its_own(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    gate_id = "advantage_properties"
    write_gates(root, **{gate_id: BODY.format(mark="", gate_id=gate_id, code=429, act=RATE)})
    run(pytester, "-m", "preflight", "-k", gate_id)
    assert outcomes_of(root)[gate_id]["outcome"] == "fail"
