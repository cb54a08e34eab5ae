"""Deviations, feasibility, provenance and commands of a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.arm import read_done
from harness.digest import canonical_json
from harness.evaluate import EVALUATOR_NAME
from harness.plan import INITIAL_NAME
from harness.report_model import Cost, DeviationReport, Fact, Feasibility
from harness.report_source import TIMINGS_NAME, Source, rounded
from harness.run_scores import evaluator_id_of

PHASE_OF_STAGE = {"initial": "setup", "setup": "setup", "arm": "training", "evaluate": "evaluation"}
"""Phases of the projection (contract §6) that a measured stage belongs to."""


def deviations(source: Source) -> tuple[DeviationReport, ...]:
    """Return the recorded departures from the spec."""
    return tuple(
        DeviationReport(
            field=row.field,
            original=canonical_json(row.original).decode(),
            effective=canonical_json(row.effective).decode(),
            reason=row.reason,
        )
        for row in source.result.deviations
    )


def feasibility(source: Source) -> Feasibility:
    """Return budget, projection and what was observed; what nobody measured stays None."""
    section = source.result.feasibility or {}
    budget = source.run.spec.budget
    timings = source.timings()
    usage = section.get("observed_usage") or {}
    wall = _total(timings) if timings else usage.get("wall_seconds")
    return Feasibility(
        budget_wall_s=rounded(budget.max_wall_minutes * 60.0),
        budget_gpu_hours=budget.gpu_hours,
        projected_wall_s=section.get("projected_wall_seconds"),
        projected_gpu_hours=section.get("projected_gpu_hours"),
        observed_wall_s=wall,
        observed_gpu_hours=usage.get("gpu_hours"),
        phases=tuple(_phases(section, timings or ())),
        stages=(*_stages(timings or ()), *_step_sums(source)),
    )


def _phases(section: Mapping[str, Any], timings: Sequence[Mapping[str, Any]]) -> Iterator[Cost]:
    measurements = section.get("measurements") or {}
    for name in ("setup", "training", "evaluation", "generation", "filter", "audit"):
        found = measurements.get(name)
        taken = [row for row in timings if PHASE_OF_STAGE.get(row["stage"]) == name]
        if found is None and not taken and name not in ("setup", "training", "evaluation"):
            continue
        yield Cost(
            name=name,
            projected_s=None if found is None else _projected(found),
            observed_s=_total(taken) if taken else None,
            source="not projected" if found is None else _timed(found),
        )


def _projected(found: Mapping[str, Any]) -> float:
    return rounded(found["seconds"] / found["units"] * found["planned_units"])


def _timed(found: Mapping[str, Any]) -> str:
    return (
        f"{found['seconds']:.4g} s for {found['units']} units in {found['samples']} timings;"
        f" {found['planned_units']} units planned"
    )


def _stages(timings: Sequence[Mapping[str, Any]]) -> Iterator[Cost]:
    for row in timings:
        name = " ".join(str(row[key]) for key in ("stage", "arm") if row.get(key) is not None)
        yield Cost(name=name, projected_s=None, observed_s=row["seconds"], source=TIMINGS_NAME)


def _step_sums(source: Source) -> Iterator[Cost]:
    """Yield what the steps of each arm took by their own clocks; stages hold more than that."""
    for arm in source.run.spec.trainings:
        taken = [row["step_s"] for row in source.steps(arm.name) if "step_s" in row]
        if taken:
            yield Cost(
                name=f"{len(taken)} steps of {arm.name}",
                projected_s=None,
                observed_s=rounded(math.fsum(taken)),
                source="step_s in steps.jsonl, a part of the arm's stage",
            )


def _total(rows: Sequence[Mapping[str, Any]]) -> float:
    return rounded(math.fsum(row["seconds"] for row in rows))


def provenance(source: Source) -> tuple[Fact, ...]:
    """Return what fixes the run: digests, versions, service, checkpoints."""
    return tuple(Fact(name=name, value=str(value)) for name, value in _facts(source))


def _facts(source: Source) -> Iterator[tuple[str, Any]]:
    plan, spec = source.run.plan, source.run.spec
    code = plan["code"]
    yield "run", plan["run"]
    yield "spec digest (SHA-256)", plan["spec_digest"]
    yield "content the gates are bound to", plan["binding_digest"]
    yield "code revision", code.get("head") or "unknown"
    yield "uncommitted changes", {True: "yes", False: "no"}.get(code.get("dirty"), "unknown")
    yield "base model", f"{spec.base_model}, LoRA rank {spec.lora_rank}"
    for key, value in sorted(plan["service"].items()):
        yield f"service: {key}", value
    for split, rows in sorted(plan["problems"].items()):
        yield f"{split} rows", f"{rows['source']}, SHA-256 {rows['sha256']}"
    initial = source.document(INITIAL_NAME)
    if initial is not None:
        yield "initial adapter (SHA-256)", initial["adapter_sha256"] or "not shown by the service"
    for arm in spec.trainings:
        done = read_done(source.run.folder, arm.name)
        yield f"final weights of {arm.name}", "not yet" if done is None else done["sampler_uri"]
    if (source.run.folder / EVALUATOR_NAME).exists():
        yield "evaluator", evaluator_id_of(source.run)
    if source.result.decision is not None:
        rows = source.result.decision.get("observations_file", {})
        yield "rows that decided", f"{rows.get('name')}, SHA-256 {rows.get('sha256')}"
    for name, version in sorted(plan["versions"].items()):
        yield f"version: {name}", version


def commands(source: Source) -> tuple[Fact, ...]:
    """Return the commands that repeat the run, judge it and draw it."""
    plan = source.run.plan
    folder = f"artifacts/runs/{plan['spec']}/{plan['run']}"
    head = plan["code"].get("head")
    found = {
        "the same code": f"git checkout {head}" if head else "unknown: the run names no revision",
        "run it again": f"pytest -m full --spec specs/{plan['spec']}.json --fresh",
        "judge it again from its files": f"python -m harness verify {folder}",
        "draw this report again": f"python -m harness report {folder} --out DIR",
        "print its result": f"python -m harness result {folder}",
        "collect its evidence": f"python -m harness bundle {folder} OUT",
    }
    return tuple(Fact(name=name, value=value) for name, value in found.items())
