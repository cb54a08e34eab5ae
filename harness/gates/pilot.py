"""Three steps of each arm, exactly as the full run would make them (contract §5).

The pilot is a run of its own, in its own folder, through the same stages and processes; only the
number of steps differs. What it measures is read back from its rows.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from harness.activation import contributors
from harness.arm import arm_folder
from harness.attempts import arm_steps
from harness.errors import UsageError
from harness.experiment import Experiment
from harness.problems import Problem
from harness.similarity import SIMILARITIES, gs1_weights, uniform_loo_weights
from harness.spec_model import Arm, ExperimentSpec

PILOT_STEPS = 3
POOLED = frozenset({"batch_mean_reward_pilot"})
"""Metrics in which arms differ by chance: the record holds the mean over arms of equal size, and
the gate judges each arm by itself."""
Value = float | str


@dataclass(frozen=True)
class PilotRows:
    """Rows of one pilot.

    Attributes:
        steps: arm → its lines of ``steps.jsonl``.
        reported_model: what the service says it trains.
        contributors: treated arm → effective contributors of the uniform and of the similarity
            baseline on the pilot's prompts, by three definitions; a diagnostic.
    """

    steps: Mapping[str, Sequence[Mapping[str, Any]]]
    reported_model: str
    contributors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class PilotValues:
    """Values of contract §5, per arm where an arm has its own."""

    values: dict[str, Any]
    note: str

    def of(self, metric: str) -> list[tuple[str, Value]]:
        """Return (arm, value) pairs of a metric; a metric that was not measured is ``missing``."""
        value = self.values.get(metric)
        if value is None:
            return [("not measured", "missing")]
        if isinstance(value, Mapping):
            return [(str(arm), item) for arm, item in value.items()]
        return [("pilot", value)]

    def to_json(self) -> dict[str, Any]:
        """Return contract §5's record: one number or text a metric.

        A metric in which arms disagree is a text with every arm's value, which no range accepts.
        """
        single = {
            metric: _single(metric, value) if isinstance(value, Mapping) else value
            for metric, value in self.values.items()
        }
        pooled = "; ".join(
            f"{metric}: {_by_arm(value)}"
            for metric, value in self.values.items()
            if metric in POOLED
        )
        return {"values": single, "note": f"{self.note}. By arm: {pooled}."}


def run_pilot(experiment: Experiment) -> PilotRows:
    """Train every arm of the session's spec for three steps and read what it recorded."""
    pilot = experiment.pilot(PILOT_STEPS)
    initial = pilot.ensure_initial_state()
    steps: dict[str, Sequence[Mapping[str, Any]]] = {}
    spec = pilot.run.spec
    first_seed = spec.at(spec.decision_rule.seeds[0])
    for arm, trained in zip(spec.arms, first_seed, strict=True):
        done = pilot.train(trained.name)
        steps[arm.name] = arm_steps(arm_folder(pilot.run.folder, trained.name), done)
    measured = {
        arm.name: baseline_contributors(arm, pilot.run.train_batches(trained)[:PILOT_STEPS])
        for arm, trained in zip(spec.arms, first_seed, strict=True)
        if arm.similarity is not None
    }
    return PilotRows(steps, str(initial["reported"].get("model_name", "")), measured)


def baseline_contributors(arm: Arm, batches: Sequence[Sequence[Problem]]) -> dict[str, Any]:
    """Return the effective contributors of both baselines on each batch (contract §5).

    Args:
        arm: an arm with a similarity baseline.
        batches: the pilot's problems, one sequence a step.

    Raises:
        UsageError: for an arm without a similarity.
    """
    if arm.similarity is None:
        raise UsageError("the arm has no similarity baseline", where=arm.name)
    similarity = SIMILARITIES[arm.similarity]
    found: dict[str, Any] = {"similarity": [], "uniform": []}
    for batch_P in batches:
        weights_PP = gs1_weights(similarity([problem.question for problem in batch_P]), arm.tau)
        found["similarity"].append(asdict(contributors(weights_PP)))
        found["uniform"].append(asdict(contributors(uniform_loo_weights(len(batch_P)))))
    return found


def pilot_values(spec: ExperimentSpec, pilot: PilotRows) -> PilotValues:
    """Return the metrics of contract §5 measured on a pilot."""
    treated = [arm.name for arm in spec.arms if arm.advantage_mode == "gs1"]
    values: dict[str, Any] = {
        "rollouts_per_step_both_arms": {
            arm: _one([row["rollouts"] for row in rows]) for arm, rows in pilot.steps.items()
        },
        "batch_mean_reward_pilot": {
            arm: statistics.fmean(row["reward_mean"] for row in rows)
            for arm, rows in pilot.steps.items()
        },
        "executed_base_model": pilot.reported_model,
    }
    if treated:
        rows = {arm: pilot.steps[arm] for arm in treated}
        values |= {
            "gs1_executed_group_size": {
                arm: _one([row["rollouts"] / row["groups"] for row in found])
                for arm, found in rows.items()
            },
            "gs1_effective_contributors_median": {
                arm: _median(found, "effective_contributors_median") for arm, found in rows.items()
            },
            "gs1_mean_abs_baseline_minus_uniform_loo": {
                arm: statistics.fmean(
                    row["activation"]["mean_abs_baseline_minus_uniform_loo"] for row in found
                )
                for arm, found in rows.items()
            },
        }
    note = f"{PILOT_STEPS} steps of each arm, through the same processes as the full run"
    return PilotValues(values, note)


def _single(metric: str, by_arm: Mapping[str, Value]) -> Value:
    distinct = set(by_arm.values())
    if len(distinct) == 1:
        return distinct.pop()
    numbers = [value for value in by_arm.values() if not isinstance(value, str)]
    if metric in POOLED and len(numbers) == len(by_arm):
        return statistics.fmean(numbers)
    return f"arms disagree: {_by_arm(by_arm)}"


def _by_arm(by_arm: Mapping[str, Value]) -> str:
    return ", ".join(f"{arm} {value}" for arm, value in by_arm.items())


def _median(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    return statistics.median(row["activation"][key] for row in rows)


def _one(values: Sequence[float]) -> Value:
    """Return the value all steps share; steps that disagree give a word that no range accepts."""
    distinct = sorted(set(values))
    return distinct[0] if len(distinct) == 1 else f"steps disagree: {distinct}"
