"""The summary counts what ran: a survivor, a skip or a broken test is never a kill."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.mutants.mutant_summary import RUN_ALL, MutantSummary

Outcome = Literal["passed", "failed", "skipped"]
When = Literal["setup", "call", "teardown"]


def report(name: str, outcome: Outcome, when: When = "call", **properties: Any) -> Any:
    return pytest.TestReport(
        f"test_x.py::test_x[{name}]",
        ("test_x.py", 1, "test_x"),
        {},
        outcome,
        None,
        when,
        user_properties=list(properties.items()),
    )


def about(name: str) -> dict[str, str]:
    return {"name": name, "gate": "g", "effect": "e"}


def summary_of(*reports: Any, deselected: int = 0) -> MutantSummary:
    summary = MutantSummary()
    summary.collected = {one.nodeid for one in reports}
    summary.deselected = {f"left out {n}" for n in range(deselected)}
    for one in reports:
        summary.report(one)
    return summary


def test_all_killed() -> None:
    summary = summary_of(*(report(n, "passed", mutant=about(n)) for n in "ab"))
    assert summary.closing()[-1] == "killed 2 of 2"
    assert summary.document()["survivors"] == []


def test_a_survivor_is_named() -> None:
    summary = summary_of(
        report("a", "passed", mutant=about("a")), report("b", "failed", mutant=about("b"))
    )
    assert summary.closing()[-2:] == ["survived: b", "killed 1 of 2"]
    assert [row["killed"] for row in summary.document()["mutants"]] == [True, False]
    assert any(line.startswith("SURVIVED  b") for line in summary.table())


def test_what_was_deselected_is_counted_with_the_command_that_runs_it() -> None:
    summary = summary_of(report("a", "passed", mutant=about("a")), deselected=22)
    assert summary.closing()[-2:] == [
        f"not run: 22; to run all: {RUN_ALL}",
        "killed 1 of 1; 22 not run",
    ]


@pytest.mark.parametrize("phase", ["setup", "call"])
def test_a_test_that_broke_before_it_measured_is_no_kill(phase: When) -> None:
    summary = summary_of(report("a", "failed", phase))
    assert summary.closing()[-2:] == ["survived: a", "killed 0 of 1"]


def test_a_failed_teardown_takes_the_kill_back() -> None:
    summary = summary_of(
        report("a", "passed", mutant=about("a")),
        report("a", "failed", "teardown", mutant=about("a")),
    )
    assert summary.closing()[-1] == "killed 0 of 1"


def test_a_skipped_test_was_not_run() -> None:
    summary = summary_of(report("a", "skipped", "setup"))
    assert (summary.rows, len(summary.not_run)) == ({}, 1)


def test_an_expected_failure_is_no_kill() -> None:
    expected = report("a", "passed", mutant=about("a"))
    expected.wasxfail = "reason"
    assert summary_of(expected).survivors == ["a"]


def test_false_alarms_are_added_up_over_the_clean_runs() -> None:
    clean = [
        report(n, "passed", false_alarms={"gate": n, "runs": 10, "alarms": k})
        for n, k in (("x", 0), ("y", 3))
    ]
    assert summary_of(*clean).closing()[0] == "false alarms: 3 in 20 clean runs"
    assert summary_of(report("a", "passed", mutant=about("a"))).closing()[0] == "no clean run made"
