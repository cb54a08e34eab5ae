"""Does the run fit its budget? The record of contract §6, its projection, and the comparison.

Null means not measured, everywhere. What is not measured never counts as free: a run whose set-up,
training or evaluation was not timed, or was timed under another configuration, is unknown.

A second is a second of wall clock; a GPU-hour exists only where somebody says what was allocated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic import model_validator as validator

from harness.digest import canonical_json
from harness.errors import DocumentError
from harness.spec_part import Count, NonNegative

Text = Annotated[str, StringConstraints(min_length=1)]
Whole = Annotated[int, Field(ge=0, lt=2**63)]
CORE_PHASES = ("setup", "training", "evaluation")
"""Phases that every run has; without them there is no projection."""


class FeasibilityPart(BaseModel):
    """Base of every part of the record: frozen, strict, finite, nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class _Allocated(FeasibilityPart):
    """Seconds of something, and the GPUs that were allocated meanwhile.

    ``gpu_count`` is null where nobody says (a shared service) and 0 for work on the CPU only.
    """

    seconds: NonNegative
    gpu_count: Whole | None
    allocation_source: Text | None

    @validator(mode="after")
    def _gpus_need_evidence(self) -> Self:
        if self.gpu_count is not None and self.allocation_source is None:
            raise ValueError(f"gpu_count {self.gpu_count} needs an allocation_source, or be null")
        return self


class Measurement(_Allocated):
    """One phase: ``units`` of work took ``seconds``; the full run plans ``planned_units``.

    ``samples`` is how many separate timings ``seconds`` is the sum of.
    """

    units: Count
    planned_units: Whole
    samples: Count


class Recovery(_Allocated):
    """What one interruption costs, once."""


class Measurements(FeasibilityPart):
    """What was timed; the last three are for experiments that generate their training data."""

    setup: Measurement | None
    training: Measurement | None
    evaluation: Measurement | None
    generation: Measurement | None = None
    filter: Measurement | None = None
    audit: Measurement | None = None

    def taken(self) -> dict[str, Measurement]:
        """Return the phases that were measured, in the order of the run."""
        phases = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: phase for name, phase in phases.items() if phase is not None}


class Generation(FeasibilityPart):
    """What became of the candidates of a sample; the yield is accepted / attempted."""

    attempted: Count
    accepted: Whole
    target_accepted: Count
    filter_samples_per_candidate: NonNegative

    @validator(mode="after")
    def _accepted_were_attempted(self) -> Self:
        if self.accepted > self.attempted:
            raise ValueError(f"accepted {self.accepted} of {self.attempted} attempted")
        return self

    def candidates_needed(self) -> int | None:
        """Return how many candidates the target takes at this yield; None when none is accepted."""
        if self.accepted == 0:
            return None
        return -(-self.target_accepted * self.attempted // self.accepted)


class FeasibilityRecord(FeasibilityPart):
    """The record of contract §6.

    ``config`` is what the spec plans and ``effective_config`` what was timed, in the same form, so
    that a difference is a difference.
    """

    config: dict[str, Any]
    effective_config: dict[str, Any]
    primary_endpoint: Text
    source: Text
    measurements: Measurements
    generation: Generation | None
    recovery: Recovery | None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; optional phases that were never given stay out."""
        return self.model_dump(mode="json", exclude_unset=True)


class Projection(FeasibilityPart):
    """Projected cost of the full run.

    Attributes:
        phase_seconds: seconds / units * planned_units of each measured phase, and recovery.
        projected_wall_seconds: their sum; None when a phase that every run has was not measured.
        projected_gpu_hours: the same weighted by GPUs; None when any allocation is not known.
        unmeasured: what the sums lack.
    """

    phase_seconds: dict[str, float]
    projected_wall_seconds: float | None
    projected_gpu_hours: float | None
    unmeasured: tuple[str, ...]


def project(record: FeasibilityRecord) -> Projection:
    """Return the sum of seconds / units * planned_units over phases, plus recovery, in float64.

    Raises:
        DocumentError: for a sum that is not a finite number.
    """
    taken = record.measurements.taken()
    seconds = {name: item.seconds / item.units * item.planned_units for name, item in taken.items()}
    gpus = {name: item.gpu_count for name, item in taken.items()}
    unmeasured = [name for name in CORE_PHASES if name not in taken]
    if record.recovery is None:
        unmeasured.append("recovery")
    else:
        seconds["recovery"] = record.recovery.seconds
        gpus["recovery"] = record.recovery.gpu_count
    complete = all(name in taken for name in CORE_PHASES)
    return Projection(
        phase_seconds=seconds,
        projected_wall_seconds=_finite_sum(seconds) if complete else None,
        projected_gpu_hours=_gpu_hours(seconds, gpus) if complete else None,
        unmeasured=tuple(unmeasured),
    )


def _gpu_hours(seconds: Mapping[str, float], gpus: Mapping[str, float | None]) -> float | None:
    known = {name: count for name, count in gpus.items() if count is not None}
    if len(known) < len(gpus):
        return None
    return _finite_sum({name: seconds[name] * count for name, count in known.items()}) / 3600.0


def _finite_sum(terms: Mapping[str, float]) -> float:
    if not all(math.isfinite(term) for term in terms.values()):
        raise DocumentError(
            "a projected cost is not a finite number",
            expected="finite seconds for every phase",
            found=str(dict(terms)),
            where="feasibility.measurements",
            fix="measure more units of the phase",
        )
    return math.fsum(terms.values())


def observed(stage_seconds: Mapping[str, float], gpu_count: float | None = None) -> dict[str, Any]:
    """Return what a run really used: never the projection, and never GPUs nobody allocated.

    Args:
        stage_seconds: wall seconds by stage, as measured around each one.
        gpu_count: GPUs by allocation evidence; None for a shared service, 0 for the CPU.
    """
    wall = _finite_sum(stage_seconds)
    return {
        "wall_seconds": wall,
        "gpu_hours": None if gpu_count is None else wall * gpu_count / 3600.0,
        "stages": dict(stage_seconds),
    }


def section(
    record: FeasibilityRecord, observed_usage: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the result's section: the record, both projections and what was used, apart."""
    found = project(record)
    return {
        **record.to_json(),
        "projected_wall_seconds": found.projected_wall_seconds,
        "projected_gpu_hours": found.projected_gpu_hours,
        "observed_usage": None if observed_usage is None else dict(observed_usage),
    }


def parse_record(raw: Mapping[str, Any]) -> FeasibilityRecord:
    """Return the typed record of parsed JSON.

    Raises:
        DocumentError: naming every field that breaks contract §6.
    """
    try:
        return FeasibilityRecord.model_validate_json(canonical_json(dict(raw)))
    except ValidationError as error:
        rows = [
            f"{'.'.join(map(str, detail['loc'])) or 'record'}: {detail['msg']}"
            for detail in error.errors(include_url=False)
        ]
        raise DocumentError(
            "the feasibility record breaks contract §6",
            found="; ".join(rows),
            where="feasibility",
            fix="measure again: pytest -m preflight -k feasibility",
        ) from error
