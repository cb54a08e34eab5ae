"""What a session knows of the planted defects: killed, survived, not run, and false alarms.

Each mutant's test records ``mutant`` = {name, gate, effect, …}; a clean-run test records
``false_alarms`` = {gate, runs, alarms}. Everything is counted from the reports of tests that ran,
never from the registries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

RUN_ALL = 'pytest tests/mutants -m "live or not live"'
NO_RECORD = "the test failed before it said what it measures"


@dataclass
class MutantSummary:
    """Counts one session.

    Attributes:
        rows: one row a planted defect that ran, by test.
        collected: tests of planted defects that were to run.
        deselected: tests of planted defects that were left out.
        clean: clean-run counts, by test.
    """

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    collected: set[str] = field(default_factory=set)
    deselected: set[str] = field(default_factory=set)
    clean: dict[str, dict[str, Any]] = field(default_factory=dict)

    def report(self, report: pytest.TestReport) -> None:
        """Note one phase of one test."""
        recorded = {key: value for key, value in report.user_properties if isinstance(value, dict)}
        if report.nodeid in self.collected:
            self._mutant(recorded.get("mutant"), report)
        if "false_alarms" in recorded and report.when == "call":
            self.clean[report.nodeid] = recorded["false_alarms"]

    def _mutant(self, about: dict[str, Any] | None, report: pytest.TestReport) -> None:
        """A kill is a passed call and no failed phase; skipped tests and xfails kill nothing."""
        if report.when == "call" and about is not None:
            killed = report.passed and not hasattr(report, "wasxfail")
            self.rows[report.nodeid] = {**about, "killed": killed}
        elif report.failed:
            name = report.nodeid.rpartition("[")[2].rstrip("]")
            unknown = {"name": name, "gate": "none", "effect": NO_RECORD}
            self.rows[report.nodeid] = {**self.rows.get(report.nodeid, unknown), "killed": False}

    @property
    def not_run(self) -> list[str]:
        """Tests of planted defects that left no verdict: deselected, skipped or not reached."""
        return sorted((self.collected | self.deselected) - self.rows.keys())

    @property
    def survivors(self) -> list[str]:
        """Names of the defects that ran and were not killed."""
        return [row["name"] for row in self.rows.values() if not row["killed"]]

    @property
    def false_alarms(self) -> tuple[int, int]:
        """Alarms, and clean runs in which there could have been one."""
        found = self.clean.values()
        return sum(one["alarms"] for one in found), sum(one["runs"] for one in found)

    def table(self) -> list[str]:
        """Return one line a defect, then one line a gate."""
        width = max((len(row["name"]) for row in self.rows.values()), default=0)
        lines: list[str] = []
        by_gate: defaultdict[str, list[bool]] = defaultdict(list)
        for row in self.rows.values():
            word = "killed" if row["killed"] else "SURVIVED"
            lines.append(f"{word:8}  {row['name']:{width}}  {row['gate']}: {row['effect']}")
            by_gate[row["gate"]].append(row["killed"])
        totals = (f"{gate}: {sum(k)} of {len(k)} killed" for gate, k in sorted(by_gate.items()))
        return [*lines, *totals]

    def closing(self) -> list[str]:
        """Return the false alarms, survivors and what was not run; last, "killed n of N"."""
        alarms, runs = self.false_alarms
        lines = [f"false alarms: {alarms} in {runs} clean runs" if runs else "no clean run made"]
        survived, left_out = self.survivors, self.not_run
        if survived:
            lines.append(f"survived: {', '.join(survived)}")
        if left_out:
            lines.append(f"not run: {len(left_out)}; to run all: {RUN_ALL}")
        more = f"; {len(left_out)} not run" if left_out else ""
        return [*lines, f"killed {len(self.rows) - len(survived)} of {len(self.rows)}{more}"]

    def document(self) -> dict[str, Any]:
        """Return the JSON form, ``artifacts/mutants.json``."""
        alarms, runs = self.false_alarms
        return {
            "version": 1,
            "killed": len(self.rows) - len(self.survivors),
            "run": len(self.rows),
            "not_run": self.not_run,
            "survivors": self.survivors,
            "false_alarms": {
                "alarms": alarms,
                "clean_runs": runs,
                "by_gate": list(self.clean.values()),
            },
            "mutants": list(self.rows.values()),
        }


def mutant_test_ids(items: Iterable[pytest.Item], folder: Any) -> set[str]:
    """Return the ids of tests in ``folder`` that are parametrised by a planted defect's name."""
    return {
        item.nodeid
        for item in items
        if item.path.parent == folder
        and "name" in getattr(getattr(item, "callspec", None), "params", {})
    }
