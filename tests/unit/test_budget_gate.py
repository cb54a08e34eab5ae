"""What the budget gate makes of a pilot's files: hand-worked times, and refusals."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from feasibility_records import small_spec
from small_run import BINDING, GRPO, GS1, TEST_ITEMS, plan_run

from harness.errors import ArmError, GateError, StoreError
from harness.feasibility import FeasibilityRecord
from harness.gates.budget import EvaluationTiming, budget_facts, feasibility_record
from harness.gates.pilot_timing import PilotTiming, read_pilot
from harness.gates.recorder import GateRecorder
from harness.plan import PlannedRun, effective_config
from harness.service_profiles import PROFILES

ALLOCATION = {name: profile.budget.allocation() for name, profile in PROFILES.items()}
NOW = 1_700_000_000
TIMES = {GRPO: (3.0, 1.0, 2.0), GS1: (4.0, 3.0, 3.0)}
"""Steps after the first: 1 + 2 and 3 + 3 seconds; the first is 1.5 and 1 longer than their mean."""


def write(path: Path, content: Any, written_s: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    os.utime(path, ns=(int(written_s * 1e9), int(written_s * 1e9)))


def pilot(folder: Path, times: Mapping[str, Sequence[float]] = TIMES) -> PlannedRun:
    """Files of a pilot: initial state 2 s; each arm starts in 5 s and saves in 0.5 s."""
    run = plan_run(folder)
    os.utime(run.folder / "plan.json", (NOW, NOW))
    write(run.folder / "initial.json", {}, NOW + 2)
    before_s = NOW + 2.0
    for arm in run.spec.arms:
        attempt = run.folder / "arms" / arm.name / "attempt-01"
        configured_s = before_s + 5
        stepped_s = configured_s + sum(times[arm.name])
        config = {**effective_config(run.spec, arm), "steps": 3}
        write(attempt / "effective_config.json", config, configured_s)
        rows = "".join(json.dumps({"step_s": step_s}) + "\n" for step_s in times[arm.name])
        write(attempt / "steps.jsonl", rows, stepped_s)
        before_s = stepped_s + 0.5
        write(attempt.parent / "done.json", {"attempt": 1}, before_s)
    return run


@pytest.fixture
def timing(tmp_path: Path) -> PilotTiming:
    return read_pilot(pilot(tmp_path), BINDING.digest())


EVALUATION = EvaluationTiming(seconds=8.0, items=TEST_ITEMS, planned_items=TEST_ITEMS)


def record(timing: PilotTiming, *, embedded: bool = True) -> FeasibilityRecord:
    return feasibility_record(
        small_spec(), timing, EVALUATION, 4.0, ALLOCATION["embedded" if embedded else "url"]
    )


def test_steps_are_not_set_up_and_set_up_is_not_steps(timing: PilotTiming) -> None:
    assert timing.initial_s == pytest.approx(2.0)
    assert timing.step_s == {GRPO: [1.0, 2.0], GS1: [3.0, 3.0]}
    assert timing.setup_s == pytest.approx({GRPO: 5 + 1.5 + 0.5, GS1: 5 + 1 + 0.5}, abs=1e-6)


def test_the_record_plans_every_step_every_item_and_every_process(timing: PilotTiming) -> None:
    taken = record(timing).measurements.taken()
    training, evaluation, setup = taken["training"], taken["evaluation"], taken["setup"]
    assert (training.seconds, training.units, training.planned_units) == (9.0, 4, 2 * 2)
    assert (evaluation.units, evaluation.planned_units) == (TEST_ITEMS, TEST_ITEMS * 3)
    assert setup.seconds == pytest.approx(4 + 2 + 7 + 6.5, abs=1e-6)
    assert (setup.units, setup.planned_units) == (2, 5), "two arms, and three evaluations"


def test_the_projection_of_a_pilot_worked_by_hand(timing: PilotTiming) -> None:
    """19.5/2·5 + 9/4·4 + 8/40·120 + 7 = 48.75 + 9 + 24 + 7."""
    measured = budget_facts(small_spec(), record(timing))
    facts = {fact.name: fact for fact in measured.facts}
    assert facts["projected wall seconds"].value == pytest.approx(88.75, abs=1e-5)
    assert facts["projected wall seconds"].rule == {"at_most": 600.0}
    assert facts["projected GPU-hours"].value == 0.0
    assert measured.failures() == []
    section = measured.notes["feasibility"]
    assert section["projected_wall_seconds"] == facts["projected wall seconds"].value


def test_a_shared_service_has_no_gpu_hours(timing: PilotTiming) -> None:
    measured = budget_facts(small_spec(gpu_hours=0.0), record(timing, embedded=False))
    assert measured.notes["feasibility"]["projected_gpu_hours"] is None
    assert "projected GPU-hours" not in {fact.name for fact in measured.facts}
    assert measured.failures() == []


def test_the_gate_refuses_a_tiny_budget(timing: PilotTiming) -> None:
    gate = GateRecorder("feasibility", "contract §6")
    with pytest.raises(GateError, match="projected wall seconds") as caught:
        budget_facts(small_spec(minutes=1.0), record(timing)).record(gate)
    for part in ("contract §6", "88.75", "60", "optional evaluations", "-k feasibility"):
        assert part in str(caught.value), f"{part!r} is missing: {caught.value}"
    assert "feasibility" in gate.notes, "the measurements are kept when they are too large"


def test_too_small_a_sample_is_not_a_measurement(timing: PilotTiming) -> None:
    few = replace(EVALUATION, items=7)
    made = feasibility_record(small_spec(), timing, few, 4.0, ALLOCATION["embedded"])
    failed = [fact.name for fact in budget_facts(small_spec(), made).failures()]
    assert failed == ["evaluation items timed"]


@pytest.mark.parametrize("found", [39, 41])
def test_another_number_of_test_items_is_another_configuration(
    timing: PilotTiming, found: int
) -> None:
    other = replace(EVALUATION, planned_items=found)
    made = feasibility_record(small_spec(), timing, other, 4.0, ALLOCATION["embedded"])
    failed = [fact.name for fact in budget_facts(small_spec(), made).failures()]
    assert failed == ["digest of the configuration that was timed", "feasibility"]


def test_an_arm_that_executed_something_else_is_another_configuration(timing: PilotTiming) -> None:
    configs = {**timing.configs, GS1: {**timing.configs[GS1], "group_size": 2}}
    made = record(replace(timing, configs=configs))
    failed = [fact.name for fact in budget_facts(small_spec(), made).failures()]
    assert failed == ["digest of the configuration that was timed", "feasibility"]


def test_arms_of_unequal_length_are_projected_at_the_slowest_arms_pace(
    timing: PilotTiming,
) -> None:
    spec = small_spec()
    first, second = spec.arms
    unequal = spec.model_copy(update={"arms": (first.model_copy(update={"steps": 9}), second)})
    made = feasibility_record(unequal, timing, EVALUATION, 4.0, ALLOCATION["embedded"])
    training = made.measurements.taken()["training"]
    assert training.seconds / training.units * training.planned_units == 3.0 * 11


def test_a_pilot_of_other_content_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="changed since the pilot"):
        read_pilot(pilot(tmp_path), "0" * 64)


def test_one_step_cannot_be_told_from_set_up(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="1 steps, where at least 2"):
        read_pilot(pilot(tmp_path, {GRPO: (3.0,), GS1: (4.0,)}), BINDING.digest())


def test_an_arm_that_did_not_finish_cannot_be_timed(tmp_path: Path) -> None:
    run = pilot(tmp_path)
    (run.folder / "arms" / GS1 / "done.json").unlink()
    with pytest.raises(ArmError, match="has not finished"):
        read_pilot(run, BINDING.digest())


def test_a_pilot_that_stopped_before_its_initial_state_cannot_be_timed(tmp_path: Path) -> None:
    run = pilot(tmp_path)
    (run.folder / "initial.json").unlink()
    with pytest.raises(StoreError, match=r"initial\.json"):
        read_pilot(run, BINDING.digest())


def test_files_out_of_order_are_not_times(tmp_path: Path) -> None:
    """A copied folder has new times: they say nothing of the pilot."""
    run = pilot(tmp_path)
    os.utime(run.folder / "arms" / GRPO / "attempt-01" / "steps.jsonl", (NOW, NOW))
    with pytest.raises(StoreError, match="order of the stages"):
        read_pilot(run, BINDING.digest())
