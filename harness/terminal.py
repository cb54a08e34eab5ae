"""The words on the terminal: header, one line a gate, the end of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.gates.catalog import gate_entry
from harness.gates.recorder import render_rule, short
from harness.gates.verdict import Outcome
from harness.session import HarnessSession

_MEASURES_SHOWN = 3


def header_lines(session: HarnessSession) -> list[str]:
    """Return the session's header: spec, service, budget and how the gates stand."""
    loaded = session.loaded
    budget = loaded.spec.budget
    standings = session.standings().values()
    proven = sum(standing.outcome is Outcome.PASS for standing in standings)
    lines = [
        f"experiment: {loaded.name}  digest {loaded.digest[:12]}  arms "
        + ", ".join(arm.name for arm in loaded.spec.arms),
        f"service: {session.service_name}  budget: {budget.gpu_hours:g} GPU-hours, "
        f"{budget.max_wall_minutes:g} minutes",
        f"gates: {proven} of {len(standings)} proven",
    ]
    stale = [standing for standing in standings if standing.changed]
    if stale:
        names = sorted({name for standing in stale for name in standing.changed})
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        lines.append(f"stale gates: {len(stale)}; changed since: {shown}")
    return lines


def gate_lines(session: HarnessSession) -> list[str]:
    """Return one line for each gate this session judged and for each test that was blocked."""
    lines = [
        gate_line(gate_id, outcome, reason, session.gate_runs[gate_id].recorder.measures)
        for gate_id, (outcome, reason) in session.outcomes.items()
    ]
    return [*lines, *session.blocked]


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
