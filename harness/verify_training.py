"""An arm's training judged again: steps, prompts, rollouts and every advantage."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.advantage_seam import arm_params
from harness.arm import arm_folder, read_done
from harness.arm_dataset import prompt_ids_sha256
from harness.arm_start import read_start
from harness.attempts import arm_lineage, arm_rollouts, arm_steps
from harness.digest import parse_json
from harness.errors import ArmError, HarnessError
from harness.evaluation_record import BASE_ARM
from harness.plan import PlannedRun
from harness.problems import Problem
from harness.reading import read_regular
from harness.reference_modes import reference_advantages
from harness.service import adapter_digest
from harness.spec_model import Arm
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
    folder = arm_folder(run.folder, arm.name)
    try:
        line, steps = arm_lineage(folder, done), arm_steps(folder, done)
    except ArmError as error:
        return [failed(f"steps {arm.name}", f"{error.expected}, found {error.found}")]
    by_step: dict[int, list[Row]] = defaultdict(list)
    for row in arm_rollouts(folder, done):
        by_step[row["step"]].append(row)
    return [
        _config(run, arm, [attempt.folder(folder) for attempt in line], done),
        _start(run, arm, line[0].folder(folder), done),
        _steps(arm, steps, by_step),
        *_prompts_and_advantages(run, arm, steps, by_step),
    ]


def _config(run: PlannedRun, arm: Arm, attempts: Sequence[Path], done: Row) -> Check:
    """Compare what every attempt executed with what was planned."""
    name = f"config {arm.name}"
    planned = run.plan["arms"][arm.name]["effective_config"]
    for attempt in attempts:
        path = attempt / "effective_config.json"
        executed = parse_json(read_regular(path), where=f"{attempt.name}/{path.name}")
        keys = {*planned, *executed}
        changed = sorted(key for key in keys if planned.get(key) != executed.get(key))
        if changed:
            key = changed[0]
            return failed(name, f"{key}: executed {executed.get(key)}, planned {planned.get(key)}")
    if done["steps"] != arm.steps:
        return failed(name, f"{done['steps']} steps done, planned {arm.steps}")
    continued = f", continued {len(attempts) - 1} times" if len(attempts) > 1 else ""
    return passed(name, f"executed as planned, {done['steps']} steps{continued}")


def checkpoints_check(run: PlannedRun, predictions: Rows) -> Check:
    """Compare the weights that were scored with those that training ended with."""
    if not predictions:
        return unknown("checkpoints", "nothing was scored yet")
    finals = {(BASE_ARM, run.spec.decision_rule.seeds[0]): run.spec.base_model}
    for training in run.spec.trainings:
        if (done := read_done(run.folder, training.name)) is not None:
            finals[run.spec.arm_of(training.name), training.seed] = done["sampler_uri"]
    for arm, rows in predictions.items():
        for seed in sorted({row["seed"] for row in rows}):
            scored = sorted({str(row["checkpoint"]) for row in rows if row["seed"] == seed})
            if scored != [expected := finals.get((arm, seed))]:
                return failed("checkpoints", f"{arm}: scored {scored[:3]}, trained {expected}")
    return passed("checkpoints", f"final weights of each of {sorted(predictions)}")


def _start(run: PlannedRun, arm: Arm, attempt: Path, done: Row) -> Check:
    """Hash the initial adapter and the one the arm's client held before its first update."""
    name = f"start {arm.name}"
    initial = run.initial_state(arm.seed)
    if done["initial_checkpoint_uri"] != initial["checkpoint_uri"]:
        return failed(name, "the arm did not start from the run's initial state")
    planned = adapter_digest(run.initial_adapter(arm.seed))
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
    size = arm.group_size
    groups = [rewards[at : at + size] for at in range(0, len(rewards), size)]
    questions = [problem.question for problem in batch_P]
    found = reference_advantages(arm.advantage_mode, questions, groups, arm_params(arm))
    expected = [value for group in found for value in group]
    pairs = zip(expected, rollouts, strict=True)
    return max(abs(value - float(row["advantage"])) for value, row in pairs)
