"""Keeps secrets out of pytest's reports: failures, skips and captured output."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from harness.errors import shown
from harness.secrets_out import without_secrets


class SecretFreeReports:
    """A pytest plugin: what a test's report says and what it captured hold no secret."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Clean the report of a test's phase before anyone reads it."""
        return clean_report((yield))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, Any, Any]:
        """Clean the report of a file's collection."""
        return clean_report((yield))


def clean_report(report: Any) -> Any:
    """Return a report without secrets; one that holds none stays as it was."""
    report.sections = [(name, without_secrets(text)) for name, text in report.sections]
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):
        path, line, reason = longrepr
        report.longrepr = (path, line, without_secrets(reason))
    elif longrepr is not None:
        text = report.longreprtext
        if (clean := without_secrets(text)) != text:
            crash = getattr(longrepr, "reprcrash", None)
            # The first line is what a gate's record gives as its reason.
            report.longrepr = f"{shown(crash.message)}\n\n{clean}" if crash else clean
    return report
