"""What a session of gates found on a service, gate by gate, as a table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.gates.catalog import CATALOG
from harness.gates.not_offered import BEGINNING
from harness.gates.recorder import render_rule, short

ROOT = Path(__file__).resolve().parents[2]
PASS, FAIL, NOT_OFFERED, OTHER = "pass", "fail", "not offered", "unknown"
WORDS = (PASS, FAIL, NOT_OFFERED)


@dataclass(frozen=True)
class Row:
    """One gate.

    Attributes:
        gate: its id.
        word: pass, fail, not offered, or unknown for another reason.
        text: what was measured and missed, or the reason.
        measured: how many measurements it took.
    """

    gate: str
    word: str
    text: str
    measured: int


def run_live_gates(environment: Mapping[str, str], artifacts: Path) -> tuple[list[Row], str]:
    """Run the live gates with ``--service url`` in a process of its own.

    Args:
        environment: TINKER_BASE_URL and TINKER_API_KEY.
        artifacts: where the session's records go.

    Returns:
        One row a live gate, and what the session printed.
    """
    command = ["-m", "pytest", "-m", "preflight and live", "--service", "url", "tests/preflight"]
    done = subprocess.run(
        [sys.executable, *command, "-p", "no:cacheprovider", f"--artifacts={artifacts}"],
        cwd=ROOT,
        env={**os.environ, **environment, "OMP_NUM_THREADS": "1", "TINKER_TELEMETRY": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return read_rows(artifacts), done.stdout


def read_rows(artifacts: Path) -> list[Row]:
    """Return one row a live gate from a session's evidence; a gate without a record is unknown."""
    found: dict[str, Row] = {}
    for path in sorted(artifacts.glob("gates/*/*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["type"] == "gate":
                found[record["gate"]] = _row(record)
    live = [entry.gate_id for entry in CATALOG if entry.live]
    return [found.get(gate, Row(gate, OTHER, "no record", 0)) for gate in live]


def _row(record: Mapping[str, object]) -> Row:
    measures = record["measures"]
    if not isinstance(measures, list):
        raise TypeError(f"measures of {record['gate']} are no list")
    reason, outcome = str(record["reason"]), str(record["outcome"])
    word = NOT_OFFERED if outcome == OTHER and reason.startswith(BEGINNING) else outcome
    text = reason.removeprefix(BEGINNING)
    if word == FAIL and measures:
        last = measures[-1]
        text = f"{last['name']}: {short(last['value'])}, allowed {render_rule(last['rule'])}"
    elif word == PASS:
        text = f"{len(measures)} measurements inside what is allowed"
    return Row(str(record["gate"]), word, text, len(measures))


def table(rows: list[Row]) -> list[str]:
    """Return the rows as lines of a Markdown table."""
    lines = ["| gate | found | measured |", "|---|---|---|"]
    return lines + [f"| `{row.gate}` | {row.word} | {_cell(row.text)} |" for row in rows]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:220]
