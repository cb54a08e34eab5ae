"""What pytest's items and reports say of gates and arms, as plain answers for the plugin."""

from __future__ import annotations

from typing import Any

import pytest
from _pytest.mark.expression import Expression

from harness.errors import UsageError
from harness.gates.catalog import CATALOG
from harness.gates.verdict import Phase

CATALOG_ORDER = [entry.gate_id for entry in CATALOG]


def check_gate_test(config: pytest.Config, item: pytest.Item) -> None:
    """Refuse a gate's test outside the bound folder, in several cases, or that is an arm too.

    Raises:
        UsageError: for such a test.
    """
    folder = config.rootpath / "tests" / "preflight"
    own = [name for name in ("full", "arm", "decision") if item.get_closest_marker(name)]
    outside = not item.path.is_relative_to(folder)
    if own or outside or hasattr(item, "callspec"):
        raise UsageError(
            "a gate's test may prove nothing here",
            expected="one test under tests/preflight, without cases, that is no part of the run",
            found=f"marks {own}" if own else "other folder" if outside else "several cases",
            where=item.nodeid,
            fix="move or split the test, or remove the mark",
        )


def selects_full(config: pytest.Config) -> bool:
    """Return whether ``-m`` selects the parts of the experiment itself."""
    expression = config.option.markexpr
    return bool(expression) and Expression.compile(expression).evaluate(
        lambda name, **_: name == "full"
    )


def place_of(item: pytest.Item) -> tuple[int, int]:
    """Offline gates, live gates, base model, arms, verdict; everything else first, in its order."""
    if gate_id := gate_of(item):
        return (2 if item.get_closest_marker("live") else 1, CATALOG_ORDER.index(gate_id))
    for place, name in ((5, "decision"), (4, "arm"), (3, "full")):
        if item.get_closest_marker(name):
            return (place, 0)
    return (0, 0)


def gate_of(item: pytest.Item) -> str | None:
    """Return the gate a test stands for, or None."""
    return argument_of(item, "gate")


def argument_of(item: pytest.Item, marker_name: str) -> str | None:
    """Return the first argument of a test's marker, or None without the marker."""
    marker = item.get_closest_marker(marker_name)
    return str(marker.args[0]) if marker else None


def only_set_up(session: pytest.Session) -> bool:
    """Return whether parts of the run were selected but, by pytest's own options, not run."""
    option = session.config.option
    skipped = option.setuponly or option.setupplan
    return skipped and any(item.get_closest_marker("full") for item in session.items)


def phase_of(report: pytest.TestReport) -> Phase:
    """Translate pytest's report, with the skip reason or the failure's first line."""
    longrepr: Any = report.longrepr
    if isinstance(longrepr, tuple):
        reason = str(longrepr[2]).removeprefix("Skipped: ")
    else:
        crash = getattr(longrepr, "reprcrash", None)
        reason = (crash.message if crash else str(longrepr or "")).partition("\n")[0]
    expected_failure = hasattr(report, "wasxfail")
    return Phase(str(report.when), report.outcome, expected_failure, reason, report.duration)
