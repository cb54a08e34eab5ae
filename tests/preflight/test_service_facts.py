"""Live gates on facts of the service that both arms rely on (issue 3, part 5; contract §10)."""

from __future__ import annotations

import pytest

from harness.gates.capacity_facts import measure_capacity
from harness.gates.live_probe import LiveProbe
from harness.gates.model_facts import measure_model
from harness.gates.optimizer_rule import measure_optimizer_rule
from harness.gates.recorder import GateRecorder
from harness.gates.sampling_facts import measure_greedy, measure_seeds
from harness.gates.service_facts import measure_agreement, measure_freshness
from harness.gates.stop_facts import measure_stops
from harness.health import get_json
from harness.session import HarnessSession

pytestmark = [pytest.mark.preflight, pytest.mark.live]


@pytest.mark.gate("service_model")
def test_service_model(
    gate: GateRecorder, probe: LiveProbe, harness_session: HarnessSession
) -> None:
    announced = None
    if harness_session.service_name == "embedded":
        access = harness_session.service.environment()
        announced = get_json(
            access["TINKER_BASE_URL"], "get_server_capabilities", access["TINKER_API_KEY"]
        )
    measure_model(probe, announced).record(gate)


@pytest.mark.gate("optimizer_rule")
def test_optimizer_rule(gate: GateRecorder, probe: LiveProbe) -> None:
    measure_optimizer_rule(probe).record(gate)


@pytest.mark.gate("greedy_decoding")
def test_greedy_decoding(gate: GateRecorder, probe: LiveProbe) -> None:
    measure_greedy(probe).record(gate)


@pytest.mark.gate("sampling_seeds")
def test_sampling_seeds(gate: GateRecorder, probe: LiveProbe) -> None:
    measure_seeds(probe).record(gate)


@pytest.mark.gate("stop_reasons")
def test_stop_reasons(gate: GateRecorder, probe: LiveProbe) -> None:
    measure_stops(probe).record(gate)


@pytest.mark.gate("sampler_trainer_agreement")
def test_sampler_trainer_agreement(gate: GateRecorder, probe: LiveProbe) -> None:
    measure_agreement(probe).record(gate)


@pytest.mark.gate("sampler_freshness")
def test_sampler_freshness(gate: GateRecorder, probe: LiveProbe) -> None:
    measure_freshness(probe).record(gate)


@pytest.mark.gate("capacity_answers")
def test_capacity_answers(
    gate: GateRecorder, probe: LiveProbe, harness_session: HarnessSession
) -> None:
    measure_capacity(probe, harness_session.service.environment()).record(gate)
