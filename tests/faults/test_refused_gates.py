"""Live gates that the service refuses end soon, unknown, and say what it answered.

The gates are the real ones, run by pytest inside this process in a small project whose service is
the embedded one behind the fault proxy.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from harness.fault_proxy import FaultProxy, Passing, Rule, fault_proxy, status
from harness.gates import refusals
from harness.local_service.process import EmbeddedService
from tests.faults.fault_summary import STOPPED
from tests.faults.test_wire_faults import recorded
from tests.unit.mini_project import ROOT, make_project

GATES = ("greedy_decoding", "stop_reasons", "sampler_freshness")
SOON_S = 30.0
"""What opening a client takes beside other work, and the patience that these tests give a gate."""


class Gates:
    """The real live gates in a project of their own."""

    def __init__(self, pytester: pytest.Pytester, proxy: FaultProxy) -> None:
        self.pytester = pytester
        self.proxy = proxy
        self.root = make_project(pytester)
        (self.root / "tests" / "preflight" / "test_gates.py").unlink()
        theirs, ours = ROOT / "tests" / "preflight", self.root / "tests" / "preflight"
        shutil.copy(theirs / "conftest.py", ours)
        # Under a name of its own: the session that runs this test may have imported the original.
        shutil.copy(theirs / "test_service_facts.py", ours / "test_facts_of_a_service.py")

    def run(self) -> tuple[float, str]:
        """Run three of them; return seconds and what was printed."""
        started_s = time.monotonic()
        chosen = " or ".join(GATES)
        result = self.pytester.runpytest_inprocess(
            "-m", "preflight", "-k", chosen, "--service", "url", "-rs"
        )
        assert result.ret in (0, 10), result.stdout.str()
        return time.monotonic() - started_s, result.stdout.str()

    def found(self) -> dict[str, Any]:
        return json.loads((self.root / "artifacts" / "last-session.json").read_text())["gates"]


@pytest.fixture
def gates(
    pytester: pytest.Pytester, service: EmbeddedService, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gates]:
    with fault_proxy(service.base_url) as proxy:
        monkeypatch.setenv("TINKER_BASE_URL", proxy.base_url)
        monkeypatch.setenv("TINKER_API_KEY", service.api_key)
        yield Gates(pytester, proxy)


async def pass_on(passing: Passing) -> web.StreamResponse:
    return await passing.forward()


REFUSED = {
    "gate: 402 at the session": ("create_session", 402),
    "gate: 402 at a model": ("create_model", 402),
    "gate: 429 on sampling": ("asample", 429),
    "gate: 503 on everything": ("*", 503),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_gate_that_is_refused_is_unknown_soon_and_no_other_gate_asks(
    name: str, gates: Gates, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    endpoint, code = REFUSED[name]
    monkeypatch.setattr(refusals, "LIMIT_S", 2.0)
    # Signs of life pass: a service that gives none is found out before any gate runs.
    rules = [Rule("healthz", pass_on), Rule(endpoint, status(code, "made up"))]
    gates.proxy.rules = rules
    seconds, text = gates.run()
    first, *others = GATES
    found = gates.found()
    says = found[first]["reason"]
    about = {"hits": rules[1].hits, "seconds": seconds, "says": says}
    recorded(request, name, outcome=STOPPED, **about)
    assert rules[1].hits, "nothing was refused"
    assert {gate["outcome"] for gate in found.values()} == {"unknown"}, found
    assert says.startswith(f"not measured, because the service refused: {code} "), says
    assert "made up" in says, says
    assert "Later: pytest -m preflight -k greedy_decoding" in says, says
    for gate in others:
        assert found[gate]["reason"].startswith("not run, because the service refused: "), found
    assert seconds <= SOON_S, f"{seconds:.1f} s of {SOON_S:.0f} s; the SDK alone takes an hour"
    assert "Traceback" not in text, text
