"""The comparison with the budget: what fits, what does not, and what nobody knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from feasibility_records import UNKNOWN, phase, record_json, small_spec
from small_run import small_spec_json

from harness.errors import GateError
from harness.feasibility import parse_record
from harness.feasibility_rules import (
    OVER_BUDGET,
    assess,
    config_digest,
    planned_config,
    require_feasible,
)
from harness.gates.catalog import required_gate_ids
from harness.gates.verdict import Outcome
from harness.spec import parse_spec

EXACT_MINUTES = 255.0 / 60.0
"""The record projects 255 s."""


@pytest.mark.parametrize(
    ("minutes", "outcome"),
    [(10.0, Outcome.PASS), (EXACT_MINUTES, Outcome.PASS), (4.24, Outcome.FAIL)],
    ids=["inside", "to the second", "over"],
)
def test_wall_time_is_compared_with_the_budget(minutes: float, outcome: Outcome) -> None:
    found = assess(parse_record(record_json()), small_spec(minutes))
    assert found.outcome is outcome, f"255 s in {minutes} min: {found.findings}"


def test_a_tiny_budget_is_refused_with_both_numbers_and_the_order_of_cuts() -> None:
    with pytest.raises(GateError) as caught:
        require_feasible(parse_record(record_json()), small_spec(0.5))
    text = str(caught.value)
    assert "255" in text
    assert "budget of 30" in text
    cuts = ["optional evaluations", "seeds", "shorten training", "never replace the held-out"]
    places = [text.index(cut) for cut in cuts]
    assert places == sorted(places), f"order of cuts in: {OVER_BUDGET}"


def test_a_run_that_fits_returns_its_projection() -> None:
    found = require_feasible(parse_record(record_json()), small_spec())
    assert found.projected_wall_seconds == 255.0


def test_gpu_hours_over_budget_fail_though_wall_time_fits() -> None:
    """200 s of training on 8 GPUs are 0.444 GPU-hours."""
    raw = record_json()
    raw["measurements"]["training"] |= {"gpu_count": 8, "allocation_source": "job 7"}
    record = parse_record(raw)
    assert assess(record, small_spec(gpu_hours=0.45)).outcome is Outcome.PASS
    assert assess(record, small_spec(gpu_hours=0.44)).outcome is Outcome.FAIL


def test_a_shared_service_is_judged_by_wall_time() -> None:
    raw = record_json()
    for item in (*raw["measurements"].values(), raw["recovery"]):
        item.update(UNKNOWN)
    found = assess(parse_record(raw), small_spec(gpu_hours=0.0))
    assert found.outcome is Outcome.PASS
    assert found.projection.projected_gpu_hours is None


@pytest.mark.parametrize("name", ["setup", "training", "evaluation"])
def test_an_unmeasured_phase_is_unknown_and_never_a_pass(name: str) -> None:
    raw = record_json()
    raw["measurements"][name] = None
    found = assess(parse_record(raw), small_spec())
    assert found.outcome is Outcome.UNKNOWN
    assert f"{name} was not measured" in {item.text for item in found.findings}
    with pytest.raises(GateError, match="pytest -m preflight -k feasibility"):
        require_feasible(parse_record(raw), small_spec())


def test_what_was_measured_can_be_over_budget_without_the_rest() -> None:
    """Training alone is 200 s: with 2 minutes the missing evaluation cannot save the run."""
    raw = record_json()
    raw["measurements"]["evaluation"] = None
    assert assess(parse_record(raw), small_spec(2.0)).outcome is Outcome.FAIL


def _arm_steps(raw: dict[str, Any]) -> None:
    raw["steps"] = 3
    for arm in raw["arms"]:
        arm["steps"] = 3


def _group_size(raw: dict[str, Any]) -> None:
    raw["arms"][0] |= {"group_size": 4, "groups_per_batch": 1}


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "context": (lambda raw: raw.update(max_seq_len=raw["max_seq_len"] // 2), "max_seq_len"),
    "steps": (_arm_steps, "steps"),
    "arms": (_group_size, "arms"),
    "completion length": (lambda raw: raw["execution"].update(max_tokens=40), "arms"),
    "dataset": (lambda raw: raw["dataset"].update(n_examples=11), "dataset"),
    "evaluation size": (lambda raw: raw["eval"].update(n_examples=41), "evaluation"),
    "rank": (lambda raw: raw.update(lora_rank=4), "arms"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_configuration_must_be_measured_again(name: str) -> None:
    change, field = CHANGES[name]
    raw = small_spec_json()
    raw["budget"] = {"gpu_hours": 0.1, "max_wall_minutes": 10}
    change(raw)
    for arm in raw["restoration_preflight"]["groups"][0]["arms"]:
        arm["optimizer_config"]["lora_rank"] = raw["lora_rank"]
    changed = parse_spec(raw, where="the test")
    assert config_digest(planned_config(changed)) != config_digest(planned_config(small_spec()))
    found = assess(parse_record(record_json()), changed)
    assert found.outcome is Outcome.UNKNOWN, f"{name} changed, yet {found.outcome}"
    assert any("stale" in item.text and field in item.text for item in found.findings)


def test_words_about_the_experiment_do_not_make_a_measurement_stale() -> None:
    raw = small_spec_json() | {"title": "another title"}
    raw["budget"] = {"gpu_hours": 0.1, "max_wall_minutes": 10}
    renamed = parse_spec(raw, where="the test")
    assert assess(parse_record(record_json()), renamed).outcome is Outcome.PASS


def test_a_pilot_of_another_schedule_is_not_a_measurement() -> None:
    effective = planned_config(small_spec()) | {"batch_size": 2}
    found = assess(parse_record(record_json(effective_config=effective)), small_spec())
    assert found.outcome is Outcome.UNKNOWN
    assert found.findings[0].text == "stale: effective_config differs from the spec in batch_size"


@pytest.mark.parametrize(
    ("accepted", "planned", "filtered", "outcome"),
    [
        (5, 20, 60, Outcome.PASS),
        (5, 19, 60, Outcome.UNKNOWN),
        (5, 20, 59, Outcome.UNKNOWN),
        (3, 20, 60, Outcome.UNKNOWN),
        (0, 10**6, 10**6, Outcome.FAIL),
    ],
    ids=["enough", "too few candidates", "too few filter samples", "low yield", "no yield"],
)
def test_rejected_candidates_and_filter_samples_are_planned_for(
    accepted: int, planned: int, filtered: int, outcome: Outcome
) -> None:
    """Target 10 at a yield of 5/10: 20 candidates, 3 filter samples each."""
    raw = record_json(
        generation={
            "attempted": 10,
            "accepted": accepted,
            "target_accepted": 10,
            "filter_samples_per_candidate": 3,
        }
    )
    raw["measurements"] |= {
        "generation": phase(0.0, 1, planned),
        "filter": phase(0.0, 1, filtered),
    }
    found = assess(parse_record(raw), small_spec())
    assert found.outcome is outcome, str(found.findings)


@pytest.mark.parametrize("required", [True, False])
def test_the_spec_says_whether_the_gate_is_required(required: bool) -> None:
    spec = small_spec().model_copy(update={"feasibility_required": required})
    ids = required_gate_ids(spec)
    assert ("feasibility" in ids) is required
    if required:
        assert ids.index("feasibility") > ids.index("pilot_activation"), "it reads the pilot"
