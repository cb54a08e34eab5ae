"""The seam computes on the planned full batch only, and refuses whatever else it is given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_run import arm_dataset, problems, small_arm
from tinker_cookbook.rl.data_processing import compute_advantages, remove_constant_reward_groups
from tinker_cookbook.rl.types import TrajectoryGroup

from harness.advantage_seam import AdvantageSeam
from harness.errors import AdvantageError, ArmError, HarnessError
from harness.gates.synthetic_rollouts import synthetic_groups

RANDOM = np.random.default_rng
GRPO_REWARDS = [[1.0, 0.0], [0.9, 0.9]]
GS1_REWARDS = [[1.0], [0.0], [0.9], [-0.1]]


def seam_at_step_0(mode: str) -> tuple[AdvantageSeam, list[TrajectoryGroup]]:
    rewards = GRPO_REWARDS if mode == "grpo" else GS1_REWARDS
    arm = small_arm(mode, groups=len(rewards), group_size=len(rewards[0]))
    dataset = arm_dataset(arm)
    dataset.get_batch(0)
    return AdvantageSeam(arm, dataset), synthetic_groups(dataset, rewards, RANDOM(0))


def test_grpo_advantages_are_rewards_minus_the_group_mean() -> None:
    seam, groups = seam_at_step_0("grpo")
    found = [values.tolist() for values in seam(groups)]
    assert found == [[0.5, -0.5], [0.0, 0.0]]


def test_grpo_equals_the_stock_function() -> None:
    seam, groups = seam_at_step_0("grpo")
    for ours, stock in zip(seam(groups), compute_advantages(groups), strict=True):
        torch.testing.assert_close(ours, stock, rtol=0, atol=1e-7)


def test_gs1_advantages_are_rewards_minus_a_mean_over_the_other_prompts() -> None:
    """Softmax of cosines over tau, written out from contract §12 with plain loops."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    seam, groups = seam_at_step_0("gs1")
    questions = [problem.question for problem in seam.dataset.current_problems_P()]
    vectors = TfidfVectorizer().fit_transform(questions).toarray()
    rewards = [group[0] for group in GS1_REWARDS]
    found = [float(values[0]) for values in seam(groups)]
    for i, reward in enumerate(rewards):
        weights = [
            0.0 if j == i else np.exp(float(vectors[i] @ vectors[j]) / 0.2) for j in range(4)
        ]
        baseline = sum(w * r for w, r in zip(weights, rewards, strict=True)) / sum(weights)
        assert found[i] == pytest.approx(reward - baseline, abs=1e-6), f"rollout {i}"


def test_the_wire_gets_float32_and_the_record_keeps_float64() -> None:
    seam, groups = seam_at_step_0("gs1")
    sent = seam(groups)
    call = seam.take_single_call(0)
    assert {values.dtype for values in sent} == {torch.float32}
    assert {values.dtype for values in call.advantages_P} == {np.dtype("float64")}
    assert call.groups_P is groups
    assert [p.item_id for p in call.problems_P] == [f"small-train-{i:05d}" for i in range(4)]


def test_a_printed_group_gets_stock_values_and_is_not_recorded() -> None:
    seam, groups = seam_at_step_0("gs1")
    seam.displaying = True
    assert [values.tolist() for values in seam(groups[:1])] == [[0.0]]
    assert seam.calls == []


def broken(kind: str, groups: list[TrajectoryGroup]) -> list[TrajectoryGroup]:
    """Return the batch as a wrongly wired loop would hand it over."""
    first = groups[0]
    shorter = TrajectoryGroup(
        first.trajectories_G[:-1], first.final_rewards_G[:-1], first.metrics_G[:-1]
    )
    return {
        "minibatch": groups[:1],
        "reordered": groups[::-1],
        "repeated": [groups[0], groups[0]],
        "wrong group size": [shorter, *groups[1:]],
        "constant groups removed": remove_constant_reward_groups(groups),
        "one more group": [*groups, groups[0]],
        "nothing": [],
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "minibatch",
        "reordered",
        "repeated",
        "wrong group size",
        "constant groups removed",
        "one more group",
        "nothing",
    ],
)
def test_anything_but_the_planned_batch_fails_the_arm(kind: str) -> None:
    seam, groups = seam_at_step_0("grpo")
    with pytest.raises(ArmError, match=r"(expected: .*){1}\| found: .*arm grpo_small, step 0.*do:"):
        seam(broken(kind, groups))
    assert seam.calls == [], "a refused batch must not count as the step's call"


def test_constant_groups_removed_from_gs1_leave_one_and_fail_the_arm() -> None:
    """Every group of one rollout is constant, so the option keeps 1 of 64 (tinker-notes §1)."""
    seam, groups = seam_at_step_0("gs1")
    kept = remove_constant_reward_groups(groups)
    assert len(kept) == 1
    with pytest.raises(ArmError, match="found: 1 groups"):
        seam(kept)


def test_a_rollout_of_another_problem_inside_a_group_fails_the_arm() -> None:
    seam, groups = seam_at_step_0("grpo")
    mixed = [groups[0].trajectories_G[0], groups[1].trajectories_G[1]]
    swapped = TrajectoryGroup(mixed, [0.0, 0.0], [{}, {}])
    with pytest.raises(ArmError, match="the rendered prompt of small-train-00000"):
        seam([swapped, groups[1]])


def test_repeated_prompts_fail_gs1_which_promises_distinct_ones() -> None:
    arm = small_arm("gs1", groups=4, group_size=1, steps=1)
    rows = problems(4)
    rows[3] = replace(rows[3], question=f" {rows[0].question.upper()} ")
    dataset = arm_dataset(arm, rows)
    dataset.get_batch(0)
    with pytest.raises(AdvantageError, match="prompts 0 and 3"):
        AdvantageSeam(arm, dataset)(synthetic_groups(dataset, GS1_REWARDS, RANDOM(0)))


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_fails_the_arm(reward: float) -> None:
    seam, _ = seam_at_step_0("grpo")
    groups = synthetic_groups(seam.dataset, [[reward, 0.0], [0.0, 1.0]], RANDOM(0))
    with pytest.raises(HarnessError, match="group 0"):
        seam(groups)


def test_advantages_before_any_batch_are_refused() -> None:
    arm = small_arm()
    with pytest.raises(ArmError, match="before any batch"):
        AdvantageSeam(arm, arm_dataset(arm))([])


@pytest.mark.parametrize(("calls", "step"), [(0, 0), (2, 0), (1, 1)])
def test_a_step_has_exactly_one_call_of_its_own(calls: int, step: int) -> None:
    seam, groups = seam_at_step_0("grpo")
    for _ in range(calls):
        seam(groups)
    with pytest.raises(ArmError, match=f"one call for step {step}.*found: {calls} calls"):
        seam.take_single_call(step)


def test_a_taken_call_is_forgotten() -> None:
    seam, groups = seam_at_step_0("grpo")
    seam(groups)
    assert seam.take_single_call(0).step == 0
    with pytest.raises(ArmError, match="found: 0 calls"):
        seam.take_single_call(0)
