"""A service that dies or is started again in a step: noticed in seconds, then continued."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

import harness.stage_runner
from harness.errors import ServiceError
from harness.fault_proxy import FaultProxy, Passing, Rule, fault_proxy
from harness.local_service.process import EmbeddedService, start_service
from harness.stage_watch import HEALTH_FAILURES, HEALTH_INTERVAL_S
from tests.faults.conftest import Undisturbed
from tests.faults.fault_summary import STOPPED
from tests.faults.forked_stage import run_forked
from tests.faults.small_experiment import ARM, SmallRun, small_spec
from tests.faults.test_wire_faults import recorded

pytestmark = pytest.mark.slow

NOTICED_WITHIN_S = HEALTH_FAILURES * HEALTH_INTERVAL_S + 20.0
"""Four polls, and what a busy machine adds; the SDK alone needs five minutes."""


class Restartable:
    """A service behind a proxy whose address stays the same over restarts."""

    def __init__(self, folder: Path, proxy: FaultProxy) -> None:
        self.folder = folder
        self.proxy = proxy
        self.running = self._start()

    def _start(self) -> EmbeddedService:
        service = start_service(self.folder, base_model=small_spec()["base_model"])
        self.proxy.target = service.base_url
        return service

    def restart(self) -> None:
        self.running.stop()
        self.running = self._start()


@pytest.fixture
def restartable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Restartable]:
    monkeypatch.setattr(harness.stage_runner, "run_stage", run_forked)
    with fault_proxy("http://127.0.0.1:9") as proxy:
        service = Restartable(tmp_path / "data", proxy)
        try:
            yield service
        finally:
            service.running.stop()


def test_a_service_killed_in_a_step_is_noticed_and_the_run_continues_after_a_restart(
    restartable: Restartable,
    undisturbed: Undisturbed,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    run = SmallRun(tmp_path / "run", restartable.running, restartable.proxy, None)
    died_s: list[float] = []

    async def die(passing: Passing) -> web.StreamResponse:
        died_s.append(time.monotonic())
        threading.Thread(target=restartable.running.stop).start()
        return await passing.forward()

    rule = Rule("optim_step", die, times=1, after=1)
    restartable.proxy.rules = [rule]
    with pytest.raises(
        ServiceError, match=r"stopped answering|answered with an error|lost"
    ) as stop:
        run.experiment().train(ARM)
    seconds = time.monotonic() - died_s[0]
    about = {"hits": rule.hits, "seconds": seconds, "says": stop.value.problem}
    recorded(request, "service killed in a step", outcome=STOPPED, **about)
    assert seconds <= NOTICED_WITHIN_S, f"noticed after {seconds:.1f} s of {NOTICED_WITHIN_S:.0f} s"
    assert run.result().status == "running"
    restartable.proxy.rules = []
    restartable.restart()
    run.access.values["TINKER_API_KEY"] = restartable.running.api_key
    run.experiment().train(ARM)
    assert run.records() == undisturbed.records, "other numbers after the restart"


def test_a_service_restarted_in_a_step_stops_the_run_which_then_continues(
    restartable: Restartable,
    undisturbed: Undisturbed,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    run = SmallRun(tmp_path / "run", restartable.running, restartable.proxy, None)
    restarts: list[threading.Thread] = []

    async def restart(passing: Passing) -> web.StreamResponse:
        restarts.append(threading.Thread(target=restartable.restart))
        restarts[0].start()
        return await passing.forward()

    rule = Rule("optim_step", restart, times=1)
    restartable.proxy.rules = [rule]
    started_s = time.monotonic()
    with pytest.raises(ServiceError) as stop:
        run.experiment().train(ARM)
    seconds = time.monotonic() - started_s
    restarts[0].join()
    about = {"hits": rule.hits, "seconds": seconds, "says": stop.value.problem}
    recorded(request, "service restarted in a step", outcome=STOPPED, **about)
    assert "Continue with: " in run.result().summary
    run.access.values["TINKER_API_KEY"] = restartable.running.api_key
    run.experiment().train(ARM)
    assert run.records() == undisturbed.records, "other numbers after the restart"
    shutil.rmtree(tmp_path / "data")
