"""An arm's wall time against the stock cookbook loop, unpatched: same service, same configuration.

Both run in a process of their own, started alike; ``python -m benchmarks.arm_time RUN ARM LOG`` is
the stock one. It restores the same state, saves as often, and records nothing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import tinker
import torch
from tinker_cookbook.rl import train

from benchmarks import ROOT
from benchmarks.measure import in_turns
from benchmarks.planned import planned_run
from benchmarks.rows import Row
from harness.arm_config import training_config
from harness.arm_dataset import ArmDataset, fewshot_prefix, renderer_for
from harness.local_service.process import EmbeddedService
from harness.plan import PlannedRun, read_plan
from harness.service import create_initial_state, register_model_tokenizer
from harness.store import write_json_atomic


def stock_arm(run: PlannedRun, arm_name: str, log_path: Path) -> None:
    """Train an arm through the stock loop as it is."""
    register_model_tokenizer(run.spec)
    arm = run.spec.arm(arm_name)
    dataset = ArmDataset(
        run.train_batches(arm), arm.group_size, renderer_for(run.spec), fewshot_prefix(run.spec)
    )
    uri = run.initial_state(arm.seed)["checkpoint_uri"]
    asyncio.run(train.main(training_config(run.spec, arm, dataset, log_path, uri)))


def run_module(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a module of this project to its end, with variables of its own.

    Raises:
        ChildProcessError: when it ends with anything but 0.
    """
    variables = {**os.environ, **environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env=variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ChildProcessError(f"{command[0]} ended with {done.returncode}: {done.stderr[-800:]}")


def arm_time(service: EmbeddedService, folder: Path, quick: bool) -> Row:
    """Measure the grpo arm: the only mode that the stock loop trains too."""
    steps = 3 if quick else 20
    run = planned_run(folder / "arm-time", steps)
    with tinker.ServiceClient(base_url=service.base_url, api_key=service.api_key) as client:
        state = create_initial_state(
            client, run.spec, seed=0, name="arm-time", folder=run.initial_adapter(0)
        )
    write_json_atomic(run.initial_path(0), state.to_json())
    name = next(arm.name for arm in run.spec.arms if arm.advantage_mode == "grpo")
    numbers = count()

    def ours() -> None:
        copy = Path(shutil.copytree(run.folder, folder / f"ours-{next(numbers)}"))
        run_module(["harness.arm", str(copy), name], service.environment())

    def bare() -> None:
        log = folder / f"stock-{next(numbers)}"
        command = ["benchmarks.arm_time", str(run.folder), name, str(log)]
        run_module(command, service.environment())

    pairs = in_turns(ours, bare, 2 if quick else 5)
    facts: dict[str, Any] = pairs.facts() | {"steps": steps, "arm": name}
    return Row(
        f"an arm's wall time, {steps} steps",
        "the unpatched stock loop, same service and configuration (wall time)",
        facts["wall_s"]["ratio"],
        "x",
        most=1.03,
        why="proving the start, exporting its adapter and reading the plan take a fixed time before"
        " the first step; the share falls with more steps",
        facts=facts,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    stock_arm(read_plan(Path(sys.argv[1]), None), sys.argv[2], Path(sys.argv[3]))
