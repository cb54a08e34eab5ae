"""Fail unless every offline gate of the default spec passed in the session that just ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path

EXPECTED_OFFLINE_GATES = 4
"""Written down on purpose: a gate that vanishes from the catalogue must fail CI."""


def main(path: Path) -> int:
    """Read the plugin's summary and judge it."""
    summary = json.loads(path.read_text(encoding="utf-8"))
    offline = {
        gate_id: gate["outcome"] for gate_id, gate in summary["gates"].items() if not gate["live"]
    }
    passed = sorted(gate_id for gate_id, outcome in offline.items() if outcome == "pass")
    sys.stdout.write(f"offline gates passed: {len(passed)} of {EXPECTED_OFFLINE_GATES}: {passed}\n")
    if len(passed) != EXPECTED_OFFLINE_GATES or len(offline) != EXPECTED_OFFLINE_GATES:
        sys.stdout.write(f"expected {EXPECTED_OFFLINE_GATES}, found {offline}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
