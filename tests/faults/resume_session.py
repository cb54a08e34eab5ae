"""One whole small experiment through the real stages, in a process that a test may kill.

``python resume_session.py SPEC ARTIFACTS ROWS [MOMENT]`` prints one line a report and ``DONE`` at
the end. At a moment of :data:`MOMENTS` it prints ``HELD`` instead, and answers its stages no more:
the request that waits cannot end, so whoever kills the session then knows what was durable.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from aiohttp import web

from harness.attempts import whole_rows
from harness.experiment import Experiment
from harness.fault_proxy import FaultProxy, Passing, Rule, fault_proxy
from harness.gates.standing import Standing
from harness.gates.verdict import Outcome
from harness.service_access import ServiceAccess
from harness.session import HarnessSession, Options
from tests.faults.resume_arena import ARM, OTHER_ARM, TEST_ROWS

ROOT = Path(__file__).parents[2]
HELD = "HELD"


def report(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def has_saved(arm: str, step: int) -> Callable[[Path], bool]:
    """Return whether an arm has its state after so many steps, as what continues it reads it."""

    def found(run: Path) -> bool:
        files = (run / "arms" / arm).glob("attempt-*/cookbook/checkpoints.jsonl")
        return any(row["batch"] == step for path in files for row in whole_rows(path))

    return found


def has_trained(arm: str, steps: int) -> Callable[[Path], bool]:
    def found(run: Path) -> bool:
        files = (run / "arms" / arm).glob("attempt-*/steps.jsonl")
        return any(len(whole_rows(path)) == steps for path in files)

    return found


class HalfScored:
    """True from the second half of the test items on, of an arm or the base model."""

    def __init__(self, arm: str | None = None) -> None:
        self.arm = arm
        self.asked = 0

    def __call__(self, run: Path) -> bool:
        self.asked += self.arm is None or (run / "arms" / self.arm / "done.json").exists()
        return self.asked > TEST_ROWS // 2


MOMENTS: Mapping[str, tuple[str, Callable[[Path], bool]]] = {
    "score of the base model": ("asample", HalfScored()),
    "update after a saved state": ("optim_step", has_saved(OTHER_ARM, 2)),
    "first state of an arm": ("save_weights", has_trained(ARM, 1)),
    "update after the first state": ("optim_step", has_saved(ARM, 1)),
    "score of an arm": ("asample", HalfScored(ARM)),
}
"""Endpoint and what must be on disk: the first request to it after that is never answered."""


class HeldAccess:
    """The service as it is, behind a proxy that may hold a request."""

    def __init__(self, access: ServiceAccess, proxy: FaultProxy) -> None:
        self.access = access
        self.proxy = proxy

    def environment(self) -> Mapping[str, str]:
        found = self.access.environment()
        self.proxy.target = found["TINKER_BASE_URL"]
        return {**found, "TINKER_BASE_URL": self.proxy.base_url}

    def stop(self) -> None:
        self.access.stop()


def hold(experiment: Experiment, moment: str) -> Rule:
    endpoint, due = MOMENTS[moment]
    held = False

    async def fault(passing: Passing) -> web.StreamResponse:
        nonlocal held
        if not held and not due(experiment.run.folder):
            return await passing.forward()
        if not held:
            held = True
            report(HELD)
        await asyncio.Event().wait()
        raise AssertionError("a request that is held went on")

    return Rule(endpoint, fault)


def run(spec: Path, artifacts: Path, rows: Path, moment: str | None) -> None:
    session = HarnessSession(Options(ROOT, spec, artifacts=artifacts, gsm8k_dir=rows), report)
    standing = {gate: Standing(gate, Outcome.PASS, "not its subject") for gate in session.required}
    vars(session)["standings"] = lambda: standing
    experiment = Experiment(session)
    with fault_proxy("http://127.0.0.1:9") as proxy:
        try:
            if moment is not None:
                vars(session)["service"] = HeldAccess(session.service, proxy)
                proxy.rules = [hold(experiment, moment)]
            experiment.evaluate("base")
            for arm in session.loaded.spec.arms:
                experiment.train(arm.name)
                experiment.evaluate(arm.name)
            experiment.decide()
        finally:
            session.close()
    report("DONE")


if __name__ == "__main__":
    given = sys.argv[4:]
    run(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), given[0] if given else None)
