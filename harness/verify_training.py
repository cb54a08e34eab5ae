"""An arm's training judged again: steps, prompts, rollouts and every advantage."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import reference
from harness.arm import attempt_folder, read_done
from harness.arm_dataset import prompt_ids_sha256
from harness.arm_start import read_start
from harness.digest import parse_json
from harness.errors import HarnessError
from harness.evaluation_record import BASE_ARM
from harness.plan import PlannedRun
from harness.problems import Problem
from harness.reading import read_regular
from harness.service import adapter_digest
from harness.spec_model import Arm
from harness.store import read_jsonl
from harness.verify_rows import Check, Rows, failed, passed, unknown

ADVANTAGE_TOLERANCE = 1e-12
STEP_MEANS = {"reward_mean": "reward", "accuracy": "correct", "format": "format"}
"""Means in a line of steps.jsonl, and the rollout field each is the mean of."""
FORMAT_COEFFICIENT = 0.1
"""Weight of the format in the cookbook's training reward (design §4)."""
Row = Mapping[str, Any]


def training_checks(run: PlannedRun, arm: Arm) -> list[Check]:
    """Return the checks of one arm: start, steps against rollouts, prompts, advantages."""
    done = read_done(run.folder, arm.name)
    if done is None:
        return [unknown(f"training {arm.name}", "the arm has not finished")]
    attempt = attempt_folder(run.folder, arm.name)
    steps = read_jsonl(attempt / "steps.jsonl")
    by_step: dict[int, list[Row]] = defaultdict(list)
    for row in read_jsonl(attempt / "rollouts.jsonl"):
        by_step[row["step"]].append(row)
    return [
        _config(run, arm, attempt, done),
        _start(run, arm, attempt, done),
        _steps(arm, steps, by_step),
        *_prompts_and_advantages(run, arm, steps, by_step),
    ]


def _config(run: PlannedRun, arm: Arm, attempt: Path, done: Row) -> Check:
    """Compare what was executed with what was planned."""
    name = f"config {arm.name}"
    path = attempt / "effective_config.json"
    executed = parse_json(read_regular(path), where=path.name)
    planned = run.plan["arms"][arm.name]["effective_config"]
    changed = sorted(key for key in {*planned, *executed} if planned.get(key) != executed.get(key))
    if changed:
        key = changed[0]
        return failed(name, f"{key}: executed {executed.get(key)}, planned {planned.get(key)}")
    if done["steps"] != arm.steps:
        return failed(name, f"{done['steps']} steps done, planned {arm.steps}")
    return passed(name, f"executed as planned, {done['steps']} steps")


def checkpoints_check(run: PlannedRun, predictions: Rows) -> Check:
    """Compare the weights that were scored with those that training ended with."""
    if not predictions:
        return unknown("checkpoints", "nothing was scored yet")
    for arm, rows in predictions.items():
        done = (
            {"sampler_uri": run.spec.base_model} if arm == BASE_ARM else read_done(run.folder, arm)
        )
        expected = None if done is None else done["sampler_uri"]
        scored = sorted({str(row["checkpoint"]) for row in rows})
        if scored != [expected]:
            return failed("checkpoints", f"{arm}: scored {scored[:3]}, trained {expected}")
    return passed("checkpoints", f"final weights of each of {sorted(predictions)}")


def _start(run: PlannedRun, arm: Arm, attempt: Path, done: Row) -> Check:
    """Hash the initial adapter and the one the arm's client held before its first update."""
    name = f"start {arm.name}"
    initial = run.initial_state()
    if done["initial_checkpoint_uri"] != initial["checkpoint_uri"]:
        return failed(name, "the arm did not start from the run's initial state")
    planned = adapter_digest(run.folder / "initial_adapter")
    found = adapter_digest(attempt / "start_adapter")
    recorded = read_start(attempt)["adapter_sha256"]
    if not planned == found == recorded == initial["adapter_sha256"]:
        return failed(name, f"adapter {found} (recorded {recorded}), the run's is {planned}")
    return passed(name, f"from the run's initial adapter {found[:12]}")


def _steps(arm: Arm, steps: Sequence[Row], by_step: Mapping[int, Sequence[Row]]) -> Check:
    name = f"steps {arm.name}"
    numbers = [row["step"] for row in steps]
    planned = arm.group_size * arm.groups_per_batch
    if numbers != list(range(arm.steps)) or sorted(by_step) != numbers:
        return failed(name, f"steps {numbers[:3]}… are not 0 to {arm.steps - 1}, once each")
    for row in steps:
        rollouts = by_step[row["step"]]
        if fault := _reward_fault(rollouts):
            return failed(name, f"step {row['step']} {fault}")
        if len(rollouts) != planned or row["datums"] != planned:
            return failed(name, f"step {row['step']}: {len(rollouts)} rollouts, planned {planned}")
        for key, source in STEP_MEANS.items():
            mean = math.fsum(rollout[source] for rollout in rollouts) / planned
            if not math.isclose(row[key], mean, rel_tol=1e-12, abs_tol=1e-12):
                return failed(name, f"step {row['step']} {key}: {row[key]}, rollouts give {mean}")
    return passed(name, f"{len(numbers)} steps agree with their {planned} rollouts each")


def _reward_fault(rollouts: Sequence[Row]) -> str:
    """Return the first rollout whose reward is not the cookbook's 0.1·(format − 1) + correct."""
    for row in rollouts:
        reward = FORMAT_COEFFICIENT * (row["format"] - 1.0) + row["correct"]
        if not math.isclose(row["reward"], reward, rel_tol=1e-12, abs_tol=1e-12):
            return f"{row['item_id']}: reward {row['reward']}, its own grades give {reward}"
    return ""


def _prompts_and_advantages(
    run: PlannedRun, arm: Arm, steps: Sequence[Row], by_step: Mapping[int, Sequence[Row]]
) -> list[Check]:
    try:
        batches = run.train_batches(arm)
    except HarnessError as error:
        why = f"the train rows cannot be had here: {error.problem}"
        return [unknown(f"{what} {arm.name}", why) for what in ("prompts", "advantages")]
    if len(steps) != len(batches):
        text = f"{len(steps)} steps, planned {len(batches)}"
        return [failed(f"prompts {arm.name}", text)]
    worst = 0.0
    for row, batch_P in zip(steps, batches, strict=True):
        if row["prompt_ids_sha256"] != prompt_ids_sha256(batch_P):
            return [failed(f"prompts {arm.name}", f"step {row['step']} used other prompts")]
        worst = max(worst, _advantage_error(arm, batch_P, by_step[row["step"]]))
    name = f"advantages {arm.name}"
    text = f"largest difference from the reference {worst:.1e}, allowed {ADVANTAGE_TOLERANCE:.0e}"
    judge = passed if worst <= ADVANTAGE_TOLERANCE else failed
    return [
        passed(f"prompts {arm.name}", f"{len(batches)} batches in the planned order"),
        judge(name, text),
    ]


def _advantage_error(arm: Arm, batch_P: Sequence[Problem], rollouts: Sequence[Row]) -> float:
    expected_ids = [problem.item_id for problem in batch_P for _ in range(arm.group_size)]
    if [row["item_id"] for row in rollouts] != expected_ids:
        return math.inf
    rewards = [float(row["reward"]) for row in rollouts]
    if arm.advantage_mode == "gs1" and arm.tau is not None:
        questions = [problem.question for problem in batch_P]
        expected = reference.gs1_advantages(questions, rewards, arm.tau)
    else:
        size = arm.group_size
        groups = [rewards[at : at + size] for at in range(0, len(rewards), size)]
        expected = [value for group in reference.grpo_advantages(groups) for value in group]
    pairs = zip(expected, rollouts, strict=True)
    return max(abs(value - float(row["advantage"])) for value, row in pairs)
