"""The pytest plugin: options, markers, order, gating and recording, each rule elsewhere.

State is one :class:`~harness.session.HarnessSession` in ``config.stash``. Results are written as
they happen; what is printed at the end is read from them.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from harness.durable import stored
from harness.errors import HarnessError
from harness.gate_items import (
    argument_of,
    check_gate_test,
    gate_of,
    only_set_up,
    phase_of,
    place_of,
    selects_full,
)
from harness.gates.recorder import GateRecorder
from harness.plugin_options import add_options, options_of
from harness.refused_gates import RefusedGates
from harness.report_guard import SecretFreeReports
from harness.screen import Screen
from harness.session import HarnessSession, exit_code
from harness.step_mirror import require_tracker
from harness.store import write_json_atomic
from harness.terminal import closing_lines, finished_gate_line, header_lines

SESSION = pytest.StashKey[HarnessSession]()
if TYPE_CHECKING:
    from harness.experiment import Experiment

EXPERIMENT = pytest.StashKey["Experiment"]()
MARKERS = (
    "preflight: a gate of the experiment",
    "full: part of the experiment itself: trains, evaluates or decides",
    "live: needs the training service",
    "slow: takes more than a few seconds",
    "gate(gate_id): the one test of a gate in harness/gates/catalog.py",
    "arm(name): trains and evaluates one arm of the spec",
    "decision: draws the verdict from the rows",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the experiment's options, in a group of their own."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register markers, refuse ``python -O`` and read the spec."""
    config.pluginmanager.register(SecretFreeReports(), "harness-secret-free-reports")
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if sys.flags.optimize:
        raise pytest.UsageError("python -O strips the tests' assertions: run without -O")
    if config.option.help or config.option.version or hasattr(config, "workerinput"):
        return
    options = options_of(config)
    try:
        screen = Screen(config)
        session = HarnessSession(options, screen.line, screen.step)
        session.selected_arms()
        if options.mirror:
            require_tracker(options.mirror, os.environ)
        session.begin()
        if not config.option.collectonly:
            # Found here, a folder that cannot be written costs nothing.
            with stored(options.artifacts):
                options.artifacts.mkdir(parents=True, exist_ok=True)
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[SESSION] = session
    config.pluginmanager.register(GateReports(session), "harness-gate-reports")
    config.pluginmanager.register(RefusedGates(session), "harness-refused-gates")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which spec, gates and service the session is about."""
    return header_lines(config.stash[SESSION]) if SESSION in config.stash else []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests that ask for ``arm_name`` one case an arm of the spec."""
    if "arm_name" in metafunc.fixturenames and SESSION in metafunc.config.stash:
        names = [arm.name for arm in metafunc.config.stash[SESSION].loaded.spec.trainings]
        cases = [pytest.param(name, marks=pytest.mark.arm(name), id=name) for name in names]
        metafunc.parametrize("arm_name", cases)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the gates and arms of this session and put gates before arms before the verdict."""
    if SESSION not in config.stash:
        return
    session = config.stash[SESSION]
    selected_arms = session.selected_arms()
    unproven = session.unproven() if selects_full(config) else ()
    dropped: list[pytest.Item] = []
    for item in items:
        gate_id, arm_name = gate_of(item), argument_of(item, "arm")
        if gate_id is not None:
            try:
                check_gate_test(config, item)
                session.gates.claim(gate_id, item.nodeid)
            except HarnessError as error:
                raise pytest.UsageError(str(error)) from error
            if gate_id in unproven:
                item.add_marker(pytest.mark.full)
        if (gate_id and gate_id not in session.required) or (
            arm_name and arm_name not in selected_arms
        ):
            dropped.append(item)
    config.hook.pytest_deselected(items=dropped)
    items[:] = sorted((item for item in items if item not in dropped), key=place_of)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note which arms this session will train, after every other selection."""
    if SESSION in session.config.stash:
        names = [argument_of(item, "arm") for item in session.items]
        session.config.stash[SESSION].planned_arms = tuple(name for name in names if name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start a gate's record; skip what may not run and say what would unblock it."""
    if SESSION not in item.config.stash:
        if gate_of(item) or item.get_closest_marker("full"):
            pytest.skip("gates and arms never run under xdist. Run: pytest -m full, without -n")
        return
    session = item.config.stash[SESSION]
    if gate_id := gate_of(item):
        session.gates.start(gate_id)
        if item.get_closest_marker("live") and (failed := session.failed_offline()):
            again = session.command(f"-m preflight -k '{' or '.join(failed)}'")
            reason = f"{', '.join(failed)} failed offline, so no service is contacted"
            pytest.skip(f"not run: {reason}. See why: {again}")
        if item.get_closest_marker("live") and session.unreachable:
            again = session.command("-m preflight")
            pytest.skip(f"not run: {session.unreachable}. When it answers: {again}")
        if item.get_closest_marker("live") and session.refused:
            again = session.command("-m preflight")
            pytest.skip(f"not run, because the service refused: {session.refused}. Later: {again}")
    elif item.get_closest_marker("full") and (obstacles := session.obstacles()):
        reason = f"blocked, {'; '.join(obstacles)}. Unblock: {session.unblock()}"
        session.blocked.append(f"{item.name}: {reason}")
        pytest.skip(reason)


class GateReports:
    """Hands every report of a gate's test to the session; the hook itself knows no config."""

    def __init__(self, session: HarnessSession) -> None:
        self.session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the phase; at the end of the teardown the gate is judged and recorded."""
        if gate_id := self.session.gates.tests.get(report.nodeid):
            self.session.gates.add_phase(gate_id, phase_of(report))
            if report.when == "teardown":
                self.session.gates.finish(gate_id)
                self.session.report(finished_gate_line(self.session, gate_id))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Close the evidence, stop the service, set the exit code and write the summary."""
    config = session.config
    if SESSION not in config.stash:
        return
    state = config.stash[SESSION]
    if EXPERIMENT in config.stash:
        config.stash[EXPERIMENT].close()
    state.close()
    blocked = bool(state.blocked) or state.ran_unproven()
    session.exitstatus = exit_code(
        int(exitstatus), blocked=blocked, undecided=bool(state.undecided) or only_set_up(session)
    )
    if not config.option.collectonly:
        terminal: Any = config.pluginmanager.getplugin("terminalreporter")
        counts = {name: len(reports) for name, reports in terminal.stats.items() if name}
        state.options.artifacts.mkdir(parents=True, exist_ok=True)
        write_json_atomic(
            state.options.artifacts / "last-session.json", state.summary(session.exitstatus, counts)
        )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what is open, each with its command, and how the experiment stands."""
    if SESSION in config.stash:
        lines = closing_lines(config.stash[SESSION])
        if EXPERIMENT in config.stash:
            lines += config.stash[EXPERIMENT].closing_lines()
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture
def gate(request: pytest.FixtureRequest) -> GateRecorder:
    """The recorder of the gate this test stands for."""
    gate_id = gate_of(request.node)
    if gate_id is None:
        raise pytest.UsageError(f"{request.node.nodeid} asks for a recorder but names no gate")
    return request.config.stash[SESSION].gates.runs[gate_id].recorder


@pytest.fixture(scope="session")
def harness_session(pytestconfig: pytest.Config) -> HarnessSession:
    """The session's spec, options and service."""
    return pytestconfig.stash[SESSION]


@pytest.fixture(scope="session")
def experiment(pytestconfig: pytest.Config) -> Experiment:
    """The experiment's stages."""
    # Imported here: it brings torch and the SDK, which most sessions do not need.
    from harness.experiment import Experiment

    pytestconfig.stash[EXPERIMENT] = Experiment(pytestconfig.stash[SESSION])
    return pytestconfig.stash[EXPERIMENT]
