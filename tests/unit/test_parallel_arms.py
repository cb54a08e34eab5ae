"""Arms at once on one embedded service: the same run as one after another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness.stage_runner
from harness.compare import compare_runs, report_lines
from harness.experiment import Experiment
from harness.gates.standing import Standing
from harness.gates.verdict import Outcome
from harness.local_service.process import EmbeddedService, start_service
from harness.manifest import check_manifest
from harness.pins import record_pins
from harness.session import HarnessSession, Options
from tests.faults.forked_stage import run_forked
from tests.faults.small_experiment import (
    ARM,
    GRPO,
    ROOT,
    ProxiedAccess,
    small_spec,
    write_rows,
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedService]:
    folder = tmp_path_factory.mktemp("service")
    with start_service(folder, base_model=small_spec()["base_model"]) as running:
        yield running


def whole_run(folder: Path, service: EmbeddedService, parallel: int) -> tuple[Path, list[str]]:
    """Make one run to its verdict; return its folder and what a person saw."""
    folder.mkdir()
    spec = folder / "small.json"
    spec.write_text(json.dumps(small_spec()))
    record_pins(spec, ROOT)
    said: list[str] = []
    rows, artifacts = write_rows(folder / "rows"), folder / "artifacts"
    options = Options(ROOT, spec, artifacts=artifacts, gsm8k_dir=rows, parallel=parallel)
    session = HarnessSession(options, said.append)
    session.planned_arms = session.selected_arms()
    vars(session)["service"] = ProxiedAccess(service.base_url, service.api_key)
    proven = {gate: Standing(gate, Outcome.PASS, "not its subject") for gate in session.required}
    vars(session)["standings"] = lambda: proven
    experiment = Experiment(session)
    experiment.evaluate("base")
    for arm in session.planned_arms:
        experiment.train(arm)
        experiment.evaluate(arm)
    experiment.decide()
    experiment.close()
    return experiment.run.folder, said


@pytest.mark.live
@pytest.mark.slow
def test_arms_at_once_make_the_same_run(
    service: EmbeddedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.stage_runner, "run_stage", run_forked)
    one, _ = whole_run(tmp_path / "one", service, 1)
    two, said = whole_run(tmp_path / "two", service, 2)
    parts = compare_runs(one, two)
    # No gate was run here, so neither run has evidence of gates to compare.
    different = [part.name for part in parts if part.outcome is not Outcome.PASS]
    assert different == ["content", "gates"], "\n".join(report_lines(one, two, parts))
    assert Outcome.FAIL not in {part.outcome for part in parts}
    compared = {part.name for part in parts}
    wanted = {f"{arm}: {what}" for arm in (ARM, GRPO) for what in ("steps", "rollouts")}
    assert wanted <= compared, f"not compared: {sorted(wanted - compared)}"
    assert check_manifest(two) == [], "a file changed after it was entered"
    steps = [line for line in said if " step " in line]
    assert {line.split()[0] for line in steps} == {ARM, GRPO}, "each line names its arm"
    assert len(steps) == 4, f"{len(steps)} lines of steps, expected 2 of each arm"
