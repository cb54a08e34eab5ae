"""The words on the terminal: header, one line a gate, the end of a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.gates.catalog import gate_entry
from harness.gates.recorder import GateRecorder, render_rule, short
from harness.gates.verdict import Outcome
from harness.result import read_result
from harness.run_files import HTML_NAME, RESULT_NAME
from harness.session import HarnessSession

_MEASURES_SHOWN = 2
_FILES_SHOWN = 6


def header_lines(session: HarnessSession) -> list[str]:
    """Return the session's header: spec, service, budget and how the gates stand."""
    loaded = session.loaded
    budget = loaded.spec.budget
    standings = session.standings().values()
    proven = sum(standing.outcome is Outcome.PASS for standing in standings)
    lines = [
        f"experiment: {loaded.name}  digest {loaded.digest[:12]}  arms "
        + ", ".join(arm.name for arm in loaded.spec.trainings),
        f"service: {session.service_name}  budget: {budget.gpu_hours:g} GPU-hours, "
        f"{budget.max_wall_minutes:g} minutes",
        f"gates: {proven} of {len(standings)} proven",
    ]
    stale = [standing for standing in standings if standing.changed]
    if stale:
        names = sorted({name for standing in stale for name in standing.changed})
        more = len(names) - _FILES_SHOWN
        shown = ", ".join(names[:_FILES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        lines.append(f"stale gates: {len(stale)}; changed since: {shown}")
    return lines


def gate_line(
    gate_id: str, outcome: Outcome, reason: str, measures: Sequence[Mapping[str, Any]]
) -> str:
    """Say one gate: id, outcome, clause, and measured against allowed."""
    shown = "; ".join(
        f"{item['name']} {short(item['value'])} (allowed {render_rule(item['rule'])})"
        for item in measures[:_MEASURES_SHOWN]
    )
    more = len(measures) - _MEASURES_SHOWN
    rest = f"; {more} more measurements" if more > 0 else ""
    why = "" if outcome is Outcome.PASS else reason
    head = f"gate {gate_id}: {outcome} [{gate_entry(gate_id).clause}]"
    return "  ".join(part for part in (head, shown + rest, why) if part)


def finished_gate_line(session: HarnessSession, gate_id: str) -> str:
    """Say a gate of this session, at the moment it is judged."""
    outcome, reason = session.gates.outcomes[gate_id]
    return gate_line(gate_id, outcome, reason, session.gates.runs[gate_id].recorder.measures)


def closing_lines(session: HarnessSession) -> list[str]:
    """Return what a session leaves open, each with its command; and that nothing is open.

    Empty for a session that neither ran a gate nor was to train.
    """
    if not (session.gates.outcomes or session.blocked or session.undecided):
        return []
    lines: list[str] = []
    for gate_id, (outcome, reason) in session.gates.outcomes.items():
        if outcome is not Outcome.PASS:
            recorder = session.gates.runs[gate_id].recorder
            lines += unproven_lines(recorder, outcome, reason)
    return [*lines, *_blocked_lines(session.blocked), *_standing_lines(session)]


def unproven_lines(recorder: GateRecorder, outcome: Outcome, reason: str) -> Iterator[str]:
    """Yield why a gate is not proven: clause, measured, allowed, effect, how to reproduce."""
    yield f"gate {recorder.gate_id}: {outcome} [{recorder.clause}]"
    miss = recorder.miss
    if miss is None:
        yield f"  reason     {reason}"
    else:
        at = f", at {miss.where}" if miss.where else ""
        yield f"  measured   {miss.name}: {short(miss.value)}{at}"
        yield f"  allowed    {render_rule(miss.rule)}"
        yield f"  effect     {miss.effect}"
    yield f"  reproduce  {recorder.reproduce}"


def _blocked_lines(blocked: Sequence[str]) -> Iterator[str]:
    """Yield the tests that did not run, those with one reason together."""
    groups: dict[str, list[str]] = {}
    for entry in blocked:
        name, _, reason = entry.partition(": ")
        groups.setdefault(reason, []).append(name)
    for reason, names in groups.items():
        yield f"not run: {', '.join(names)}: {reason}"


def _standing_lines(session: HarnessSession) -> Iterator[str]:
    standings = session.standings().values()
    proven = sum(found.outcome is Outcome.PASS for found in standings)
    yield f"gates: {proven} of {len(standings)} proven"
    if session.undecided:
        yield f"no verdict: {', '.join(session.undecided)} not scored"
    if proven == len(standings) and not session.unpinned():
        return
    # What blocked a test was said with that test, and a gate of this session above.
    told = {
        name for name, (outcome, _) in session.gates.outcomes.items() if outcome is not Outcome.PASS
    }
    if not session.blocked:
        yield from (f"open: {obstacle}" for obstacle in session.obstacles(told))
    failed = any(outcome is Outcome.FAIL for outcome, _ in session.gates.outcomes.values())
    yield f"next: {'mend what failed, then ' if failed else ''}{session.unblock()}"


def run_lines(folder: Path, timings: Sequence[str]) -> list[str]:
    """Return how a run stands: what its stages took, its summary and verdict, where it lies."""
    document = read_result(folder / RESULT_NAME)
    lines = [*timings, document.summary]
    if document.verdict is not None:
        lines.append(f"verdict: {document.verdict} ({document.outcome_reason})")
    here = Path.cwd()
    shown = folder.relative_to(here) if folder.is_relative_to(here) else folder
    if (folder / HTML_NAME).exists():
        lines.append(f"report: {shown / HTML_NAME}")
    lines.append(f"files: {shown}")
    after = "status" if document.status == "running" else "verify"
    return [*lines, f"next: python -m harness {after} {shown}"]
