"""Times what the full run is made of and projects its cost (contract §6).

Training and set-up come from the newest pilot of this very content. Evaluation is timed here on a
sample of the real items, through the code that scores the arms. Nothing is scaled by a model's
size.

The unit of set-up is one process. Its seconds hold what happens once (start of the service, initial
state), and a process that only evaluates counts like one that trains: an upper estimate.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tinker

from harness.evaluate import BASE_ARM, METRIC, evaluator_object, score
from harness.feasibility import FeasibilityRecord, parse_record, section
from harness.feasibility_rules import OVER_BUDGET, assess, config_digest, planned_config
from harness.gates.fact import VACUOUS, Fact, Measured
from harness.gates.pilot_timing import PilotTiming
from harness.plan import PlannedRun
from harness.problems import Problem
from harness.sdk_generation import sampling_client
from harness.spec_model import ExperimentSpec

SAMPLE_ITEMS = 128
WARM_UP_ITEMS = 8


@dataclass(frozen=True)
class EvaluationTiming:
    """``items`` scored greedily in ``seconds``, of ``planned_items`` a model."""

    seconds: float
    items: int
    planned_items: int


@dataclass(frozen=True)
class _Sample(PlannedRun):
    """A run that has only the items of a sample, drawn before, so that loading is not timed."""

    items: tuple[Problem, ...] = ()

    def test_problems(self) -> tuple[Problem, ...]:
        """Return the sample."""
        return self.items


def _sample(run: PlannedRun, items: tuple[Problem, ...]) -> _Sample:
    return _Sample(run.folder, run.loaded, run.plan, run.gsm8k_dir, items)


def time_evaluation(client: tinker.ServiceClient, run: PlannedRun) -> EvaluationTiming:
    """Score a sample of the test items on the base model as the run would, and time it.

    The first few items open connections and are not counted.
    """
    problems = run.test_problems()
    evaluator = evaluator_object(run.spec, problems)
    about = {"arm": BASE_ARM, "metric": METRIC}
    sampler = sampling_client(client.create_sampling_client(base_model=run.spec.base_model))

    async def timed() -> tuple[float, int]:
        kept: list[dict[str, Any]] = []
        warm_up = _sample(run, problems[:WARM_UP_ITEMS])
        await score(sampler, warm_up, evaluator, about, {}, kept.append)
        started_s = time.monotonic()
        sample = _sample(run, problems[-SAMPLE_ITEMS:])
        rows = await score(sampler, sample, evaluator, about, {}, kept.append)
        return time.monotonic() - started_s, len(rows)

    with warnings.catch_warnings():
        # The cookbook's renderers still make calls that the SDK calls deprecated.
        warnings.simplefilter("ignore", FutureWarning)
        seconds, items = asyncio.run(timed())
    return EvaluationTiming(seconds, items, len(problems))


def feasibility_record(
    spec: ExperimentSpec,
    pilot: PilotTiming,
    evaluation: EvaluationTiming,
    service_start_s: float,
    allocation: Mapping[str, int | str | None],
) -> FeasibilityRecord:
    """Return the record of contract §6.

    Args:
        spec: the plan.
        pilot: times of the pilot.
        evaluation: times of the sample of items.
        service_start_s: seconds the service took to start.
        allocation: gpu_count and allocation_source, each None without evidence.
    """
    arms, trainings = len(spec.arms), len(spec.trainings)
    step_s = _steps_to_scale(spec, pilot)
    effective = planned_config(spec, evaluation.planned_items)
    effective["arms"] = {
        arm.name: {**pilot.configs[arm.name], "steps": arm.steps}
        for arm in spec.at(spec.decision_rule.seeds[0])
    }
    setup_s = service_start_s + pilot.initial_s + sum(pilot.setup_s.values())
    phases = {
        "setup": (setup_s, arms, trainings + trainings + 1, arms),
        "training": (
            sum(step_s),
            len(step_s),
            sum(training.steps for training in spec.trainings),
            len(step_s),
        ),
        "evaluation": (
            evaluation.seconds,
            evaluation.items,
            evaluation.planned_items * (trainings + 1),
            1,
        ),
    }
    names = ("seconds", "units", "planned_units", "samples")
    return parse_record(
        {
            "config": planned_config(spec),
            "effective_config": effective,
            "primary_endpoint": spec.primary_endpoint,
            "source": (
                f"pilot {pilot.run_id}: each arm's steps after the first; set-up of its arms with"
                " one start of the service and the initial state, per process, an upper estimate;"
                f" {evaluation.items} greedy items of the base model; recovery is one arm's"
                " process started again, without the steps it lost"
            ),
            "measurements": {
                phase: {**dict(zip(names, values, strict=True)), **allocation}
                for phase, values in phases.items()
            },
            "generation": None,
            "recovery": {"seconds": max(pilot.setup_s.values()), **allocation},
        }
    )


def _steps_to_scale(spec: ExperimentSpec, pilot: PilotTiming) -> list[float]:
    """Return step times whose mean may be multiplied by all planned steps of all arms.

    Arms of equal length are pooled; otherwise a mean over arms would weigh them wrongly, so the
    slowest arm stands for all.
    """
    if len({arm.steps for arm in spec.arms}) == 1:
        return [seconds for times_s in pilot.step_s.values() for seconds in times_s]
    return list(max(pilot.step_s.values(), key=lambda times_s: sum(times_s) / len(times_s)))


def budget_facts(spec: ExperimentSpec, record: FeasibilityRecord) -> Measured:
    """Return what the gate checks: enough was timed, on this configuration, and it fits."""
    found = assess(record, spec)
    taken, projection = record.measurements.taken(), found.projection
    wall_s, gpu_hours = projection.projected_wall_seconds, projection.projected_gpu_hours
    effect = f"the run would be cut off before its decision; {OVER_BUDGET}"
    items = min(SAMPLE_ITEMS, spec.eval.n_examples)
    stale = "the times are of another experiment than the planned one"
    facts = [
        Fact("steps timed", taken["training"].units, {"at_least": 2}, VACUOUS),
        Fact("evaluation items timed", taken["evaluation"].units, {"at_least": items}, VACUOUS),
        Fact("training seconds", taken["training"].seconds, {"above": 0.0}, VACUOUS),
        Fact("evaluation seconds", taken["evaluation"].seconds, {"above": 0.0}, VACUOUS),
        Fact(
            "digest of the configuration that was timed",
            config_digest(record.effective_config),
            {"equals": config_digest(planned_config(spec))},
            stale,
        ),
        Fact(
            "projected wall seconds",
            float("nan") if wall_s is None else wall_s,
            {"at_most": spec.budget.max_wall_minutes * 60.0},
            effect,
        ),
    ]
    if gpu_hours is not None:
        facts.append(
            Fact("projected GPU-hours", gpu_hours, {"at_most": spec.budget.gpu_hours}, effect)
        )
    against = "; ".join(finding.text for finding in found.findings)
    facts.append(Fact("feasibility", found.outcome.value, {"equals": "pass"}, effect, against))
    seconds = {"seconds by phase": projection.phase_seconds}
    return Measured(tuple(facts), {"feasibility": section(record), **seconds})
