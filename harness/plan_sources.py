"""What a plan takes from outside the spec: the prompts' own activation and times already measured.

Both may be missing; a plan then says "not measured" and why, never a number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.errors import AdvantageError, DocumentError
from harness.gates.evidence import read_history
from harness.gates.prompt_activation import contributors_check, measure_prompts, table_text
from harness.problems import load_problems
from harness.session import HarnessSession
from harness.spec_model import ExperimentSpec


def dry_table(spec: ExperimentSpec, gsm8k_dir: Path | None) -> dict[str, Any]:
    """Return each similarity arm's contributors over all its batches, or why there are none."""
    if not any(arm.advantage_mode == "gs1" for arm in spec.arms):
        return {"not_measured": "no arm uses a similarity baseline"}
    check = contributors_check(spec)
    if check is None:
        return {"not_measured": "the spec has no range for effective contributors"}
    try:
        train = load_problems(spec, "train", gsm8k_dir)
        measured = measure_prompts(spec, train)
    except (DocumentError, AdvantageError) as error:
        return {"not_measured": str(error)}
    return {
        "arms": [
            {
                "arm": row.arm.name,
                "tau": row.arm.tau,
                "median": row.measured.pooled_median,
                "lowest_batch_median": row.measured.lowest,
                "highest_batch_median": row.measured.highest,
                "allowed": [row.check.min, row.check.max],
                "table": table_text(spec, train, row.arm, row.check).split("\n"),
            }
            for row in measured
        ]
    }


def projected_time(session: HarnessSession) -> dict[str, Any]:
    """Return the newest projection that a feasibility gate recorded, and whether it still holds."""
    events = [
        event
        for evidence in read_history(session.gates_folder)
        if not evidence.broken
        for event in evidence.events
        if event["type"] == "gate" and event["gate"] == "feasibility"
    ]
    records = [event for event in events if "feasibility" in event.get("notes", {})]
    if not records:
        return {"not_measured": "no feasibility gate was run; measure: pytest -m preflight"}
    newest = max(records, key=lambda event: event["at"])
    record = newest["notes"]["feasibility"]
    standing = session.standings().get("feasibility")
    return {
        "measured_at": newest["at"],
        "outcome": newest["outcome"],
        "standing": "not required" if standing is None else standing.reason,
        "projected_wall_seconds": record["projected_wall_seconds"],
        "projected_gpu_hours": record["projected_gpu_hours"],
        "seconds_by_phase": newest["notes"].get("seconds by phase", {}),
        "budget_wall_seconds": session.loaded.spec.budget.max_wall_minutes * 60,
        "budget_gpu_hours": session.loaded.spec.budget.gpu_hours,
    }


def source_lines(activation: dict[str, Any], time: dict[str, Any]) -> list[str]:
    """Return both as lines for a person."""
    lines = ["", "activation on the prompts alone (effective contributors)"]
    if "not_measured" in activation:
        lines.append(f"  not measured: {activation['not_measured']}")
    for row in activation.get("arms", []):
        low, high = row["allowed"]
        lines.append(
            f"  {row['arm']} at tau {row['tau']:g}: median {row['median']:.1f}, batch medians"
            f" {row['lowest_batch_median']:.1f} to {row['highest_batch_median']:.1f},"
            f" allowed {low} to {high}"
        )
        lines += [f"    {line}" for line in row["table"]]
    return [*lines, "", "projected time", f"  {_time_line(time)}"]


def _time_line(time: dict[str, Any]) -> str:
    if "not_measured" in time:
        return f"not measured: {time['not_measured']}"
    wall, hours = time["projected_wall_seconds"], time["projected_gpu_hours"]
    used = "unknown" if hours is None else f"{hours:.3f}"
    return (
        f"{_seconds(wall)} of {time['budget_wall_seconds']:.0f} s wall clock,"
        f" {used} of {time['budget_gpu_hours']:g} GPU-hours;"
        f" measured {time['measured_at'][:19]}, gate {time['outcome']}, now: {time['standing']}"
    )


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"
