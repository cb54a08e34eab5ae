"""The gate on cost: what the full run would take, from measured times, against its budget."""

from __future__ import annotations

import time

import pytest

from harness.errors import ArmError, StoreError
from harness.experiment import Experiment
from harness.gates.budget import budget_facts, feasibility_record, time_evaluation
from harness.gates.not_offered import BEGINNING
from harness.gates.pilot import run_pilot
from harness.gates.pilot_timing import PilotTiming, read_pilot
from harness.gates.recorder import GateRecorder
from harness.plan import PlannedRun, read_plan
from harness.service import register_model_tokenizer
from harness.service_profiles import profile_named
from harness.session import HarnessSession
from harness.store import RunFolder


def newest_pilot(harness_session: HarnessSession) -> tuple[PlannedRun, PilotTiming]:
    """Read the newest pilot, which the activation gate made in this session or an earlier one."""
    options, name = harness_session.options, harness_session.loaded.name
    latest = RunFolder.latest(options.artifacts / "pilot", name)
    if latest is None:
        raise StoreError("no pilot was run", expected="a pilot of this spec", found="none")
    run = read_plan(latest.path, options.gsm8k_dir)
    return run, read_pilot(run, harness_session.binding().digest())


@pytest.fixture
def timed_pilot(
    harness_session: HarnessSession, experiment: Experiment
) -> tuple[PlannedRun, PilotTiming]:
    """A finished pilot of this content; without a usable one from before, it is run here."""
    try:
        return newest_pilot(harness_session)
    except (StoreError, ArmError) as error:
        if pilot := harness_session.gates.outcomes.get("pilot_activation"):
            if pilot[1].startswith(BEGINNING):
                pytest.skip(pilot[1])
            # A second pilot would cost as much and end alike: nothing was measured, so unknown.
            again = harness_session.command("-m preflight -k 'pilot or feasibility'")
            pytest.skip(f"this session's pilot cannot be timed: {error}. Run: {again}")
    run_pilot(experiment)
    return newest_pilot(harness_session)


@pytest.mark.preflight
@pytest.mark.live
@pytest.mark.gate("feasibility")
def test_feasibility(
    gate: GateRecorder,
    harness_session: HarnessSession,
    experiment: Experiment,
    timed_pilot: tuple[PlannedRun, PilotTiming],
) -> None:
    spec = harness_session.loaded.spec
    register_model_tokenizer(spec)
    run, pilot = timed_pilot
    # Started again, to know what a start takes; checkpoints are on disk and outlive it.
    harness_session.service.stop()
    started_s = time.monotonic()
    harness_session.service.environment()
    service_start_s = time.monotonic() - started_s
    with experiment.sdk_client() as client:
        evaluation = time_evaluation(client, run)
    allocation = profile_named(harness_session.service_name).budget.allocation()
    record = feasibility_record(spec, pilot, evaluation, service_start_s, allocation)
    budget_facts(spec, record).record(gate)
