"""One arm, trained by the stock loop in a process of its own.

``python -m harness.arm RUN ARM`` reads the run's plan and initial state, trains through
``tinker_cookbook.rl.train.main`` (synchronous, one substep) and writes under ``arms/ARM/``:
``attempt-NN/steps.jsonl`` and ``rollouts.jsonl`` as it goes, and ``done.json`` at the end with the
final checkpoint. An arm that was cut off is continued by a new attempt, from the newest state that
the service keeps (:mod:`harness.resume`). The service's address and key come from the environment,
as for any SDK program.

A process of its own, because the cookbook removes root log handlers and its grader can block an
event loop (tinker-notes §7, §9).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tinker
import torch
from tinker_cookbook.rl import train
from tinker_cookbook.utils import ml_log
from tinker_cookbook.utils.code_state import code_state

from harness.advantage_seam import AdvantageSeam
from harness.arm_config import training_config
from harness.arm_dataset import ArmDataset, fewshot_prefix, renderer_for
from harness.arm_restores import prove_restore
from harness.arm_start import prove_start
from harness.attempts import Attempt, arm_lineage
from harness.digest import parse_json
from harness.errors import ArmError
from harness.output_guard import redacted_result
from harness.plan import PlannedRun, effective_config
from harness.reading import read_regular
from harness.resume import (
    CHECKPOINTS_NAME,
    COOKBOOK_FOLDER,
    FINAL_NAME,
    SavedState,
    newest_kept,
    prepare_attempt,
    service_keeps,
)
from harness.rollout_origin import EXACT_BOUNDS, SHARED_BOUNDS
from harness.rollout_seeds import RolloutSeeds
from harness.sdk_generation import training_client
from harness.service import register_model_tokenizer, sdk_client
from harness.spec_model import Arm
from harness.stage_process import do_stage, run_stage_main
from harness.store import append_jsonl, read_jsonl, write_json_atomic
from harness.training_record import TrainingRecord, recorded_training


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
        ArmError: when none has, or the attempts are no single training run.
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
    folder = arm_folder(run_folder, arm_name)
    return arm_lineage(folder, done)[-1].folder(folder)


def take_attempt(run: PlannedRun, arm: Arm, steps: int) -> dict[str, Any]:
    """Bring an arm to its end, from its newest kept state or from the start; return ``done.json``.

    Args:
        run: the plan.
        arm: the arm's part of the spec.
        steps: the arm's planned steps, or fewer for a pilot.

    Raises:
        ArmError: as :func:`train_arm`.
        ServiceError: when the service does not say what it keeps.
    """
    folder = arm_folder(run.folder, arm.name)
    number = next_attempt(folder)
    state = _newest_state(folder, steps) if number > 1 else None
    if state is not None and state.is_final:
        # Only the arm's own last line was missing.
        return _done(run, arm, state.attempt, steps, state.state_uri, state.sampler_uri)
    attempt = Attempt(number)
    attempt.folder(folder).mkdir(parents=True)
    if state is not None:
        attempt = Attempt(number, state.step, state.attempt)
        prepare_attempt(attempt.folder(folder), number, state)
    return train_arm(run, arm, attempt, steps, state)


def _newest_state(folder: Path, steps: int) -> SavedState | None:
    def passed_over(state: SavedState) -> None:
        sys.stderr.write(f"the service does not keep {state.state_uri} any more\n")

    with sdk_client() as client:
        return newest_kept(folder, steps, service_keeps(client), passed_over)


def train_arm(
    run: PlannedRun, arm: Arm, attempt: Attempt, steps: int, state: SavedState | None = None
) -> dict[str, Any]:
    """Train one arm to its last step and return its ``done.json``.

    Args:
        run: the plan.
        arm: the arm's part of the spec.
        attempt: the attempt; its folder is there.
        steps: the arm's planned steps, or fewer for a pilot.
        state: what the attempt continues; None: the run's initial state.

    Raises:
        ArmError: when a step was not what the plan says, or the loop stopped early.
    """
    register_model_tokenizer(run.spec)
    parent = arm_folder(run.folder, arm.name)
    folder = attempt.folder(parent)
    log_path = folder / COOKBOOK_FOLDER
    executed = {**effective_config(run.spec, arm), "steps": steps}
    write_json_atomic(folder / "effective_config.json", executed)

    def prove(client: tinker.TrainingClient) -> None:
        if attempt.continues is None:
            prove_start(client, run, arm, folder)
        else:
            prove_restore(client, run.spec, arm.name, parent, attempt)

    if state is not None and state.step == steps:
        _save_final(state, log_path, prove)
    else:
        _run_loop(run, arm, attempt, steps, prove)
    final = _final_checkpoint(log_path, arm, steps)
    return _done(run, arm, attempt.number, steps, final["state_uri"], final["sampler_uri"])


def _run_loop(
    run: PlannedRun,
    arm: Arm,
    attempt: Attempt,
    steps: int,
    prove: Callable[[tinker.TrainingClient], None],
) -> None:
    folder = attempt.folder(arm_folder(run.folder, arm.name))
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
        attempt.number,
        first_step=attempt.first_step,
        prove_start=prove,
        sampling_seeds=RolloutSeeds(arm.seed, dataset),
        bounds=EXACT_BOUNDS if run.spec.embedded else SHARED_BOUNDS,
    )
    initial_uri = run.initial_state(arm.seed)["checkpoint_uri"]
    config = training_config(run.spec, arm, dataset, folder / COOKBOOK_FOLDER, initial_uri)
    with recorded_training(record):
        asyncio.run(train.main(config))
    if record.next_step != steps:
        raise ArmError(
            "the loop ended before the last planned step",
            expected=f"{steps} steps",
            found=f"{record.next_step} steps",
            where=f"arm {arm.name}",
        )


def _save_final(
    state: SavedState, log_path: Path, prove: Callable[[tinker.TrainingClient], None]
) -> None:
    """Save what the loop saves at its end, for an arm that was cut off between the two."""
    with sdk_client() as client:
        loading = client.create_training_client_from_state_with_optimizer(state.state_uri)
        training = training_client(loading)
        prove(training)
        saved = training.save_state(FINAL_NAME).result().path
        sampler = training.save_weights_for_sampler(FINAL_NAME).result().path
    row = {"name": FINAL_NAME, "batch": state.step, "state_path": saved, "sampler_path": sampler}
    append_jsonl(log_path / CHECKPOINTS_NAME, row)


def _done(
    run: PlannedRun, arm: Arm, attempt: int, steps: int, state_uri: str, sampler_uri: str | None
) -> dict[str, Any]:
    return {
        "arm": arm.name,
        "attempt": attempt,
        "steps": steps,
        "initial_checkpoint_uri": run.initial_state(arm.seed)["checkpoint_uri"],
        "state_uri": state_uri,
        "sampler_uri": sampler_uri,
    }


def _final_checkpoint(log_path: Path, arm: Arm, steps: int) -> dict[str, Any]:
    rows = [row for row in read_jsonl(log_path / CHECKPOINTS_NAME) if row["name"] == FINAL_NAME]
    if len(rows) != 1 or rows[0]["batch"] != steps:
        raise ArmError(
            "the arm has no single final checkpoint of its last step",
            expected=f"one row final with batch {steps}",
            found=str([(row["name"], row["batch"]) for row in rows]),
            where=f"arm {arm.name}, checkpoints.jsonl",
        )
    final: Mapping[str, Any] = rows[0]
    return {"state_uri": final["state_path"], "sampler_uri": final["sampler_path"]}


def refuse_unproven(run: PlannedRun) -> None:
    """Refuse to train a run that was planned on gates that did not stand, unless it is a pilot.

    A pilot is what some of the gates are measured with.

    Raises:
        ArmError: naming the gates.
    """
    gates = run.plan.get("gates", {})
    open_gates = sorted(name for name, found in gates.items() if found["outcome"] != "pass")
    if run.plan.get("pilot_steps") is None and (open_gates or not gates):
        raise ArmError(
            "no arm trains before every gate stands",
            expected="a run that was planned on proven gates",
            found=f"not proven then: {', '.join(open_gates) or 'no gate at all'}",
            where=run.folder.name,
            fix="pytest -m full",
        )


def next_attempt(folder: Path) -> int:
    """Return the number of the next attempt in an arm's folder, from 1."""
    numbers = [int(path.name.removeprefix("attempt-")) for path in folder.glob("attempt-*")]
    return max(numbers, default=0) + 1


def finish_arm(run: PlannedRun, arm_name: str) -> None:
    """Train an arm to its end and write its ``done.json``.

    Raises:
        HarnessError: as :func:`refuse_unproven` and :func:`take_attempt`.
    """
    torch.set_num_threads(1)
    # The stock loop keeps the working tree's difference beside its logs.
    setattr(ml_log, "code_state", redacted_result(code_state))  # noqa: B010 - not its public name
    refuse_unproven(run)
    arm = run.spec.arm(arm_name)
    done = take_attempt(run, arm, run.plan.get("pilot_steps") or arm.steps)
    write_json_atomic(arm_folder(run.folder, arm_name) / "done.json", done)


def main(argv: Sequence[str]) -> int:
    """Run ``python -m harness.arm RUN ARM [--gsm8k-dir DIR]``; exit 0 when the arm is done."""
    return do_stage("harness.arm", argv, str, finish_arm)


if __name__ == "__main__":
    sys.exit(run_stage_main(main, sys.argv[1:]))
