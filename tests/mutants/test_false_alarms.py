"""Clean randomised runs of the offline gates' measuring functions: none may raise an alarm.

Each seed draws other rewards, prompts, rollouts, policies and another generated task. The gates'
own tolerances and ranges judge; a planted defect must not be killed by a gate that always fails.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages

from harness import reference
from harness.advantage_seam import AdvantageSeam
from harness.arm_dataset import ArmDataset, fewshot_prefix, renderer_for
from harness.gates.mode_identities import OBEYS
from harness.gates.parity_facts import parity_facts
from harness.gates.parity_measure import measure_parity
from harness.gates.prompt_activation import measure_prompts
from harness.gates.synthetic_rollouts import synthetic_groups
from harness.local_service.task import generate_rows
from harness.problems import Problem, ProblemSet, step_batches, training_order
from harness.spec import load_spec
from harness.spec_model import Arm
from harness.spec_preflight import ActivationCheck
from tests.mutants import one_step
from tests.mutants.client_guards import REWARDS, TOLERANCE, advantage_violations

WIRE_TOLERANCE = 1e-6
"""Of the gate stock_advantage_parity: advantages are float32 on the wire."""
ROWS, STEPS = 640, 10
Alarms = list[str]


def identities(seed: int, folder: Path) -> Alarms:
    del folder
    worst = advantage_violations(seed, batches=3)
    expected = sum(map(len, OBEYS.values())) + 4
    if len(worst) != expected:
        raise ValueError(f"{len(worst)} identities measured, {expected} expected")
    return [f"{name} = {value:.3g}" for name, value in worst.items() if not value <= TOLERANCE]


def stock_parity(seed: int, folder: Path) -> Alarms:
    """Compare the new path with the treatment off against stock advantages, on the wire."""
    del folder
    arm, spec = one_step.planned_arm("grpo"), one_step.local_spec()
    batch = one_step.planned_batch(arm)
    dataset = ArmDataset([batch], arm.group_size, renderer_for(spec), fewshot_prefix(spec))
    dataset.get_batch(0)
    random = np.random.default_rng(seed)
    rewards = random.choice(REWARDS, size=(arm.groups_per_batch, arm.group_size)).tolist()
    groups = synthetic_groups(dataset, rewards, random)
    stock, _ = assemble_training_data(groups, compute_advantages(groups))
    ours, _ = assemble_training_data(groups, AdvantageSeam(arm, dataset)(groups))
    pairs = list(zip(stock, ours, strict=True))
    if len(pairs) != 16:
        raise ValueError(f"{len(pairs)} datums compared, 16 expected")
    alarms = [
        f"{key} differs"
        for a, b in pairs
        for key in ("target_tokens", "logprobs", "mask")
        if not torch.equal(a.loss_fn_inputs[key].to_torch(), b.loss_fn_inputs[key].to_torch())
    ]
    gaps = [
        a.loss_fn_inputs["advantages"].to_torch() - b.loss_fn_inputs["advantages"].to_torch()
        for a, b in pairs
    ]
    worst = max(float(gap.abs().max()) for gap in gaps)
    return alarms + ([] if worst <= WIRE_TOLERANCE else [f"advantages differ by {worst:.3g}"])


def loss_gradient(seed: int, folder: Path) -> Alarms:
    """Run the correctness preflight's measurement on a policy and rollouts of another seed."""
    loaded = load_spec(one_step.ROOT / "specs" / "local.json")
    arms = tuple(one_step.planned_arm(arm.advantage_mode) for arm in loaded.spec.arms)
    small = replace(loaded, spec=loaded.spec.model_copy(update={"arms": arms}))
    facts = parity_facts(small, measure_parity(small.spec, folder, seed), one_step.ROOT).failures()
    # Counts of what a layout exercised are judged on the gate's own fixed seed and full batches.
    endings = ("max_abs_error", "cosine_similarity")
    return [f"{f.name} = {f.value}" for f in facts if f.name.split()[-1] in endings]


def prompts(seed: int, folder: Path) -> Alarms:
    """Measure the prompts of ten steps of a task generated from another seed."""
    del folder
    rows = generate_rows("train", seed)[:ROWS]
    problems = tuple(
        Problem(f"g{n}", row["question"], row["answer"], "0") for n, row in enumerate(rows)
    )
    spec = one_step.local_spec()
    arms = tuple(arm.model_copy(update={"steps": STEPS}) for arm in spec.arms)
    revised = spec.model_copy(update={"arms": arms})
    train = ProblemSet(problems, f"seed {seed}", "0" * 64)
    found = measure_prompts(revised, train)
    if [len(result.measured.medians_B) for result in found] != [STEPS]:
        raise ValueError("not every batch of the one gs1 arm was measured")
    order = training_order(train, spec.execution.data_seed)
    return [
        f"step {step}: the gate measures {median:.2f}, the reference {plain:.2f}"
        for result in found
        for step, (median, batch_P) in enumerate(
            zip(result.measured.medians_B, step_batches(order, result.arm), strict=True)
        )
        if not inside(median, result.check)
        and inside(plain := plain_median(batch_P, result.arm), result.check)
    ]


def inside(median: float, check: ActivationCheck) -> bool:
    return (check.min or 0.0) <= median <= (check.max or np.inf)


def plain_median(batch_P: Sequence[Problem], arm: Arm) -> float:
    """Return a batch's median of effective contributors by the plain-Python reference.

    A batch of other prompts may truly lie outside the range (about one in 2000 does at tau 0.2); a
    refusal is a false alarm only where this says that the batch is inside.
    """
    if arm.tau is None:
        raise ValueError("a gs1 arm has a tau")
    cosines = reference.cosines([problem.question for problem in batch_P])
    weights = reference.gs1_weights(cosines, arm.tau)
    return statistics.median(1.0 / math.fsum(w * w for w in row) for row in weights)


MEASURES: dict[str, Callable[[int, Path], Alarms]] = {
    "advantage_properties": identities,
    "stock_advantage_parity": stock_parity,
    "loss_gradient_parity": loss_gradient,
    "dry_activation": prompts,
}


QUICK = {"advantage_properties": 10, "stock_advantage_parity": 10, "dry_activation": 10}
"""Clean runs of a quick session; a run of any other gate takes seconds."""


@pytest.mark.parametrize("gate", list(MEASURES))
@pytest.mark.parametrize(
    "whole", [pytest.param(False, id="few"), pytest.param(True, id="200", marks=pytest.mark.slow)]
)
def test_clean_runs_raise_no_alarm(
    gate: str, whole: bool, tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    one_step.local_spec()
    runs = 200 if whole else QUICK.get(gate, 2)
    alarmed = {seed: found for seed in range(runs) if (found := MEASURES[gate](seed, tmp_path))}
    record_property("false_alarms", {"gate": gate, "runs": runs, "alarms": len(alarmed)})
    assert not alarmed, f"{gate}: {len(alarmed)} false alarms in {runs} clean runs: {alarmed}"
