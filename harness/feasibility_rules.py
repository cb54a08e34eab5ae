"""May the full run start under its budget? The comparison of contract §6, from a record and a spec.

Fail beats unknown beats pass: over budget is a fail whatever else is missing; a record of another
configuration, or without a phase that the run has, is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.digest import sha256_json
from harness.errors import GateError
from harness.feasibility import CORE_PHASES, FeasibilityRecord, Projection, project
from harness.gates.verdict import Outcome
from harness.plan import effective_config
from harness.spec_model import ExperimentSpec

OVER_BUDGET = (
    "drop optional evaluations first, then seeds, then shorten training as a recorded deviation;"
    " never replace the held-out evaluation; if the primary comparison cannot fit, stop:"
    " inconclusive"
)
"""What may be given up, in order (contract §6)."""


@dataclass(frozen=True)
class Finding:
    """One reason why the run may not start."""

    outcome: Outcome
    text: str


@dataclass(frozen=True)
class Assessment:
    """The comparison with the budget.

    Attributes:
        outcome: PASS only when everything needed was measured, on this configuration, and fits.
        findings: what stands against it.
        projection: the sums; its GPU-hours may be None, which decides nothing.
    """

    outcome: Outcome
    findings: tuple[Finding, ...]
    projection: Projection


def planned_config(spec: ExperimentSpec, items: int | None = None) -> dict[str, Any]:
    """Return everything of a spec that time depends on: a change of it needs a new measurement.

    Args:
        spec: the experiment.
        items: number of evaluation items found; default what the spec says.
    """
    return {
        "base_model": spec.base_model,
        "max_seq_len": spec.max_seq_len,
        "batch_size": spec.batch_size,
        "steps": spec.steps,
        "dataset": spec.dataset.model_dump(mode="json"),
        "evaluation": {
            "benchmark": spec.eval.benchmark,
            "n_examples": spec.eval.n_examples if items is None else items,
        },
        "arms": {
            arm.name: effective_config(spec, arm) for arm in spec.at(spec.decision_rule.seeds[0])
        },
        "seeds": len(spec.decision_rule.seeds),
    }


def config_digest(config: Mapping[str, Any]) -> str:
    """Return the digest of a configuration's canonical form."""
    return sha256_json(dict(config))


def assess(record: FeasibilityRecord, spec: ExperimentSpec) -> Assessment:
    """Compare a record's projection with the spec's budget.

    Raises:
        DocumentError: for a projection that is not finite.
    """
    projection = project(record)
    findings = (
        *_configuration(record, spec),
        *_phases(projection),
        *_generation(record),
        *_costs(projection, spec),
    )
    outcomes = {finding.outcome for finding in findings}
    worst = next((item for item in (Outcome.FAIL, Outcome.UNKNOWN) if item in outcomes), None)
    return Assessment(worst or Outcome.PASS, findings, projection)


def require_feasible(record: FeasibilityRecord, spec: ExperimentSpec) -> Projection:
    """Return the projection of a run that fits its budget.

    Raises:
        GateError: for one that does not, or of which too little is known.
    """
    found = assess(record, spec)
    if found.outcome is not Outcome.PASS:
        over = found.outcome is Outcome.FAIL
        raise GateError(
            "the full run may not start: it is not known to fit its budget (contract §6)",
            expected=f"at most {spec.budget.max_wall_minutes:g} min of wall clock"
            f" and {spec.budget.gpu_hours:g} GPU-hours",
            found="; ".join(finding.text for finding in found.findings),
            where="feasibility",
            fix=OVER_BUDGET if over else "measure again: pytest -m preflight -k feasibility",
        )
    return found.projection


def _configuration(record: FeasibilityRecord, spec: ExperimentSpec) -> list[Finding]:
    planned = planned_config(spec)
    return [
        Finding(Outcome.UNKNOWN, f"stale: {name} differs from the spec in {', '.join(changed)}")
        for name, config in (
            ("config", record.config),
            ("effective_config", record.effective_config),
        )
        if (changed := changed_fields(planned, config))
    ]


def changed_fields(planned: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return the top-level fields in which two configurations differ, by digest."""
    return sorted(
        name
        for name in {*planned, *found}
        if (name in planned) != (name in found)
        or sha256_json(planned.get(name)) != sha256_json(found.get(name))
    )


def _phases(projection: Projection) -> list[Finding]:
    return [
        Finding(Outcome.UNKNOWN, f"{name} was not measured")
        for name in projection.unmeasured
        if name in CORE_PHASES
    ]


def _generation(record: FeasibilityRecord) -> list[Finding]:
    """Candidates that will be thrown away, and the samples that filter them, cost time too."""
    if record.generation is None:
        return []
    needed = record.generation.candidates_needed()
    if needed is None:
        return [Finding(Outcome.FAIL, "no generated candidate was accepted: the yield is 0")]
    per_candidate = record.generation.filter_samples_per_candidate
    wanted = {"generation": needed, "filter": math.ceil(needed * per_candidate)}
    taken = record.measurements.taken()
    planned = {name: taken[name].planned_units if name in taken else 0 for name in wanted}
    return [
        Finding(Outcome.UNKNOWN, f"{name} plans {planned[name]:g} of {count} units at this yield")
        for name, count in wanted.items()
        if planned[name] < count
    ]


def _costs(projection: Projection, spec: ExperimentSpec) -> list[Finding]:
    """A part of the cost that is over the budget by itself is a fail, whatever is missing."""
    rows = (
        (
            "wall seconds",
            projection.projected_wall_seconds or math.fsum(projection.phase_seconds.values()),
            spec.budget.max_wall_minutes * 60.0,
        ),
        ("GPU-hours", projection.projected_gpu_hours, spec.budget.gpu_hours),
    )
    return [
        Finding(Outcome.FAIL, f"projected {name} {cost:.6g} exceed the budget of {allowed:.6g}")
        for name, cost, allowed in rows
        if cost is not None and cost > allowed
    ]
