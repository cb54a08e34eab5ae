"""What a service does not offer: each gate that needs it is unknown, with route and answer.

The embedded service behind a proxy that takes one thing away at a time. Every live gate but the two
that train is measured in the cases that concern it; those two are in ``tests/faults``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web
from mini_project import ROOT
from tinker.proto import tinker_public_pb2 as proto

from harness.closing_client import ClosingClient
from harness.fault_proxy import Fault, FaultProxy, Passing, Rule, fault_proxy, status
from harness.gates.capacity_facts import measure_capacity
from harness.gates.catalog import CATALOG
from harness.gates.fact import Measured
from harness.gates.initial_identity import measure_initial_identity
from harness.gates.live_probe import LiveProbe
from harness.gates.model_facts import measure_model
from harness.gates.not_offered import LastAnswer, answers_noted, not_offered
from harness.gates.optimizer_rule import measure_optimizer_rule
from harness.gates.provenance import identity_facts
from harness.gates.recorder import GateRecorder
from harness.gates.restoration import measure_restoration
from harness.gates.sampling_facts import measure_greedy, measure_seeds
from harness.gates.service_facts import measure_agreement, measure_freshness
from harness.gates.service_gradient import measure_gradient_parity
from harness.gates.service_parity import measure_loss_parity, measure_lr_scaling
from harness.gates.stop_facts import measure_stops
from harness.local_service.process import EmbeddedService, start_service
from harness.problems import load_problems
from harness.service import register_model_tokenizer
from harness.spec import load_spec

pytestmark = pytest.mark.live


@dataclass(frozen=True)
class Bench:
    """A probe whose requests pass a proxy, and the last answer it got."""

    probe: LiveProbe
    proxy: FaultProxy
    last: LastAnswer
    environment: dict[str, str]


def _identity(bench: Bench) -> Measured:
    probe = bench.probe
    found = measure_initial_identity(
        probe.client, probe.spec, probe.problems[:4], probe.folder, f"{probe.label}-identity"
    )
    return identity_facts(probe.spec, found, "a test")


Measure = Callable[[Bench], Measured]
MEASURES: dict[str, Measure] = {
    "initial_identity": _identity,
    "optimizer_restored": lambda bench: measure_restoration(bench.probe),
    "optimizer_rule": lambda bench: measure_optimizer_rule(bench.probe),
    "service_model": lambda bench: measure_model(bench.probe, None),
    "greedy_decoding": lambda bench: measure_greedy(bench.probe),
    "sampling_seeds": lambda bench: measure_seeds(bench.probe),
    "stop_reasons": lambda bench: measure_stops(bench.probe),
    "sampler_trainer_agreement": lambda bench: measure_agreement(bench.probe),
    "sampler_freshness": lambda bench: measure_freshness(bench.probe),
    "capacity_answers": lambda bench: measure_capacity(bench.probe, bench.environment),
    "service_loss_parity": lambda bench: measure_loss_parity(bench.probe),
    "service_gradient_parity": lambda bench: measure_gradient_parity(bench.probe),
    "lr_scaling": lambda bench: measure_lr_scaling(bench.probe),
}
THROUGH_STAGES = {"pilot_activation", "feasibility"}
SAMPLING = {
    "greedy_decoding",
    "sampling_seeds",
    "stop_reasons",
    "sampler_trainer_agreement",
    "capacity_answers",
}
SCORING = {"sampler_freshness"}
PARITY = {"service_loss_parity", "service_gradient_parity", "lr_scaling"}
EXPORTING = {"initial_identity", "optimizer_restored", "optimizer_rule", "service_model"}


def edited(message: type[Any], edit: Callable[[Any], None]) -> Fault:
    """Answer as the service does, but for what ``edit`` takes out of a result of one kind."""

    async def fault(passing: Passing) -> web.StreamResponse:
        whole = await passing.forward()
        sample = passing.request.headers["X-Tinker-Request-Type"] == "Sample"
        other_kind = sample != (message is proto.SampleResponse)
        if other_kind or "protobuf" not in whole.headers.get("Content-Type", ""):
            return whole
        result = message.FromString(whole.body)
        edit(result)
        return web.Response(body=result.SerializeToString(), headers=whole.headers)

    return fault


def without_key(name: str) -> Fault:
    """Answer as the service does, but for one key of the JSON body."""

    async def fault(passing: Passing) -> web.StreamResponse:
        whole = await passing.forward()
        body = {k: v for k, v in json.loads(bytes(whole.body)).items() if k != name}  # pyright: ignore[reportArgumentType] - the proxy's answers are bytes
        return web.json_response(body, status=whole.status)

    return fault


async def failed_future(passing: Passing) -> web.StreamResponse:
    """Say that the request failed, as a service does for what it cannot do."""
    del passing
    return web.json_response({"error": "LoRA on this layer is not supported", "category": "user"})


def _no_drawn_logprobs(result: Any) -> None:
    for sequence in result.sequences:
        sequence.ClearField("logprobs")


def sample_without(field: str) -> Rule:
    """Take a field out of every sample."""
    return Rule(
        "retrieve_future", edited(proto.SampleResponse, lambda result: result.ClearField(field))
    )


def pass_without(field: str) -> Rule:
    """Take a field out of the result of every forward and backward pass."""
    return Rule(
        "retrieve_future",
        edited(proto.ForwardBackwardOutput, lambda result: result.ClearField(field)),
    )


@dataclass(frozen=True)
class Case:
    """What is taken away, the gates that need it, and what their reason must name."""

    rule: Callable[[], Rule]
    gates: set[str]
    says: tuple[str, ...]


def refused(endpoint: str, code: int, gates: set[str]) -> Case:
    """A route that is answered with a status."""
    return Case(lambda: Rule(endpoint, status(code, "not supported")), gates, (endpoint, f"{code}"))


CASES: dict[str, Case] = {
    "asample 404": refused("asample", 404, SAMPLING | SCORING),
    "asample 400": refused("asample", 400, SAMPLING),
    "asample 501": refused("asample", 501, SAMPLING | {"service_model"}),
    "create_model 400": refused("create_model", 400, set(MEASURES) - {"capacity_answers"}),
    "forward_backward 501": refused(
        "forward_backward", 501, PARITY | SCORING | {"optimizer_rule", "optimizer_restored"}
    ),
    "optim_step 405": refused("optim_step", 405, {"lr_scaling", "optimizer_rule"} | SCORING),
    "load_weights 422": refused(
        "load_weights", 422, PARITY | {"initial_identity", "optimizer_restored", "optimizer_rule"}
    ),
    "save_weights 404": refused("save_weights", 404, PARITY | {"initial_identity"}),
    "save_weights_external 404": refused("save_weights_external", 404, EXPORTING),
    "external_weights_urls 404": refused("training_runs", 404, EXPORTING),
    "save_weights_for_sampler 404": refused(
        "save_weights_for_sampler", 404, (SAMPLING | SCORING) - {"capacity_answers"}
    ),
    "create_sampling_session 400": refused(
        "create_sampling_session", 400, {"capacity_answers", "service_model"}
    ),
    "get_info 404": refused("get_info", 404, {"initial_identity", "service_model"}),
    "get_server_capabilities 404": refused("get_server_capabilities", 404, {"service_model"}),
    "a pass that fails": Case(
        lambda: Rule("retrieve_future", failed_future, request_type="ForwardBackward"),
        PARITY | {"optimizer_rule"},
        ("retrieve_future", "not supported"),
    ),
    "a sample that fails": Case(
        lambda: Rule("retrieve_future", failed_future, request_type="Sample"),
        SAMPLING,
        ("retrieve_future", "not supported"),
    ),
    "no sample_sequence_ids": Case(
        lambda: Rule("asample", without_key("sample_sequence_ids")),
        SAMPLING | SCORING,
        ("answered 200", "sample_sequence_ids"),
    ),
    "no log-probabilities of drawn tokens": Case(
        lambda: Rule("retrieve_future", edited(proto.SampleResponse, _no_drawn_logprobs)),
        {"sampler_trainer_agreement", "sampling_seeds"},
        ("asample", "log-probability a token"),
    ),
    "no prompt log-probabilities": Case(
        lambda: sample_without("prompt_logprobs"),
        {"sampler_freshness", "service_model", "greedy_decoding"},
        ("asample", "prompt_logprobs"),
    ),
    "no top-k log-probabilities": Case(
        lambda: sample_without("topk_prompt_logprobs"),
        {"greedy_decoding", "sampling_seeds"},
        ("asample", "topk_prompt_logprobs"),
    ),
    "no metrics of a pass": Case(
        lambda: pass_without("metrics"),
        {"service_loss_parity", "service_gradient_parity"},
        ("loss:sum",),
    ),
    "no outputs of a pass": Case(
        lambda: pass_without("loss_fn_outputs"),
        {"service_loss_parity", "sampler_trainer_agreement", "initial_identity"},
        ("forward",),
    ),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    spec = load_spec(ROOT / "specs" / "local.json").spec
    register_model_tokenizer(spec)
    folder, last = tmp_path_factory.mktemp("not-offered"), LastAnswer()
    problems = load_problems(spec, "test", None).problems[:16]
    with (
        start_service(folder / "data", base_model=spec.base_model) as service,
        fault_proxy(service.base_url) as proxy,
        answers_noted(last),
        ClosingClient(base_url=proxy.base_url, api_key=service.api_key) as client,
    ):
        probe = LiveProbe(client, spec, problems, folder, "refused", exact=True)
        yield Bench(probe, proxy, last, _environment(service, proxy))


def _environment(service: EmbeddedService, proxy: FaultProxy) -> dict[str, str]:
    return {"TINKER_BASE_URL": proxy.base_url, "TINKER_API_KEY": service.api_key}


def outcome_of(bench: Bench, gate_id: str) -> str:
    """Measure a gate as its test does; return its outcome's first word and why."""
    try:
        MEASURES[gate_id](bench).record(GateRecorder(gate_id, "a test"))
    except Exception as error:  # noqa: BLE001 - whatever ends a test is what the plugin is given
        reason = not_offered(error, bench.last)
        return reason or f"{type(error).__name__}: {error}"
    return "pass"


def test_every_live_gate_is_measured_here_or_through_its_stages() -> None:
    live = {entry.gate_id for entry in CATALOG if entry.live}
    assert set(MEASURES) | THROUGH_STAGES == live, "a new gate needs cases"
    covered = set[str]().union(*(case.gates for case in CASES.values()))
    assert covered == set(MEASURES), f"no case takes anything from {set(MEASURES) - covered}"


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_offered_is_unknown_with_route_and_answer(bench: Bench, name: str) -> None:
    case = CASES[name]
    rule = case.rule()
    bench.proxy.rules.append(rule)
    vars(bench.probe).pop("sampler", None)
    try:
        outcomes = {gate_id: outcome_of(bench, gate_id) for gate_id in sorted(case.gates)}
    finally:
        bench.proxy.rules.remove(rule)
    assert rule.hits, "nothing was taken away"
    wrong = {
        gate_id: outcome
        for gate_id, outcome in outcomes.items()
        if not outcome.startswith("not offered: ") or any(word not in outcome for word in case.says)
    }
    assert not wrong, f"expected 'not offered: …' naming {case.says}, found {wrong}"
