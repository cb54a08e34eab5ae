"""The gates a run relied on, judged again from their recorded measurements."""

from __future__ import annotations

from harness.gates.catalog import gate_entry, required_gate_ids
from harness.gates.evidence import SessionEvidence, read_history
from harness.gates.recorder import measures_ok
from harness.plan import GATES_FOLDER, PlannedRun
from harness.verify_rows import Check, failed, passed, unknown


def gate_checks(run: PlannedRun) -> list[Check]:
    """Return one check for each gate the spec requires."""
    sessions = {
        str(session.header.get("session", "")): session
        for session in read_history(run.folder / GATES_FOLDER)
    }
    return [_gate(run, gate_id, sessions) for gate_id in required_gate_ids(run.spec)]


def _gate(run: PlannedRun, gate_id: str, sessions: dict[str, SessionEvidence]) -> Check:
    name = f"gate {gate_id}"
    relied_on = run.plan["gates"].get(gate_id)
    if relied_on is None or relied_on["session"] not in sessions:
        return unknown(name, "the run keeps no evidence of it")
    session = sessions[relied_on["session"]]
    if session.broken:
        return failed(name, session.broken)
    live = gate_entry(gate_id).live
    key = "live_digest" if live else "offline_digest"
    planned = run.plan["binding_digest" if live else "offline_binding_digest"]
    if session.header[key] != planned:
        return failed(name, "the evidence is bound to other content than the run's")
    records = [
        event for event in session.events if event["type"] == "gate" and event["gate"] == gate_id
    ]
    if not records:
        return unknown(name, "the session that was relied on has no record of it")
    flags = measures_ok(records[-1]["measures"])
    if not flags or not all(flags) or records[-1]["outcome"] != "pass":
        return failed(name, f"{sum(flags)} of {len(flags)} measurements inside their rules")
    return passed(name, f"{len(flags)} measurements inside their rules")
