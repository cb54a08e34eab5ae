"""Prints the summary of the planted defects and writes ``mutants.json`` among the artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.plugin import SESSION
from harness.store import write_json_atomic
from tests.mutants.mutant_summary import MutantSummary, mutant_test_ids

HERE = Path(__file__).parent


class SummaryHooks:
    """Feeds a summary from one session's reports."""

    def __init__(self) -> None:
        self.summary = MutantSummary()

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Note what was left out."""
        self.summary.deselected |= mutant_test_ids(items, HERE)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note what is to run."""
        self.summary.collected |= mutant_test_ids(session.items, HERE)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what ran."""
        self.summary.report(report)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Print the table after everything else, and write the record."""
        if not self.summary.rows and not self.summary.clean:
            return
        terminalreporter.section("planted defects")
        for line in (*self.summary.table(), *self.summary.closing()):
            terminalreporter.write_line(line)
        if SESSION in config.stash:
            folder = config.stash[SESSION].options.artifacts
            folder.mkdir(parents=True, exist_ok=True)
            write_json_atomic(folder / "mutants.json", self.summary.document())


def pytest_configure(config: pytest.Config) -> None:
    """Start the summary, also when this folder is found only while collecting another."""
    config.pluginmanager.register(SummaryHooks(), "mutant-summary")
