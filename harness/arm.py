"""One arm, trained by the stock loop in a process of its own.

``python -m harness.arm RUN ARM`` reads the run's plan and initial state, trains through
``tinker_cookbook.rl.train.main`` (synchronous, one substep) and writes under ``arms/ARM/``:
``attempt-NN/steps.jsonl`` and ``rollouts.jsonl`` as it goes, and ``done.json`` at the end with the
final checkpoint. The service's address and key come from the environment, as for any SDK program.

A process of its own, because the cookbook removes root log handlers and its grader can block an
event loop (tinker-notes §7, §9).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import chz
import torch
from tinker_cookbook.rl import train
from tinker_cookbook.utils import ml_log
from tinker_cookbook.utils.code_state import code_state

from harness.advantage_seam import AdvantageSeam
from harness.arm_dataset import ArmDataset, ArmDatasetBuilder, fewshot_prefix, renderer_for
from harness.arm_start import prove_start
from harness.digest import parse_json
from harness.errors import ArmError, HarnessError
from harness.output_guard import guard_output, redacted_result
from harness.plan import PlannedRun, effective_config, read_plan
from harness.reading import read_regular
from harness.service import register_model_tokenizer
from harness.spec_model import Arm, ExperimentSpec
from harness.store import read_jsonl, write_json_atomic
from harness.training_record import TrainingRecord, recorded_training

STOCK_ADAM = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
"""What the stock loop hard-codes (tinker-notes §1); a spec that asks for more is refused."""


def arm_folder(run_folder: Path, arm_name: str) -> Path:
    """Return the folder of one arm of a run."""
    return run_folder / "arms" / arm_name


def read_done(run_folder: Path, arm_name: str) -> dict[str, Any] | None:
    """Return the arm's ``done.json``, or None while it has not finished."""
    path = arm_folder(run_folder, arm_name) / "done.json"
    return parse_json(read_regular(path), where=path.name) if os.path.lexists(path) else None


def attempt_folder(run_folder: Path, arm_name: str) -> Path:
    """Return the folder of the attempt that finished an arm.

    Raises:
        ArmError: when none has.
    """
    done = read_done(run_folder, arm_name)
    if done is None:
        raise ArmError(
            "the arm has not finished training",
            expected="done.json",
            found="nothing",
            where=f"arm {arm_name}",
            fix=f"pytest -m full --arm {arm_name}",
        )
    return arm_folder(run_folder, arm_name) / f"attempt-{done['attempt']:02d}"


def training_config(
    spec: ExperimentSpec, arm: Arm, dataset: ArmDataset, log_path: Path, initial_uri: str
) -> train.Config:
    """Return the stock loop's configuration of one arm; arms differ in data set and group size.

    Raises:
        ArmError: when the spec asks for Adam constants the stock loop does not use.
    """
    asked = spec.execution.optimizer.model_dump()
    if {key: asked[key] for key in STOCK_ADAM} != STOCK_ADAM:
        raise ArmError(
            "the stock loop fixes Adam's constants",
            expected=str(STOCK_ADAM),
            found=str(asked),
            where="execution.optimizer",
            fix="write a revised spec with the stock constants",
        )
    return (
        chz.Blueprint(train.Config)
        .apply(
            {
                "learning_rate": arm.lr,
                "dataset_builder": ArmDatasetBuilder(dataset=dataset),
                "recipe_name": "rl_comparison_harness",
                "model_name": spec.base_model,
                "renderer_name": spec.execution.renderer,
                "max_tokens": spec.execution.max_tokens,
                "temperature": spec.execution.temperature,
                "log_path": str(log_path),
                "load_checkpoint_path": initial_uri,
                "lora_rank": spec.lora_rank,
                "loss_fn": spec.execution.loss_fn,
                "num_substeps": 1,
                "remove_constant_reward_groups": False,
                "kl_penalty_coef": 0.0,
                "max_steps": len(dataset),
                "eval_every": 0,
                "save_every": 0,
                "num_groups_to_log": 0,
            }
        )
        .make()
    )


def train_arm(run: PlannedRun, arm: Arm, folder: Path, attempt: int, steps: int) -> dict[str, Any]:
    """Train one arm from the run's initial state and return its ``done.json``.

    Args:
        run: the plan.
        arm: the arm's part of the spec.
        folder: the attempt's folder, empty.
        attempt: its number.
        steps: the arm's planned steps, or fewer for a pilot.

    Raises:
        ArmError: when a step was not what the plan says, or the loop stopped early.
    """
    register_model_tokenizer(run.spec)
    initial = run.initial_state()
    dataset = ArmDataset(
        run.train_batches(arm)[:steps],
        arm.group_size,
        renderer_for(run.spec),
        fewshot_prefix(run.spec),
    )
    record = TrainingRecord(
        arm,
        AdvantageSeam(arm, dataset),
        folder,
        attempt,
        prove_start=lambda client: prove_start(client, run, arm, folder),
    )
    log_path = folder / "cookbook"
    config = training_config(run.spec, arm, dataset, log_path, initial["checkpoint_uri"])
    executed = {**effective_config(run.spec, arm), "steps": steps}
    write_json_atomic(folder / "effective_config.json", executed)
    with recorded_training(record):
        asyncio.run(train.main(config))
    if record.next_step != steps:
        raise ArmError(
            "the loop ended before the last planned step",
            expected=f"{steps} steps",
            found=f"{record.next_step} steps",
            where=f"arm {arm.name}",
        )
    return {
        "arm": arm.name,
        "attempt": attempt,
        "steps": record.next_step,
        "initial_checkpoint_uri": initial["checkpoint_uri"],
        **_final_checkpoint(log_path, arm, steps),
    }


def _final_checkpoint(log_path: Path, arm: Arm, steps: int) -> dict[str, Any]:
    rows = [row for row in read_jsonl(log_path / "checkpoints.jsonl") if row["name"] == "final"]
    if len(rows) != 1 or rows[0]["batch"] != steps:
        raise ArmError(
            "the arm has no single final checkpoint of its last step",
            expected=f"one row final with batch {steps}",
            found=str([(row["name"], row["batch"]) for row in rows]),
            where=f"arm {arm.name}, checkpoints.jsonl",
        )
    final: Mapping[str, Any] = rows[0]
    return {"state_uri": final["state_path"], "sampler_uri": final["sampler_path"]}


def next_attempt(folder: Path) -> int:
    """Return the number of the next attempt in an arm's folder, from 1."""
    numbers = [int(path.name.removeprefix("attempt-")) for path in folder.glob("attempt-*")]
    return max(numbers, default=0) + 1


def main(argv: Sequence[str]) -> int:
    """Run ``python -m harness.arm RUN ARM [--gsm8k-dir DIR]``; exit 0 when the arm is done."""
    parser = argparse.ArgumentParser(prog="python -m harness.arm")
    parser.add_argument("run", type=Path)
    parser.add_argument("arm")
    parser.add_argument("--gsm8k-dir", type=Path)
    parser.add_argument("--steps", type=int, help="a pilot's number of steps")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    guard_output()
    # The stock loop keeps the working tree's difference beside its logs.
    vars(ml_log)["code_state"] = redacted_result(code_state)
    os.environ["TINKER_TELEMETRY"] = "0"
    # The stock loop of this cookbook still makes the SDK's deprecated calls.
    warnings.simplefilter("ignore", FutureWarning)
    try:
        run = read_plan(options.run, options.gsm8k_dir)
        folder = arm_folder(options.run, options.arm)
        attempt = next_attempt(folder)
        started = folder / f"attempt-{attempt:02d}"
        started.mkdir(parents=True)
        arm = run.spec.arm(options.arm)
        done = train_arm(run, arm, started, attempt, options.steps or arm.steps)
        write_json_atomic(folder / "done.json", done)
    except HarnessError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
