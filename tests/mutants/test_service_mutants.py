"""Every planted service fault must break the measurement of the gate that is named beside it.

One service a fault, one at a time. ``-m "live and not slow"`` runs the honest service and five
faults, ``-m live`` all of them. What caught each is in the test's ``mutant`` property.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tinker

from harness.gates.fact import VACUOUS, Fact
from harness.gates.initial_identity import measure_initial_identity
from harness.gates.live_probe import LiveProbe
from harness.gates.model_facts import measure_model
from harness.gates.optimizer_rule import measure_optimizer_rule
from harness.gates.provenance import identity_facts
from harness.gates.restoration import measure_restoration
from harness.gates.sampling_facts import measure_greedy, measure_seeds
from harness.gates.service_facts import measure_agreement, measure_freshness
from harness.gates.service_gradient import measure_gradient_parity
from harness.gates.service_parity import measure_loss_parity, measure_lr_scaling
from harness.gates.stop_facts import measure_stops
from harness.health import get_json
from harness.local_service.process import EmbeddedService, start_service
from harness.problems import Problem, load_problems
from harness.service import register_model_tokenizer
from harness.spec import load_spec
from harness.spec_model import ExperimentSpec
from tests.mutants.service_faults import FAULT_VARIABLE, FAULTS

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
FAST = (
    "optimizer_not_restored",
    "temperature_zero_sampled",
    "seed_clones_rollouts",
    "sampler_one_step_behind",
    "length_reported_as_stop",
)
ITEMS = 16
Measure = Callable[["Subject"], list[Fact]]


class Subject:
    """A running service as the measuring functions need it."""

    def __init__(
        self, service: EmbeddedService, probe: LiveProbe, problems: tuple[Problem, ...]
    ) -> None:
        self.service = service
        self.probe = probe
        self.problems = problems

    def identity(self) -> list[Fact]:
        """The identity gate."""
        probe, spec = self.probe, self.probe.spec
        found = measure_initial_identity(
            probe.client, spec, self.problems[:4], probe.folder, f"{probe.label}-identity"
        )
        return list(identity_facts(spec, found, "a faulty service").facts)

    def model(self) -> list[Fact]:
        """The model gate, with the raw capabilities."""
        announced = get_json(self.service.base_url, "get_server_capabilities", self.service.api_key)
        return list(measure_model(self.probe, announced).facts)


MEASURES: dict[str, Measure] = {
    "initial_identity": lambda subject: subject.identity(),
    "service_model": lambda subject: subject.model(),
} | {
    gate_id: lambda subject, measure=measure: list(measure(subject.probe).facts)
    for gate_id, measure in {
        "optimizer_restored": measure_restoration,
        "optimizer_rule": measure_optimizer_rule,
        "greedy_decoding": measure_greedy,
        "sampling_seeds": measure_seeds,
        "stop_reasons": measure_stops,
        "sampler_trainer_agreement": measure_agreement,
        "sampler_freshness": measure_freshness,
        "service_loss_parity": measure_loss_parity,
        "service_gradient_parity": measure_gradient_parity,
        "lr_scaling": measure_lr_scaling,
    }.items()
}


@pytest.fixture(scope="module")
def spec() -> ExperimentSpec:
    spec = load_spec(ROOT / "specs" / "local.json").spec
    register_model_tokenizer(spec)
    return spec


@pytest.fixture(scope="module")
def problems(spec: ExperimentSpec) -> tuple[Problem, ...]:
    return load_problems(spec, "test", None).problems[:ITEMS]


def decisive(fact: Fact) -> bool:
    """Whether a fact is about the service, not about how much was compared."""
    return fact.effect != VACUOUS and not fact.name.startswith("power")


@contextmanager
def subject(
    spec: ExperimentSpec, problems: tuple[Problem, ...], folder: Path, module: str
) -> Iterator[Subject]:
    with start_service(folder / "data", base_model=spec.base_model, module=module) as service:
        client = tinker.ServiceClient(base_url=service.base_url, api_key=service.api_key)
        with client:
            probe = LiveProbe(client, spec, problems, folder, "mutant", exact=True)
            yield Subject(service, probe, problems)


def test_an_honest_service_breaks_no_rule(
    spec: ExperimentSpec, problems: tuple[Problem, ...], tmp_path: Path
) -> None:
    with subject(spec, problems, tmp_path, "harness.local_service") as honest:
        for gate_id, measure in MEASURES.items():
            facts = measure(honest)
            broken = [f"{fact.name} = {fact.value}" for fact in facts if not fact.holds]
            assert facts, f"{gate_id} measured nothing"
            assert not broken, f"false alarm of {gate_id}: {broken}"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in FAULTS],
)
def test_a_planted_fault_is_caught(
    name: str,
    spec: ExperimentSpec,
    problems: tuple[Problem, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    fault = FAULTS[name]
    monkeypatch.setenv(FAULT_VARIABLE, name)
    with subject(spec, problems, tmp_path, "tests.mutants.service_faults") as faulty:
        facts = MEASURES[fault.gate_id](faulty)
    caught = [fact for fact in facts if not fact.holds and decisive(fact)]
    shown = [f"{fact.name} = {fact.value}" for fact in caught]
    about = {"name": name, "gate": fault.gate_id, "effect": fault.effect, "caught_by": shown}
    request.node.user_properties.append(("mutant", about))
    assert caught, (
        f"fault {name} survived gate {fault.gate_id}: all {len(facts)} facts inside their rules"
        f" ({fault.effect})"
    )
