"""Live gates: every arm starts from the same adapter, and a restore is complete (contract §3)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.gates.initial_identity import measure_initial_identity
from harness.gates.live_probe import LiveProbe
from harness.gates.provenance import identity_facts
from harness.gates.recorder import GateRecorder
from harness.gates.restoration import ROWS_A_STEP, WARM_UP_STEPS, measure_restoration

FIXED_BATCH_ITEMS = 8

pytestmark = [pytest.mark.preflight, pytest.mark.live]


@pytest.mark.gate("initial_identity")
def test_initial_identity(gate: GateRecorder, new_probe: Callable[[int], LiveProbe]) -> None:
    probe = new_probe(FIXED_BATCH_ITEMS)
    found = measure_initial_identity(
        probe.client, probe.spec, probe.problems, probe.folder, probe.label
    )
    source = f"gate initial_identity, exports {probe.label}"
    identity_facts(probe.spec, found, source).record(gate)


@pytest.mark.gate("optimizer_restored")
def test_optimizer_restored(gate: GateRecorder, new_probe: Callable[[int], LiveProbe]) -> None:
    measure_restoration(new_probe(WARM_UP_STEPS * ROWS_A_STEP)).record(gate)
