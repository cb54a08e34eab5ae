"""Gates on the numerical path: rollouts to loss to gradient, offline and on the service (§4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from harness.experiment import Experiment
from harness.gates.live_probe import LiveProbe
from harness.gates.parity_facts import parity_facts
from harness.gates.parity_measure import measure_parity
from harness.gates.recorder import GateRecorder
from harness.gates.service_gradient import measure_gradient_parity
from harness.gates.service_parity import measure_loss_parity, measure_lr_scaling
from harness.problems import load_problems
from harness.service import register_model_tokenizer
from harness.session import HarnessSession

PROBE_ITEMS = 16


@pytest.fixture(scope="module")
def probe(
    harness_session: HarnessSession,
    experiment: Experiment,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[LiveProbe]:
    spec = harness_session.loaded.spec
    register_model_tokenizer(spec)
    problems = load_problems(spec, "test", harness_session.options.gsm8k_dir).problems
    with experiment.sdk_client() as client:
        yield LiveProbe(
            client,
            spec,
            problems[:PROBE_ITEMS],
            tmp_path_factory.mktemp("correctness"),
            f"correctness-{uuid4().hex[:8]}",
            exact=harness_session.service_name == "embedded",
        )


@pytest.mark.preflight
@pytest.mark.gate("loss_gradient_parity")
def test_loss_gradient_parity(
    gate: GateRecorder, harness_session: HarnessSession, tmp_path: Path
) -> None:
    loaded, root = harness_session.loaded, harness_session.options.root
    parity_facts(loaded, measure_parity(loaded.spec, tmp_path), root).record(gate)


@pytest.mark.preflight
@pytest.mark.live
@pytest.mark.gate("service_loss_parity")
def test_service_loss_parity(gate: GateRecorder, probe: LiveProbe) -> None:
    measure_loss_parity(probe).record(gate)


@pytest.mark.preflight
@pytest.mark.live
@pytest.mark.gate("service_gradient_parity")
def test_service_gradient_parity(gate: GateRecorder, probe: LiveProbe) -> None:
    measure_gradient_parity(probe).record(gate)


@pytest.mark.preflight
@pytest.mark.live
@pytest.mark.gate("lr_scaling")
def test_lr_scaling(gate: GateRecorder, probe: LiveProbe) -> None:
    measure_lr_scaling(probe).record(gate)
