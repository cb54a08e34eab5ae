"""Defects in how refusals are understood must break the gate ``capacity_answers``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tinker

from harness import answer_log, service_fault
from harness.capacity import CapacityState
from harness.gates import capacity_facts
from harness.gates.capacity_facts import measure_capacity
from harness.gates.fact import VACUOUS, Fact
from harness.gates.live_probe import LiveProbe
from harness.local_service.process import start_service
from harness.problems import load_problems
from harness.service import register_model_tokenizer
from harness.service_fault import FaultKind
from harness.spec import load_spec

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
GATE = "capacity_answers"
Patch = Callable[[pytest.MonkeyPatch], None]


def unknown_503(patch: pytest.MonkeyPatch) -> None:
    """A full service (503) is taken for a slow one."""
    kinds = {429: FaultKind.CAPACITY}
    patch.setattr(service_fault, "_STATUS_KINDS", kinds)


def refusal_as_lost_session(patch: pytest.MonkeyPatch) -> None:
    """429 ends the run instead of being waited for."""
    kinds = {429: FaultKind.GONE, 503: FaultKind.CAPACITY}
    patch.setattr(service_fault, "_STATUS_KINDS", kinds)


def nobody_looks(patch: pytest.MonkeyPatch) -> None:
    """The SDK's answers are not observed at all."""
    patch.setattr(answer_log.AnswerLog, "answer", lambda *_: None)


def refusal_never_over(patch: pytest.MonkeyPatch) -> None:
    """A service that works again is still taken for full."""
    patch.setattr(CapacityState, "answered", lambda *_: None)


def refusal_as_result(patch: pytest.MonkeyPatch) -> None:
    """A refused request is graded as an empty completion."""
    honest = capacity_facts._completions
    calls: list[int] = []

    def emptied(probe: LiveProbe, client: tinker.ServiceClient) -> list[list[int]]:
        found = honest(probe, client)
        calls.append(len(found))
        return found if len(calls) == 1 else [[], *found[1:]]

    patch.setattr(capacity_facts, "_completions", emptied)


DEFECTS: dict[str, Patch] = {
    patch.__name__: patch
    for patch in (
        unknown_503,
        refusal_as_lost_session,
        nobody_looks,
        refusal_never_over,
        refusal_as_result,
    )
}


@pytest.fixture(scope="module")
def measure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], list[Fact]]]:
    spec = load_spec(ROOT / "specs" / "local.json").spec
    register_model_tokenizer(spec)
    problems = load_problems(spec, "test", None).problems[:16]
    data = tmp_path_factory.mktemp("service")
    with (
        start_service(data, base_model=spec.base_model) as service,
        tinker.ServiceClient(base_url=service.base_url, api_key=service.api_key) as client,
    ):

        def once() -> list[Fact]:
            folder = tmp_path_factory.mktemp("gate")
            probe = LiveProbe(client, spec, problems, folder, "capacity", exact=True)
            return list(measure_capacity(probe, service.environment()).facts)

        yield once


def test_honest_code_raises_no_alarm(
    measure: Callable[[], list[Fact]], record_property: Callable[[str, Any], None]
) -> None:
    facts = measure()
    assert len(facts) == 12, f"{len(facts)} facts of two statuses"
    broken = [f"{fact.name} = {fact.value} ({fact.where})" for fact in facts if not fact.holds]
    record_property("false_alarms", {"gate": GATE, "runs": 1, "alarms": len(broken)})
    assert not broken, f"false alarm of {GATE}: {broken}"


@pytest.mark.parametrize("name", list(DEFECTS))
def test_a_planted_defect_is_caught(
    name: str,
    measure: Callable[[], list[Fact]],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, Any], None],
) -> None:
    effect = (DEFECTS[name].__doc__ or "").strip()
    about = {"name": name, "gate": GATE, "effect": effect, "caught_by": []}
    record_property("mutant", about)
    DEFECTS[name](monkeypatch)
    caught = [fact for fact in measure() if not fact.holds and fact.effect != VACUOUS]
    about["caught_by"] = [f"{fact.name} = {fact.value}" for fact in caught]
    assert caught, f"{name} survived {GATE}: {effect}"
