"""The training curves and the gates of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.arm import read_done
from harness.gates.catalog import GateEntry, gate_entry, required_gate_ids
from harness.gates.evidence import SessionEvidence, read_history
from harness.gates.recorder import measures_ok
from harness.plan import GATES_FOLDER
from harness.report_model import ArmTraining, GateReport, Measure, Mutants, StepPoint
from harness.report_source import MUTANTS_NAME, Source
from harness.spec_model import Arm

Row = Mapping[str, Any]
SIGNS = {
    "at_most": "≤",
    "at_least": "≥",
    "above": ">",
    "below": "<",
    "equals": "=",
    "one_of": "one of",
}
"""How each rule of a measurement is written."""


def training(source: Source) -> tuple[ArmTraining, ...]:
    """Return the curves of every arm of the spec, empty where it has no step yet."""
    return tuple(_arm_training(source, arm) for arm in source.run.spec.trainings)


def _arm_training(source: Source, arm: Arm) -> ArmTraining:
    return ArmTraining(
        arm=arm.name,
        mode=arm.advantage_mode,
        planned_steps=arm.steps,
        finished=read_done(source.run.folder, arm.name) is not None,
        attempts=source.attempts(arm.name),
        steps=_points(source.steps(arm.name)),
    )


def _points(rows: Sequence[Row]) -> tuple[StepPoint, ...]:
    points: list[StepPoint] = []
    rollouts = 0
    for row in rows:
        rollouts += row["rollouts"]
        points.append(
            StepPoint(
                step=row["step"],
                rollouts=rollouts,
                reward=row.get("reward_mean"),
                accuracy=row.get("accuracy"),
                format=row.get("format"),
                truncation=row.get("truncation"),
                contributors=(row.get("activation") or {}).get("effective_contributors_median"),
                gap=(row.get("sampler_trainer_gap") or {}).get("max_abs"),
                loss=row.get("loss_sum"),
                length=row.get("completion_tokens_mean"),
            )
        )
    return tuple(points)


def mutants(source: Source) -> Mutants | None:
    """Return the planted defects' summary that was copied into the run, if one was."""
    found = source.document(MUTANTS_NAME)
    if found is None:
        return None
    alarms = found["false_alarms"]
    return Mutants(
        killed=found["killed"],
        run=found["run"],
        not_run=len(found["not_run"]),
        survivors=tuple(found["survivors"]),
        false_alarms=alarms["alarms"],
        clean_runs=alarms["clean_runs"],
    )


def gates(source: Source) -> tuple[GateReport, ...]:
    """Return every required gate with what the session that was relied on measured."""
    history = read_history(source.run.folder / GATES_FOLDER)
    sessions = {session.name.removesuffix(".jsonl"): session for session in history}
    planted = source.document(MUTANTS_NAME)
    rows: Sequence[Row] = () if planted is None else planted["mutants"]
    ids = required_gate_ids(source.run.spec)
    return tuple(_gate(source, gate_entry(gate_id), sessions, rows) for gate_id in ids)


def _gate(
    source: Source,
    entry: GateEntry,
    sessions: Mapping[str, SessionEvidence],
    planted: Sequence[Row],
) -> GateReport:
    relied_on = source.run.plan.get("gates", {}).get(entry.gate_id, {}).get("session", "")
    session = sessions.get(relied_on)
    record = _record(session, entry.gate_id)
    outcome, reason = _outcome(session, record)
    measures = _measures(record.get("measures", ()))
    own = [row for row in planted if row["gate"] == entry.gate_id]
    return GateReport(
        gate=entry.gate_id,
        # As recorded: a catalogue that words it anew does not change an old report.
        clause=record.get("clause", entry.clause),
        proves=entry.proves,
        outcome=outcome,
        reason=reason,
        measured_at=record.get("at"),
        nearest=_nearest(measures, record.get("measures", ())),
        measures=measures,
        mutants_killed=sum(row["killed"] for row in own) if own else None,
        mutants_run=len(own) if own else None,
    )


def _record(session: SessionEvidence | None, gate_id: str) -> Row:
    """Return the last record of a gate in a session whose chain holds."""
    if session is None or session.broken:
        return {}
    events = [e for e in session.events if e["type"] == "gate" and e["gate"] == gate_id]
    return events[-1] if events else {}


def _outcome(session: SessionEvidence | None, record: Row) -> tuple[str, str]:
    """Return what is known; a pass that its own measurements contradict is a fail."""
    if session is not None and session.broken:
        return "unknown", f"its evidence is damaged: {session.broken}"
    if not record:
        return "unknown", "the run keeps no evidence of it"
    if record["outcome"] == "pass" and not all(measures_ok(record["measures"])):
        return "fail", "recorded as passed, but a measurement is outside its rule"
    return record["outcome"], record["reason"]


def _nearest(measures: Sequence[Measure], rows: Sequence[Row]) -> Measure | None:
    """Return the measurement nearest to a numeric limit, one outside its rule first."""
    if not measures:
        return None
    used = [
        _share_used(row["value"], row["rule"]) if measure.inside else math.inf
        for measure, row in zip(measures, rows, strict=True)
    ]
    return measures[used.index(max(used))]


def _share_used(value: Any, rule: Mapping[str, Any]) -> float:
    """Return how much of a limit a measurement takes up; 0 for counts, texts and fixed values."""
    shares = [0.0]
    if isinstance(value, float) and rule.get("at_least") != rule.get("at_most"):
        upper, lower = rule.get("at_most", rule.get("below")), rule.get("at_least")
        if isinstance(upper, int | float) and upper > 0 <= value:
            shares.append(value / upper)
        if isinstance(lower, int | float) and lower > 0 < value:
            shares.append(lower / value)
    return max(shares)


def _allowed(rule: Mapping[str, Any]) -> str:
    """Say a rule with all digits that matter: "at least 0.99999" is not "at least 1"."""
    parts = [f"{SIGNS.get(key, key)} {_bound(bound)}" for key, bound in rule.items()]
    return " and ".join(parts)


def _bound(bound: Any) -> str:
    return f"{bound:.10g}" if isinstance(bound, float) else str(bound)


def _measures(rows: Sequence[Row]) -> tuple[Measure, ...]:
    return tuple(
        Measure(
            name=row["name"],
            value=row["value"],
            allowed=_allowed(row["rule"]),
            where=row["where"],
            inside=inside,
        )
        for row, inside in zip(rows, measures_ok(rows), strict=True)
    )
