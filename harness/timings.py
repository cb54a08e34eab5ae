"""How long each stage of a run really took: ``timings.jsonl``, one line a stage that ended.

These are the run's observed usage (contract §6), kept apart from what the feasibility gate
projected. A stage that was cut off leaves no line here; its attempt's own files show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.feasibility import observed
from harness.store import append_jsonl, read_jsonl

TIMINGS_NAME = "timings.jsonl"


def record_timing(folder: Path, stage: str, arm: str, seconds: float) -> None:
    """Append one stage's wall seconds; the line is on disk before this returns.

    Args:
        folder: the run's folder.
        stage: ``arm`` or ``evaluate``.
        arm: the arm, or ``base``.
        seconds: wall time of the stage's process, its start included.
    """
    append_jsonl(folder / TIMINGS_NAME, {"stage": stage, "arm": arm, "seconds": seconds})


def read_timings(folder: Path) -> tuple[dict[str, Any], ...]:
    """Return the lines recorded so far, oldest first."""
    path = folder / TIMINGS_NAME
    return read_jsonl(path) if path.exists() else ()


def with_observed_usage(section: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a feasibility section with what the run used beside what was projected.

    Args:
        section: what the feasibility gate measured.
        folder: the run's folder. Without a timed stage the usage stays null: not measured.
    """
    rows = read_timings(folder)
    return {**section, "observed_usage": _usage(section, rows) if rows else None}


def _usage(section: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    seconds: dict[str, float] = {}
    for row in rows:
        stage = f"{row['stage']} {row['arm']}"
        seconds[stage] = seconds.get(stage, 0.0) + row["seconds"]
    training = section.get("measurements", {}).get("training") or {}
    return observed(seconds, training.get("gpu_count"))
