"""What a pilot measures is read from its rows: worked out by hand, and never made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mini_project import ROOT
from small_run import GRPO, GS1, plan_run, small_spec_json

from harness.gates.pilot import (
    PILOT_STEPS,
    PilotRows,
    baseline_contributors,
    pilot_values,
    run_pilot,
)
from harness.gates.recorder import within
from harness.plan import PlannedRun
from harness.problems import Problem
from harness.spec import load_spec, parse_spec
from harness.spec_model import ExperimentSpec

MODEL = "embedded/gradeschool"


@pytest.fixture(scope="module")
def spec() -> ExperimentSpec:
    return parse_spec(small_spec_json(), where="the test")


def step(groups: int, reward: float, activation: tuple[float, float] | None) -> dict[str, Any]:
    names = ("effective_contributors_median", "mean_abs_baseline_minus_uniform_loo")
    return {
        "rollouts": 4,
        "groups": groups,
        "reward_mean": reward,
        "activation": None if activation is None else dict(zip(names, activation, strict=True)),
    }


def rows() -> dict[str, list[dict[str, Any]]]:
    return {
        GRPO: [step(2, reward, None) for reward in (0.1, 0.2, 0.6)],
        GS1: [
            step(4, reward, active)
            for reward, active in (
                (0.2, (2.0, 0.01)),
                (0.3, (9.0, 0.02)),
                (0.1, (3.0, 0.06)),
            )
        ],
    }


def values_of(spec: ExperimentSpec, steps: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return pilot_values(spec, PilotRows(steps, MODEL)).values


def test_every_metric_of_the_contract_is_measured(spec: ExperimentSpec) -> None:
    found = values_of(spec, rows())
    assert found["executed_base_model"] == MODEL
    assert found["rollouts_per_step_both_arms"] == {GRPO: 4, GS1: 4}
    assert found["gs1_executed_group_size"] == {GS1: 1.0}
    assert found["gs1_effective_contributors_median"] == {GS1: 3.0}
    assert found["gs1_mean_abs_baseline_minus_uniform_loo"][GS1] == pytest.approx(0.03)
    assert found["batch_mean_reward_pilot"] == pytest.approx({GRPO: 0.3, GS1: 0.2})
    asked = {check.metric for check in spec.activation_gate.checks}
    assert asked <= set(found), f"the spec asks for {asked - set(found)}, which nothing measures"


@pytest.mark.parametrize("changed", ["rollouts", "groups"])
def test_steps_that_disagree_are_inside_no_range(spec: ExperimentSpec, changed: str) -> None:
    steps = rows()
    steps[GS1][1] |= {"rollouts": 8, "groups": 8} if changed == "rollouts" else {"groups": 2}
    metric = {"rollouts": "rollouts_per_step_both_arms", "groups": "gs1_executed_group_size"}
    value = values_of(spec, steps)[metric[changed]][GS1]
    assert str(value).startswith("steps disagree")
    assert not within(value, {"at_least": 0, "at_most": 1000})


def test_each_arm_is_named_with_its_own_value(spec: ExperimentSpec) -> None:
    found = pilot_values(spec, PilotRows(rows(), MODEL))
    by_arm = dict(found.of("batch_mean_reward_pilot"))
    assert by_arm == pytest.approx({GRPO: 0.3, GS1: 0.2})
    assert found.of("executed_base_model") == [("pilot", MODEL)]


def test_a_metric_that_was_not_measured_is_inside_no_range(spec: ExperimentSpec) -> None:
    found = pilot_values(spec, PilotRows(rows(), MODEL)).of("gs1_made_up")
    assert found == [("not measured", "missing")]
    assert not within("missing", {"at_least": 0.0})
    assert not within("missing", {"one_of": [MODEL]})


def test_the_record_holds_one_number_or_text_a_metric(spec: ExperimentSpec) -> None:
    """Contract §5: ``{values: {metric: number or string}, note}``."""
    found = pilot_values(spec, PilotRows(rows(), MODEL))
    record = found.to_json()
    assert set(record) == {"values", "note"}
    assert record["values"] == pytest.approx(
        {
            "rollouts_per_step_both_arms": 4,
            "batch_mean_reward_pilot": 0.25,
            "executed_base_model": MODEL,
            "gs1_executed_group_size": 1.0,
            "gs1_effective_contributors_median": 3.0,
            "gs1_mean_abs_baseline_minus_uniform_loo": 0.03,
        }
    )
    for arm, value in found.of("batch_mean_reward_pilot"):
        assert f"{arm} {value}" in record["note"], "the mean over arms must not hide either arm"


def test_arms_that_disagree_are_recorded_with_both_values(spec: ExperimentSpec) -> None:
    steps = rows()
    for row in steps[GS1]:
        row |= {"rollouts": 8, "groups": 8}
    values = pilot_values(spec, PilotRows(steps, MODEL)).to_json()["values"]
    assert values["rollouts_per_step_both_arms"] == f"arms disagree: {GRPO} 4, {GS1} 8"


def test_a_spec_without_gs1_measures_nothing_about_it(spec: ExperimentSpec) -> None:
    only = spec.model_copy(update={"arms": (spec.arm(GRPO),)})
    found = pilot_values(only, PilotRows({GRPO: rows()[GRPO]}, MODEL)).values
    assert not [name for name in found if name.startswith("gs1")]


class StubPilot:
    """A pilot whose arms wrote their rows under attempt 2, after a first that was cut off."""

    def __init__(self, run: PlannedRun) -> None:
        self.run = run
        self.asked: list[int] = []
        self.trained: list[str] = []

    def pilot(self, steps: int) -> StubPilot:
        self.asked.append(steps)
        return self

    def ensure_initial_state(self) -> dict[str, Any]:
        return {"reported": {"model_name": MODEL}}

    def train(self, arm_name: str) -> dict[str, Any]:
        self.trained.append(arm_name)
        for attempt, reward in ((1, 0.9), (2, 0.25)):
            folder = self.run.folder / "arms" / arm_name / f"attempt-{attempt:02d}"
            folder.mkdir(parents=True)
            row = {"step": 0, "attempt": attempt, "reward_mean": reward}
            (folder / "steps.jsonl").write_text(json.dumps(row) + "\n")
        return {"attempt": 2, "steps": 1}


def test_the_pilot_reads_the_attempt_that_finished(tmp_path: Path) -> None:
    stub = StubPilot(plan_run(tmp_path))
    experiment: Any = stub
    found = run_pilot(experiment)
    assert stub.asked == [PILOT_STEPS] == [3], "contract §5: three steps of each arm"
    assert stub.trained == [GRPO, GS1]
    assert found.reported_model == MODEL
    assert {arm: steps[0]["reward_mean"] for arm, steps in found.steps.items()} == {
        GRPO: 0.25,
        GS1: 0.25,
    }


def test_contributors_of_a_uniform_baseline_are_all_the_others() -> None:
    """On 4 prompts: 3 by rows, 4 by columns, 3 by perplexity; a sharp similarity has fewer."""
    spec = load_spec(ROOT / "specs" / "local.json").spec
    arm = next(arm for arm in spec.arms if arm.similarity is not None)
    texts = ["red cats run", "red cats sleep", "blue dogs run", "green birds sing"]
    batch = [Problem(f"p{n}", text, "#### 1", "1") for n, text in enumerate(texts)]
    found = baseline_contributors(arm, [batch])
    (uniform,), (similar,) = found["uniform"], found["similarity"]
    assert uniform["row_median"] == pytest.approx(3.0, rel=1e-12)
    assert uniform["column_ess"] == pytest.approx(4.0, rel=1e-12)
    assert uniform["perplexity_median"] == pytest.approx(3.0, rel=1e-12)
    assert 1.0 <= similar["row_median"] < 3.0, f"similarity baseline {similar}, allowed [1, 3)"
