"""One training step of an arm, offline: stock code under the arm's own record, then verified.

The two calls that the synchronous loop makes in a step, ``prepare_minibatch`` and ``train_step``,
run as in an arm; only the service's client is a stand-in. Defects patch the pieces named here.

Shape suffixes: ``_P`` groups of a batch, ``_D`` datums.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import numpy as np
import tinker
import torch
from tinker_cookbook.rl import train
from tinker_cookbook.rl.types import TrajectoryGroup

from harness import verify_training
from harness.advantage_seam import AdvantageSeam
from harness.arm_dataset import ArmDataset, fewshot_prefix, renderer_for
from harness.gates.synthetic_rollouts import synthetic_groups
from harness.gates.verdict import Outcome
from harness.plan import PlannedRun
from harness.problems import Problem
from harness.service import register_model_tokenizer
from harness.spec import load_spec
from harness.spec_model import Arm, ExperimentSpec
from harness.store import read_jsonl
from harness.training_record import TrainingRecord, recorded_training
from harness.verify_rows import Check

__all__ = ["Step", "planned_arm", "recorded_training", "run_step", "verified"]

ROOT = Path(__file__).parents[2]
SHAPES = {"grpo": (4, 4), "gs1": (16, 1)}
"""Groups and group size of a step of 16 rollouts, by advantage mode."""
SUBSTEPS = 1
GRADES = {
    reward: {"correct": correct, "format": form}
    for reward, correct, form in (
        (1.0, 1.0, 1.0),
        (0.9, 1.0, 0.0),
        (0.0, 0.0, 1.0),
        (-0.1, 0.0, 0.0),
    )
}
"""The grades that the cookbook's reward ``0.1·(format − 1) + correct`` comes from."""
PEOPLE, THINGS = ("Tom", "Ann", "Sam", "Eva"), ("red apples", "blue pens", "old coins")


@dataclass(frozen=True)
class Step:
    """What a step left behind, and what was planned for it."""

    arm: Arm
    batch_P: Sequence[Problem]  # noqa: N815 - shape suffix
    folder: Path


class StandIn:
    """Answers a forward-backward pass with the log-probabilities it was sent."""

    metrics: Mapping[str, float] = MappingProxyType({"loss:sum": 1.5})

    async def forward_backward_async(
        self, data: list[tinker.Datum], loss_fn: str, loss_fn_config: Any = None
    ) -> SimpleNamespace:
        del loss_fn, loss_fn_config
        rows = [{"logprobs": datum.loss_fn_inputs["logprobs"]} for datum in data]
        return _done(
            tinker.ForwardBackwardOutput(
                loss_fn_output_type="TensorData", loss_fn_outputs=rows, metrics=dict(self.metrics)
            )
        )

    async def optim_step_async(self, params: tinker.AdamParams) -> SimpleNamespace:
        del params
        return _done(tinker.OptimStepResponse(metrics={}))


def _done(value: Any) -> SimpleNamespace:
    async def result_async() -> Any:
        return value

    return SimpleNamespace(result_async=result_async)


@cache
def local_spec() -> ExperimentSpec:
    """Return the local spec, its tokenizer registered."""
    spec = load_spec(ROOT / "specs" / "local.json").spec
    register_model_tokenizer(spec)
    return spec


def planned_arm(mode: str) -> Arm:
    """Return the local spec's arm of a mode, cut to one step of 16 rollouts."""
    arm = next(arm for arm in local_spec().arms if arm.advantage_mode == mode)
    groups, size = SHAPES[mode]
    return arm.model_copy(update={"groups_per_batch": groups, "group_size": size, "steps": 1})


def planned_batch(arm: Arm) -> list[Problem]:
    """Return the questions of the step."""
    return [
        Problem(
            f"p{i}",
            f"{PEOPLE[i % 4]} has {i} {THINGS[i % 3]} and buys {i + 2} more. How many?",
            f"#### {2 * i + 2}",
            str(2 * i + 2),
        )
        for i in range(arm.groups_per_batch)
    ]


def handed_out(batch_P: list[Problem]) -> list[Problem]:
    """Return the questions in the order the data set hands them out."""
    return batch_P


def executed_arm(arm: Arm) -> Arm:
    """Return the arm whose rollouts are collected."""
    return arm


def collected(dataset: ArmDataset, arm: Arm) -> list[TrajectoryGroup]:
    """Return the rollouts of the step, with rewards that differ inside groups."""
    random = np.random.default_rng(7)
    rewards = random.choice(list(GRADES), size=(arm.groups_per_batch, arm.group_size))
    groups_P = synthetic_groups(dataset, rewards.tolist(), random)
    for trajectory in (one for group in groups_P for one in group.trajectories_G):
        turn = trajectory.transitions[0]
        trajectory.transitions[0] = replace(turn, metrics=GRADES[turn.reward])
    return groups_P


def sent(data_D: list[tinker.Datum]) -> list[tinker.Datum]:
    """Return the datums that are sent."""
    return data_D


async def loop_body(groups_P: list[TrajectoryGroup], dataset: ArmDataset) -> None:
    """Prepare and train one minibatch as the stock loop does."""
    builders = [*dataset.get_batch(0)][:1] * len(groups_P)
    tokenizer: Any = dataset.renderer.tokenizer
    data_D, _ = await train.prepare_minibatch(builders, groups_P, tokenizer, None, 0.0, 0.0)
    client: Any = StandIn()
    logprobs_D: list[torch.Tensor] = await vars(train)["train_step"](
        sent(data_D), client, 1e-4, SUBSTEPS, "importance_sampling"
    )
    if not logprobs_D:
        raise ValueError("the stand-in returned nothing")


def run_step(mode: str, folder: Path) -> Step:
    """Run the step of one mode.

    Raises:
        ArmError, AdvantageError: when the arm's own guards refuse it.
    """
    arm = planned_arm(mode)
    batch_P = planned_batch(arm)
    spec = local_spec()
    executed = executed_arm(arm)
    prompts_P = handed_out(planned_batch(executed))
    dataset = ArmDataset([prompts_P], executed.group_size, renderer_for(spec), fewshot_prefix(spec))
    dataset.get_batch(0)
    seam = AdvantageSeam(arm, dataset)
    groups_P = collected(dataset, executed)
    folder.mkdir(parents=True)
    with recorded_training(TrainingRecord(arm, seam, folder, attempt=1)):
        asyncio.run(loop_body(groups_P, dataset))
    return Step(arm, batch_P, folder)


def verified(step: Step) -> list[Check]:
    """Judge the step's files again with ``harness verify``'s own checks."""
    steps, rows = (read_jsonl(step.folder / f"{name}.jsonl") for name in ("steps", "rollouts"))
    by_step = {0: list(rows)}
    run = cast(PlannedRun, SimpleNamespace(train_batches=lambda _arm: [step.batch_P]))
    return [
        verify_training._steps(step.arm, steps, by_step),
        *verify_training._prompts_and_advantages(run, step.arm, steps, by_step),
    ]


def failed_checks(step: Step) -> list[str]:
    """Return the checks that did not pass, in words."""
    found = verified(step)
    wrong = [check for check in found if check.outcome is not Outcome.PASS]
    if not wrong and len(found) != 3:
        raise ValueError(f"{len(found)} checks passed where steps, prompts and advantages are 3")
    return [f"{check.name}: {check.detail}" for check in wrong]
