"""The feasibility record and its projection, against exact arithmetic and hand-worked sums."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from feasibility_records import CPU, UNKNOWN, phase, record_json
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import DocumentError
from harness.feasibility import CORE_PHASES, observed, parse_record, project, section

gate_like = settings(derandomize=True, deadline=None, max_examples=150)
SECONDS = st.floats(0, 1e6, allow_nan=False)
PHASE = st.builds(phase, SECONDS, st.integers(1, 5000), st.integers(0, 10**6))
GPUS = {"gpu_count": 2, "allocation_source": "the scheduler's allocation of job 7"}


def with_phases(**changes: Any) -> dict[str, Any]:
    return record_json(measurements=record_json()["measurements"] | changes)


def test_the_projection_is_the_sum_worked_by_hand() -> None:
    """20/10·10 + 12/3·50 + 8/32·120 + 5 = 20 + 200 + 30 + 5 seconds."""
    found = project(parse_record(record_json()))
    assert found.phase_seconds == {"setup": 20, "training": 200, "evaluation": 30, "recovery": 5}
    assert found.projected_wall_seconds == 255.0
    assert found.unmeasured == ()


@gate_like
@given(st.tuples(*[PHASE] * 6), SECONDS)
def test_the_projection_equals_exact_rational_arithmetic(
    phases: tuple[dict[str, Any], ...], recovery: float
) -> None:
    names = (*CORE_PHASES, "generation", "filter", "audit")
    raw = record_json(
        measurements=dict(zip(names, phases, strict=True)),
        recovery={"seconds": recovery, **CPU},
    )
    exact = Fraction(recovery) + sum(
        Fraction(item["seconds"]) * item["planned_units"] / item["units"] for item in phases
    )
    found = project(parse_record(raw)).projected_wall_seconds
    assert found == pytest.approx(float(exact), rel=1e-12), (
        f"projected {found} s, exact {float(exact)} s, tolerance 1e-12 relative"
    )


@gate_like
@given(PHASE, st.integers(1, 1000))
def test_more_planned_work_never_costs_less(training: dict[str, Any], more: int) -> None:
    longer = training | {"planned_units": training["planned_units"] + more}
    short_s, long_s = (
        project(parse_record(with_phases(training=item))).projected_wall_seconds
        for item in (training, longer)
    )
    assert short_s is not None
    assert long_s is not None
    assert short_s <= long_s, f"{more} more units: {short_s} s to {long_s} s"


@pytest.mark.parametrize("name", CORE_PHASES)
def test_a_phase_that_was_not_measured_is_not_free(name: str) -> None:
    found = project(parse_record(with_phases(**{name: None})))
    assert found.projected_wall_seconds is None
    assert found.projected_gpu_hours is None
    assert found.unmeasured == (name,)


def test_recovery_may_be_unmeasured_and_the_projection_says_so() -> None:
    found = project(parse_record(record_json(recovery=None)))
    assert found.projected_wall_seconds == 250.0
    assert found.unmeasured == ("recovery",)


def test_gpu_hours_weigh_each_phase_by_its_own_allocation() -> None:
    """Training on 2 GPUs: 200 s · 2 / 3600; everything else is on the CPU."""
    raw = with_phases(training=phase(12.0, 3, 50, **GPUS))
    found = project(parse_record(raw))
    assert found.projected_gpu_hours == pytest.approx(400 / 3600, rel=1e-15)
    assert found.projected_wall_seconds == 255.0, "two GPUs do not halve or double wall time"


def test_cpu_only_work_uses_no_gpu() -> None:
    assert project(parse_record(record_json())).projected_gpu_hours == 0.0


@pytest.mark.parametrize("name", [*CORE_PHASES, "recovery"])
def test_one_unknown_allocation_makes_gpu_hours_unknown(name: str) -> None:
    raw = record_json()
    target = raw["recovery"] if name == "recovery" else raw["measurements"][name]
    target |= UNKNOWN
    found = project(parse_record(raw))
    assert found.projected_gpu_hours is None, "a shared service shows no allocation"
    assert found.projected_wall_seconds == 255.0


def test_projected_and_observed_are_three_different_fields() -> None:
    usage = observed({"arm a": 100.0, "arm b": 90.5})
    found = section(parse_record(record_json()), usage)
    assert found["projected_wall_seconds"] == 255.0
    assert found["projected_gpu_hours"] == 0.0
    assert found["observed_usage"]["wall_seconds"] == 190.5
    assert section(parse_record(record_json()))["observed_usage"] is None, "nothing was used yet"


def test_observed_gpu_hours_need_an_allocation() -> None:
    assert observed({"arm": 3600.0})["gpu_hours"] is None
    assert observed({"arm": 3600.0}, gpu_count=0)["gpu_hours"] == 0.0
    assert observed({"arm": 1800.0}, gpu_count=4)["gpu_hours"] == 2.0


def test_the_record_has_the_fields_of_the_contract_and_survives_json() -> None:
    record = parse_record(record_json())
    raw = record.to_json()
    fields = {"config", "effective_config", "primary_endpoint", "source", "measurements"}
    assert set(raw) == fields | {"generation", "recovery"}
    assert set(raw["measurements"]) == set(CORE_PHASES), "phases never given stay out"
    assert parse_record(json.loads(json.dumps(raw, allow_nan=False))) == record


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"seconds": -1.0}, "training"),
        ({"seconds": "12"}, "training.seconds"),
        ({"units": 0}, "training.units"),
        ({"planned_units": -1}, "training.planned_units"),
        ({"samples": 0}, "training.samples"),
        ({"gpu_count": 8, "allocation_source": None}, "allocation_source"),
        ({"gpu_count": 0, "allocation_source": None}, "allocation_source"),
        ({"gpu_count": 8, "allocation_source": ""}, "training.allocation_source"),
        ({"gpu_hours": 1.0}, "training.gpu_hours"),
    ],
)
def test_a_bad_measurement_is_refused_by_name(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(DocumentError, match=path):
        parse_record(with_phases(training=phase(12.0, 3, 50) | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"measurements": {"setup": None, "training": None}},
        {"passed": True},
        {"source": ""},
        {"recovery": {"seconds": 1.0}},
    ],
    ids=["a phase left out", "self-declared flag", "no source", "recovery without allocation"],
)
def test_a_bad_record_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DocumentError, match="contract §6"):
        parse_record(record_json(**changes))


def test_a_projection_that_overflows_is_an_error() -> None:
    raw = with_phases(training=phase(1e308, 1, 10**6))
    with pytest.raises(DocumentError, match="not a finite number"):
        project(parse_record(raw))
