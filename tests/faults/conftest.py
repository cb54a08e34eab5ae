"""One embedded service for all faults, what an undisturbed run measures, and the closing table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import harness.stage_runner
from harness.fault_proxy import FaultProxy, fault_proxy
from harness.local_service.process import EmbeddedService, start_service
from harness.plugin import SESSION
from harness.store import write_json_atomic
from tests.faults.fault_summary import FaultSummary
from tests.faults.forked_stage import import_ahead, run_forked
from tests.faults.small_experiment import ARM, Records, SmallRun, small_spec

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedService]:
    """The one service; what forks stages imports while it starts."""
    import_ahead()
    folder = tmp_path_factory.mktemp("service")
    with start_service(folder, base_model=small_spec()["base_model"]) as running:
        yield running


@dataclass(frozen=True)
class Undisturbed:
    """What a run without a fault leaves behind: the measure of all others."""

    records: Records
    initial: Path


@pytest.fixture(scope="session")
def undisturbed(service: EmbeddedService, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch, fault_proxy(service.base_url) as proxy:
        patch.setattr(harness.stage_runner, "run_stage", run_forked)
        run = SmallRun(folder / "run", service, proxy, None)
        experiment = run.experiment()
        experiment.train(ARM)
    initial = folder / "initial"
    initial.mkdir()
    shutil.copy(experiment.run.folder / "initial.json", initial)
    shutil.copytree(experiment.run.folder / "initial_adapter", initial / "initial_adapter")
    return Undisturbed(run.records(), initial)


@pytest.fixture
def proxy(service: EmbeddedService, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    monkeypatch.setattr(harness.stage_runner, "run_stage", run_forked)
    with fault_proxy(service.base_url) as running:
        yield running


@pytest.fixture
def small_run(
    service: EmbeddedService, proxy: FaultProxy, undisturbed: Undisturbed, tmp_path: Path
) -> SmallRun:
    return SmallRun(tmp_path / "run", service, proxy, undisturbed.initial)


@pytest.fixture
def unstarted_run(service: EmbeddedService, proxy: FaultProxy, tmp_path: Path) -> SmallRun:
    """A run that has to make its initial state."""
    return SmallRun(tmp_path / "run", service, proxy, None)


@pytest.fixture
def no_network() -> None:
    """These tests are about connections, all of them to loopback."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave these tests to sessions that ask for services, or for this folder by name."""
    if not any(HERE.name in argument for argument in config.args):
        for item in items:
            if item.path.parent == HERE:
                item.add_marker(pytest.mark.live)


class FaultHooks:
    """Feeds the table from the reports of one session."""

    def __init__(self) -> None:
        self.summary = FaultSummary()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what a fault's test recorded."""
        self.summary.report(report)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Print the table and write the record."""
        if not self.summary.rows:
            return
        terminalreporter.section("injected faults")
        for line in self.summary.table():
            terminalreporter.write_line(line)
        if SESSION in config.stash:
            folder = config.stash[SESSION].options.artifacts
            folder.mkdir(parents=True, exist_ok=True)
            write_json_atomic(folder / "faults.json", self.summary.document())


def pytest_configure(config: pytest.Config) -> None:
    """Start the table, also when this folder is found only while collecting another."""
    if not config.pluginmanager.has_plugin("fault-summary"):
        config.pluginmanager.register(FaultHooks(), "fault-summary")
