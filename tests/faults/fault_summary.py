"""What a session knows of the injected faults: survived, stopped cleanly, data lost.

A fault's test records ``fault`` = {name, hits, outcome, lost, seconds, says}; the rest is counted
from the reports of tests that ran. A test that failed counts as lost, whatever it recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

SURVIVED, STOPPED = "survived", "stopped cleanly"


@dataclass
class FaultSummary:
    """Counts one session.

    Attributes:
        rows: one row a fault that was injected, by test.
    """

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def report(self, report: pytest.TestReport) -> None:
        """Note one phase of one test."""
        recorded: list[Any] = [v for key, v in report.user_properties if key == "fault"]
        if recorded and (report.when == "call" or report.failed):
            good = report.passed and not hasattr(report, "wasxfail")
            self.rows[report.nodeid] = {
                **recorded[-1],
                "outcome": recorded[-1]["outcome"] if good else "FAILED",
                "lost": recorded[-1]["lost"] or not good,
            }

    def counts(self) -> dict[str, int]:
        """Return the table's last line as numbers."""
        outcomes = [row["outcome"] for row in self.rows.values()]
        return {
            "injected": len(outcomes),
            "survived": outcomes.count(SURVIVED),
            "stopped_cleanly": outcomes.count(STOPPED),
            "data_lost": sum(bool(row["lost"]) for row in self.rows.values()),
        }

    def table(self) -> list[str]:
        """Return one line a fault, then the counts."""
        width = max(len(row["name"]) for row in self.rows.values())
        lines = [
            f"{row['outcome']:15}  {row['name']:{width}}  {row['hits']:3} times"
            f"  {row['seconds']:6.1f} s  {row['says']}"
            for row in self.rows.values()
        ]
        found = self.counts()
        return [
            *lines,
            f"faults injected {found['injected']}, survived {found['survived']},"
            f" stopped cleanly {found['stopped_cleanly']}, data lost {found['data_lost']}",
        ]

    def document(self) -> dict[str, Any]:
        """Return the JSON form, ``artifacts/faults.json``."""
        return {"version": 1, **self.counts(), "faults": list(self.rows.values())}
