"""Gates on the numerical path: rollouts to loss to gradient, offline and on the service (§4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.gates.live_probe import LiveProbe
from harness.gates.parity_facts import parity_facts
from harness.gates.parity_measure import measure_parity
from harness.gates.recorder import GateRecorder
from harness.gates.service_gradient import measure_gradient_parity
from harness.gates.service_parity import measure_loss_parity, measure_lr_scaling
from harness.session import HarnessSession


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
