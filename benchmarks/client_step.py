"""Our own time in a training step: the stock loop with the record against the stock loop alone.

The service is a stand-in in this process that answers at once, so all that is left is the client.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from small_run import arm_dataset, problems, small_arm
from stub_loop import StubTraining, run_loop

from benchmarks.measure import in_turns
from benchmarks.rows import Row
from harness.advantage_seam import AdvantageSeam
from harness.spec_model import Arm
from harness.training_record import TrainingRecord, recorded_training

STEPS, ROLLOUTS = 5, 64


def looped(arm: Arm, *, recorded: bool) -> None:
    """Run the loop over all steps, in a folder that is thrown away."""
    dataset = arm_dataset(arm, problems(ROLLOUTS * STEPS))
    training = StubTraining(dataset)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        if not recorded:
            run_loop(arm, dataset, training, path)
            return
        record = TrainingRecord(arm, AdvantageSeam(arm, dataset), path, attempt=1)
        with recorded_training(record):
            run_loop(arm, dataset, training, path)


def client_step(quick: bool) -> list[Row]:
    """Measure both arms' shapes at 64 rollouts a step."""
    # Stock code refuses nothing at group size 1 but drops all its groups: 8 by 8 trains in both.
    arm = small_arm("grpo", groups=8, group_size=8, steps=STEPS)
    pairs = in_turns(
        lambda: looped(arm, recorded=True),
        lambda: looped(arm, recorded=False),
        3 if quick else 7,
    )
    facts = pairs.facts() | {"steps": STEPS, "rollouts": ROLLOUTS}
    cpu = facts["cpu_s"]
    own_ms = (cpu["ours"] - cpu["bare"]) / STEPS * 1e3
    return [
        Row(
            f"our own time in a step, {ROLLOUTS} rollouts",
            "the stock loop alone, on a service that answers at once (CPU time)",
            own_ms,
            "ms",
            most=50.0,
            facts=facts,
        ),
        Row(
            f"the whole client's time in a step, {ROLLOUTS} rollouts",
            "–",
            cpu["ours"] / STEPS * 1e3,
            "ms",
        ),
    ]
