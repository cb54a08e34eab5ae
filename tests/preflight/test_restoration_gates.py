"""Live gates: every arm starts from the same adapter, and a restore is complete (contract §3)."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from harness.experiment import Experiment
from harness.gates.initial_identity import measure_initial_identity
from harness.gates.live_probe import LiveProbe
from harness.gates.provenance import identity_facts
from harness.gates.recorder import GateRecorder
from harness.gates.restoration import ROWS_A_STEP, WARM_UP_STEPS, measure_restoration
from harness.problems import load_problems
from harness.service import register_model_tokenizer
from harness.session import HarnessSession

FIXED_BATCH_ITEMS = 8


@pytest.mark.preflight
@pytest.mark.live
@pytest.mark.gate("initial_identity")
def test_initial_identity(
    gate: GateRecorder, harness_session: HarnessSession, experiment: Experiment, tmp_path: Path
) -> None:
    spec = harness_session.loaded.spec
    register_model_tokenizer(spec)
    test = load_problems(spec, "test", harness_session.options.gsm8k_dir)
    name = f"identity-{uuid4().hex[:8]}"
    with experiment.sdk_client() as client:
        found = measure_initial_identity(
            client,
            spec,
            test.problems[:FIXED_BATCH_ITEMS],
            tmp_path,
            name,
        )
    identity_facts(spec, found, f"gate initial_identity, exports {name}").record(gate)


@pytest.mark.preflight
@pytest.mark.live
@pytest.mark.gate("optimizer_restored")
def test_optimizer_restored(
    gate: GateRecorder, harness_session: HarnessSession, experiment: Experiment, tmp_path: Path
) -> None:
    spec = harness_session.loaded.spec
    register_model_tokenizer(spec)
    test = load_problems(spec, "test", harness_session.options.gsm8k_dir)
    with experiment.sdk_client() as client:
        probe = LiveProbe(
            client,
            spec,
            test.problems[: WARM_UP_STEPS * ROWS_A_STEP],
            tmp_path,
            f"restore-{uuid4().hex[:8]}",
            exact=harness_session.service_name == "embedded",
        )
        measure_restoration(probe).record(gate)
