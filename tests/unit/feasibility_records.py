"""Feasibility records to measure other records against: small, round and complete."""

from __future__ import annotations

from typing import Any

from small_run import small_spec_json

from harness.feasibility_rules import planned_config
from harness.spec import parse_spec
from harness.spec_model import ExperimentSpec

CPU = {"gpu_count": 0, "allocation_source": "CPU-only host"}
UNKNOWN = {"gpu_count": None, "allocation_source": None}


def small_spec(minutes: float = 10.0, gpu_hours: float = 0.1) -> ExperimentSpec:
    """Return the small spec with a budget of its own."""
    raw = small_spec_json()
    raw["budget"] = {"gpu_hours": gpu_hours, "max_wall_minutes": minutes}
    return parse_spec(raw, where="the test")


def phase(seconds: float, units: int, planned: int, **changes: Any) -> dict[str, Any]:
    """Return one measurement on the CPU."""
    counts = {"units": units, "planned_units": planned, "samples": 1}
    return {"seconds": seconds, **counts, **CPU, **changes}


def record_json(**changes: Any) -> dict[str, Any]:
    """Return a record of the small spec: 2·10 + 4·50 + 0.25·120 + 5 = 255 s on the CPU."""
    config = planned_config(small_spec())
    return {
        "config": config,
        "effective_config": config,
        "primary_endpoint": "accuracy",
        "source": "a pilot",
        "measurements": {
            "setup": phase(20.0, 10, 10),
            "training": phase(12.0, 3, 50),
            "evaluation": phase(8.0, 32, 120),
        },
        "generation": None,
        "recovery": {"seconds": 5.0, **CPU},
    } | changes
