"""The gates a run relied on, judged again from their recorded measurements."""

from __future__ import annotations

from typing import Any

from harness.conclusion import DECISION_NAME, SECTION_OF_GATE
from harness.digest import parse_json
from harness.gates.binding import Binding
from harness.gates.catalog import gate_entry, required_gate_ids
from harness.gates.evidence import SessionEvidence, read_history
from harness.gates.recorder import measures_ok
from harness.plan import GATES_FOLDER, PlannedRun
from harness.reading import read_regular
from harness.result import ResultDocument
from harness.timings import with_observed_usage
from harness.verify_rows import Check, failed, passed, unknown

Sessions = dict[str, SessionEvidence]


def gate_checks(run: PlannedRun, result: ResultDocument) -> list[Check]:
    """Return one check for each gate the spec requires, and one for each section they gave."""
    history = read_history(run.folder / GATES_FOLDER)
    # By file name: a damaged first line must not make the whole session seem absent.
    sessions = {session.name.removesuffix(".jsonl"): session for session in history}
    required = required_gate_ids(run.spec)
    gates = [_gate(run, gate_id, sessions) for gate_id in required]
    files = [failed("gate evidence", session.broken) for session in history if session.broken]
    sections = [gate_id for gate_id in SECTION_OF_GATE if gate_id in required]
    return [*files, *gates, *(_section(run, result, gate_id, sessions) for gate_id in sections)]


def _gate(run: PlannedRun, gate_id: str, sessions: Sessions) -> Check:
    name = f"gate {gate_id}"
    session = _relied_on(run, gate_id, sessions)
    if session is None:
        return unknown(name, "the run keeps no evidence of it")
    if session.broken:
        # The file itself is named once, as a failed check of its own.
        return unknown(name, f"its evidence {session.name} is refused")
    if fault := _binding_fault(run, session, live=gate_entry(gate_id).live):
        return failed(name, fault)
    records = _records(session, gate_id)
    if not records:
        return unknown(name, "the session that was relied on has no record of it")
    flags = [flag for record in records for flag in measures_ok(record["measures"])]
    if not all(flags) or any(record["outcome"] == "fail" for record in records):
        return failed(name, f"{sum(flags)} of {len(flags)} measurements inside their rules")
    if not flags or records[-1]["outcome"] != "pass":
        return unknown(name, f"recorded as {records[-1]['outcome']}, {len(flags)} measurements")
    if not _closed(session, gate_id):
        return unknown(name, "the content was not measured again after the gate")
    return passed(name, f"{len(flags)} measurements inside their rules")


def _relied_on(run: PlannedRun, gate_id: str, sessions: Sessions) -> SessionEvidence | None:
    """Return the session the verdict rests on, or, before there is one, the plan."""
    path = run.folder / DECISION_NAME
    decided = parse_json(read_regular(path), where=path.name) if path.exists() else {}
    relied = decided.get("gates", run.plan.get("gates", {})).get(gate_id)
    return None if relied is None else sessions.get(relied["session"])


def _records(session: SessionEvidence, gate_id: str) -> list[dict[str, Any]]:
    return [
        event for event in session.events if event["type"] == "gate" and event["gate"] == gate_id
    ]


def _binding_fault(run: PlannedRun, session: SessionEvidence, *, live: bool) -> str:
    """Recompute the session's digest from the content it lists and compare it with the plan's."""
    binding = Binding.stored(session.header["binding"])
    digest = binding.digest_for(live=live)
    if session.header["live_digest" if live else "offline_digest"] != digest:
        return "the session's digest is not that of the content it lists"
    if digest != run.plan["binding_digest" if live else "offline_binding_digest"]:
        return "the evidence is bound to other content than the run's"
    return ""


def _closed(session: SessionEvidence, gate_id: str) -> bool:
    """Return whether the first closing after the gate's last record saw the same content."""
    key = "live_digest" if gate_entry(gate_id).live else "offline_digest"
    last = max(
        at
        for at, event in enumerate(session.events)
        if event["type"] == "gate" and event["gate"] == gate_id
    )
    closings = [event[key] for event in session.events[last:] if event["type"] == "closing"]
    return bool(closings) and closings[0] == session.header[key]


def _section(run: PlannedRun, result: ResultDocument, gate_id: str, sessions: Sessions) -> Check:
    """Compare a section of the result with what its gate wrote down while measuring it."""
    section = SECTION_OF_GATE[gate_id]
    posted = getattr(result, section)
    session = _relied_on(run, gate_id, sessions)
    records = [] if session is None else _records(session, gate_id)
    measured = records[-1].get("notes", {}).get(section) if records else None
    if posted is None or measured is None:
        return unknown(section, f"posted: {posted is not None}, measured: {measured is not None}")
    if section == "feasibility":
        measured = with_observed_usage(measured, run.folder)
    if posted != measured:
        return failed(section, f"the result's record is not what gate {gate_id} measured")
    return passed(section, f"as gate {gate_id} measured it")
