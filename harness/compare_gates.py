"""The gates of two runs: the content they were bound to and what they measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.compared_files import document
from harness.comparison import Difference, compare_values
from harness.gates.evidence import SessionEvidence, read_history
from harness.run_files import GATES_FOLDER, PLAN_NAME

_TIMED = ("seconds", "GPU-hours")
"""Words of the quantities of a gate that are clocks."""


def content_of_gates(first: Path, second: Path) -> Iterator[Difference]:
    """Compare what the gates were bound to: files, versions, service."""
    ours, theirs = (
        [evidence.header["binding"] for evidence in _by_content(_relied_on(folder)).values()]
        for folder in (first, second)
    )
    yield from compare_values(ours, theirs)


def _by_content(relied: Mapping[str, SessionEvidence]) -> dict[str, SessionEvidence]:
    return {evidence.header["live_digest"]: evidence for evidence in relied.values()}


def gates_of(first: Path, second: Path) -> Iterator[Difference]:
    """Compare outcome and measurements of each gate that the plans rested on."""
    ours, theirs = (
        {gate: _measured(gate, evidence) for gate, evidence in _relied_on(folder).items()}
        for folder in (first, second)
    )
    yield from compare_values(ours, theirs)


def _relied_on(folder: Path) -> dict[str, SessionEvidence]:
    """Return the session that each gate of the plan rested on, by gate."""
    sessions = {
        evidence.name.removesuffix(".jsonl"): evidence
        for evidence in read_history(folder / GATES_FOLDER)
    }
    planned: Mapping[str, Any] = document(folder / PLAN_NAME)["gates"]
    absent = [gate for gate, entry in planned.items() if entry["session"] not in sessions]
    if absent:
        raise ValueError(f"{folder.name} keeps no evidence of {', '.join(absent)}")
    relied = {gate: sessions[entry["session"]] for gate, entry in planned.items()}
    broken = [evidence.broken for evidence in relied.values() if evidence.broken]
    if broken:
        raise ValueError(f"gate evidence refused: {broken[0]}")
    return relied


def _measured(gate: str, evidence: SessionEvidence) -> dict[str, Any]:
    """Return a gate's outcome and measurements; a quantity that is a clock goes under seconds."""
    record = [
        event for event in evidence.events if event["type"] == "gate" and event["gate"] == gate
    ][-1]
    measures = {
        item["name"]: {
            "rule": item["rule"],
            "seconds" if any(word in item["name"] for word in _TIMED) else "value": item["value"],
        }
        for item in record["measures"]
    }
    return {"outcome": record["outcome"], "measures": measures}
