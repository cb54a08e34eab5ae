"""The plugin inside pytest: what interrupts, repeats or splits a session proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from mini_project import make_project, write_gates
from test_plugin_gating import HEAD, MEASURED, OFFLINE, outcomes, run

ARMS = ("-m", "full", "tests/full")
RERUN = """
pytest_plugins = ["harness.plugin"]

from _pytest.runner import runtestprotocol


def pytest_runtest_protocol(item, nextitem):
    first = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(report.failed for report in first):
        for report in first:
            if report.when == "call":
                report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
        first = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in first:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""
WORKER = """
pytest_plugins = ["harness.plugin"]

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    config.workerinput = {"workerid": "gw0"}
"""


def test_only_the_last_failed_gate_leaves_the_others_unproven(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    write_gates(root, **{OFFLINE: HEAD + "    assert 0\n"})
    cached = ("-o", "addopts=", "-m", "preflight")
    run(pytester, *cached)
    write_gates(root)
    assert run(pytester, *cached, "--lf").ret == 0
    assert set(outcomes(root)) == {OFFLINE}, "only the failed gate ran again"
    result = run(pytester, *ARMS)
    assert result.ret == 10
    result.stdout.fnmatch_lines(["*gates stock_advantage_parity, *: unknown: *"])


def test_a_gate_that_passed_when_retried_is_unknown(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    flaky = MEASURED.format(head=HEAD) + (
        "    import pathlib\n"
        '    seen = pathlib.Path("seen")\n'
        "    first = not seen.exists()\n"
        "    seen.touch()\n"
        "    assert not first\n"
    )
    write_gates(root, **{OFFLINE: flaky})
    (root / "conftest.py").write_text(RERUN)
    run(pytester, "-m", "preflight")
    assert outcomes(root)[OFFLINE] == "unknown", "a retried proof is no proof"


def test_an_interrupt_during_a_gate_leaves_it_unknown(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    write_gates(root, **{OFFLINE: MEASURED.format(head=HEAD) + "    raise KeyboardInterrupt\n"})
    assert pytester.runpytest_subprocess("-m", "preflight").ret == 2
    assert outcomes(root).get(OFFLINE, "unknown") != "pass"
    write_gates(root)
    assert run(pytester, *ARMS).ret == 10


def test_under_xdist_nothing_is_proven_and_nothing_trains(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    (root / "conftest.py").write_text(WORKER)
    result = run(pytester, "-m", "preflight or full")
    assert "TRAINED" not in result.stdout.str()
    assert result.parseoutcomes().get("passed", 0) == 0, "a worker may prove nothing"
    assert not list(root.glob("artifacts/gates/local/*.jsonl"))


def test_another_service_makes_live_gates_stale(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(pytester)
    run(pytester, "-m", "preflight")
    monkeypatch.setenv("TINKER_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TINKER_API_KEY", "tml-not-a-key")
    result = run(pytester, *ARMS, "--service", "url")
    assert result.ret == 10
    result.stdout.fnmatch_lines(["*gates initial_identity, *: unknown: stale*service:*"])


def evidence(root: Path) -> Path:
    (found,) = root.glob("artifacts/gates/local/*.jsonl")
    return found


def test_a_torn_last_line_blocks_the_arms(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    run(pytester, "-m", "preflight")
    path = evidence(root)
    path.write_bytes(path.read_bytes()[:-30])
    assert run(pytester, *ARMS).ret == 10, "the closing that sealed the gates was torn away"


def test_a_deleted_evidence_file_blocks_the_arms(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    run(pytester, "-m", "preflight")
    evidence(root).unlink()
    assert run(pytester, *ARMS).ret == 10
