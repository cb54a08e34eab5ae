"""Offline gates on the advantages: identities, reference, and the stock path with treatment off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.rl import train
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages

from harness.advantage_domain import DOMAINS
from harness.advantage_seam import AdvantageSeam, arm_params
from harness.arm_dataset import ArmDataset, fewshot_prefix
from harness.gates.advantage_identities import violations_of, worst_of
from harness.gates.recorder import GateRecorder
from harness.gates.synthetic_rollouts import synthetic_groups
from harness.gates.treatment_off import treatment_off_arms
from harness.local_service.tokenizer import load_tokenizer
from harness.problems import Problem
from harness.session import HarnessSession
from harness.spec_model import Arm, ExperimentSpec
from harness.training_record import TrainingRecord, recorded_training

# Written out in full, because profiles inherit whatever CI sets (design §3.9).
GATE_PROFILE = settings(
    max_examples=400,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TOLERANCE = 1e-12
REWARDS = st.sampled_from([1.0, 0.9, 0.0, -0.1])
WORDS = st.sampled_from(
    ["red", "blue", "apples", "Tom", "Ann", "has", "more", "than", "the", "a", "7"]
)
PROMPTS = st.lists(WORDS, max_size=6).map(" ".join)


def batches(mode: str) -> st.SearchStrategy[tuple[list[str], list[list[float]]]]:
    """Return prompts and rewards of a mode: any shape that its domain allows, up to 8 by 9."""
    domain = DOMAINS[mode]
    groups = st.integers(max(2, domain.least_groups), 12 if domain.most_group_size == 1 else 8)
    sizes = st.integers(domain.least_group_size, domain.most_group_size or 9)
    return st.tuples(groups, sizes).flatmap(
        lambda shape: st.tuples(
            st.lists(PROMPTS, min_size=shape[0], max_size=shape[0]),
            st.lists(
                st.lists(REWARDS, min_size=shape[1], max_size=shape[1]),
                min_size=shape[0],
                max_size=shape[0],
            ),
        )
    )


@pytest.mark.preflight
@pytest.mark.gate("advantage_properties")
def test_advantage_properties(gate: GateRecorder, harness_session: HarnessSession) -> None:
    """Every mode that an arm of the spec uses, and the stock mode, obeys all it declares."""
    spec = harness_session.loaded.spec
    found: list[dict[str, float]] = []
    mixed: list[bool] = []
    for arm in (*treatment_off_arms(spec)[:1], *spec.arms):
        mixed += measure_arm(arm, found)
    gate.check(
        "batches with unequal rewards",
        sum(mixed),
        effect="identities on equal rewards alone would hold for any formula",
        at_least=100,
    )
    for name, worst in worst_of(found).items():
        gate.check(
            name,
            worst,
            effect="the arm would train on an advantage other than the preregistered one",
            at_most=TOLERANCE,
        )


def measure_arm(arm: Arm, found: list[dict[str, float]]) -> list[bool]:
    """Append the arm's violations on many batches; return which had unequal rewards."""
    mixed: list[bool] = []

    @GATE_PROFILE
    @given(batches(arm.advantage_mode))
    def measure(batch: tuple[list[str], list[list[float]]]) -> None:
        prompts, rewards = batch
        found.append(violations_of(arm.advantage_mode, prompts, rewards, arm_params(arm)))
        mixed.append(len({reward for group in rewards for reward in group}) > 1)

    measure()
    return mixed


@pytest.mark.preflight
@pytest.mark.gate("stock_advantage_parity")
def test_stock_advantage_parity(
    gate: GateRecorder, harness_session: HarnessSession, tmp_path: Path
) -> None:
    """With the treatment off (mode grpo) the new path sends what the stock path sends."""
    spec = harness_session.loaded.spec
    arm = treatment_off_arms(spec)[0]
    random = np.random.default_rng(20260801)
    dataset = _dataset(spec, arm.groups_per_batch, arm.group_size)
    seam = AdvantageSeam(arm, dataset)
    worst = 0.0
    sent = 0
    for step in range(len(dataset)):
        dataset.get_batch(step)
        rewards = random.choice([1.0, 0.9, 0.0, -0.1], size=(arm.groups_per_batch, arm.group_size))
        groups = synthetic_groups(dataset, rewards.tolist(), random)
        stock, _ = assemble_training_data(groups, compute_advantages(groups))
        ours, _ = assemble_training_data(groups, seam(groups))
        seam.take_single_call(step)
        for a, b in zip(stock, ours, strict=True):
            sent += 1
            for key in ("target_tokens", "logprobs", "mask"):
                left, right = (d.loss_fn_inputs[key].to_torch() for d in (a, b))
                if not torch.equal(left, right):
                    worst = float("inf")
            difference = (
                a.loss_fn_inputs["advantages"].to_torch()
                - b.loss_fn_inputs["advantages"].to_torch()
            )
            worst = max(worst, float(difference.abs().max()))
    gate.check("datums compared", sent, effect="nothing would have been compared", at_least=64)
    gate.check(
        "largest |stock advantage - ours| on the wire",
        worst,
        effect="the baseline arm would not be stock GRPO",
        at_most=1e-6,
    )
    _check_seam_is_reached(gate, seam, tmp_path)


def _check_seam_is_reached(gate: GateRecorder, seam: AdvantageSeam, folder: Path) -> None:
    """The name the stock loop calls is ours during a run, and stock again afterwards."""
    record = TrainingRecord(seam.arm, seam, folder, attempt=1)
    with recorded_training(record):
        during = vars(train)["compute_advantages"] is seam
    after = vars(train)["compute_advantages"] is compute_advantages
    gate.check(
        "loop calls the seam during a run", during, effect="both arms would be stock", equals=True
    )
    gate.check(
        "loop is stock after a run", after, effect="later arms would be contaminated", equals=True
    )


def _dataset(spec: ExperimentSpec, groups: int, group_size: int) -> ArmDataset:
    problems = [
        Problem(f"p{index}", f"Tom has {index} apples. How many?", f"#### {index}", str(index))
        for index in range(groups * 4)
    ]
    batches = [problems[step * groups : (step + 1) * groups] for step in range(4)]
    # Any tokenizer will do for rollouts made here, and this one needs no hub.
    renderer = get_renderer(spec.execution.renderer, tokenizer=load_tokenizer())  # pyright: ignore[reportArgumentType] - the cookbook types only slow tokenizers
    return ArmDataset(batches, group_size, renderer, fewshot_prefix(spec))
