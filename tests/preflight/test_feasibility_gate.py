"""The gate on cost: what the full run would take, from measured times, against its budget."""

from __future__ import annotations

import time

import pytest

from harness.errors import StoreError
from harness.experiment import Experiment
from harness.gates.budget import budget_facts, feasibility_record, time_evaluation
from harness.gates.pilot import run_pilot
from harness.gates.pilot_timing import read_pilot
from harness.gates.recorder import GateRecorder
from harness.plan import PlannedRun, read_plan
from harness.service import register_model_tokenizer
from harness.session import HarnessSession
from harness.store import RunFolder


def newest_pilot(experiment: Experiment, harness_session: HarnessSession) -> PlannedRun:
    """The pilot of the activation gate; a spec without that gate gets one of its own."""
    options, name = harness_session.options, harness_session.loaded.name
    if not harness_session.loaded.spec.activation_gate.applicable:
        run_pilot(experiment)
    latest = RunFolder.latest(options.artifacts / "pilot", name)
    if latest is None:
        raise StoreError(
            "no pilot was run",
            expected="a pilot of this spec",
            found="nothing",
            where=f"pilot/runs/{name}",
            fix="pytest -m preflight -k 'pilot_activation or feasibility'",
        )
    return read_plan(latest.path, options.gsm8k_dir)


@pytest.mark.preflight
@pytest.mark.live
@pytest.mark.gate("feasibility")
def test_feasibility(
    gate: GateRecorder, harness_session: HarnessSession, experiment: Experiment
) -> None:
    spec = harness_session.loaded.spec
    register_model_tokenizer(spec)
    run = newest_pilot(experiment, harness_session)
    pilot = read_pilot(run, harness_session.binding().digest())
    # Started again, to know what a start takes; checkpoints are on disk and outlive it.
    harness_session.service.stop()
    started_s = time.monotonic()
    harness_session.service.environment()
    service_start_s = time.monotonic() - started_s
    with experiment.sdk_client() as client:
        evaluation = time_evaluation(client, run)
    embedded = harness_session.service_name == "embedded"
    record = feasibility_record(spec, pilot, evaluation, service_start_s, embedded=embedded)
    budget_facts(spec, record).record(gate)
