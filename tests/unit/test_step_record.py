"""What is kept of a step: every number worked out by hand from a small batch."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest
import tinker
import torch
from small_run import arm_dataset, small_arm

import harness.similarity
import harness.step_record
from harness.advantage_seam import AdvantageCall, AdvantageSeam
from harness.arm_dataset import prompt_ids_sha256
from harness.errors import ArmError
from harness.gates.synthetic_rollouts import synthetic_groups
from harness.spec_model import Arm
from harness.step_record import (
    advantage_moments,
    rollout_rows,
    sampler_trainer_gap,
    similarity_activation,
    step_row,
    token_sha256,
)

TRAINED = {"loss_sum": -3.0, "datums": 4}


def call_of(arm: Arm, rewards: list[list[float]]) -> AdvantageCall:
    dataset = arm_dataset(arm)
    dataset.get_batch(0)
    seam = AdvantageSeam(arm, dataset)
    seam(synthetic_groups(dataset, rewards, np.random.default_rng(1)))
    return seam.take_single_call(0)


@pytest.fixture
def grpo() -> tuple[AdvantageCall, Arm]:
    arm = small_arm("grpo")
    return call_of(arm, [[1.0, 0.0], [0.9, -0.1]]), arm


def test_rollout_rows_name_problem_reward_and_advantage(grpo: tuple[AdvantageCall, Arm]) -> None:
    rows = rollout_rows(*grpo)
    assert [(row["item_id"], row["rollout"]) for row in rows] == [
        ("small-train-00000", 0),
        ("small-train-00000", 1),
        ("small-train-00001", 0),
        ("small-train-00001", 1),
    ]
    assert [row["reward"] for row in rows] == [1.0, 0.0, 0.9, -0.1]
    assert [row["advantage"] for row in rows] == pytest.approx([0.5, -0.5, 0.5, -0.5], abs=1e-15)
    assert {(row["arm"], row["step"]) for row in rows} == {("grpo_small", 0)}


def test_rollout_rows_hash_the_tokens_that_were_sampled(grpo: tuple[AdvantageCall, Arm]) -> None:
    call, arm = grpo
    tokens = call.groups_P[1].trajectories_G[0].transitions[0].ac.tokens
    row = rollout_rows(call, arm)[2]
    packed = b"".join(struct.pack("<q", token) for token in tokens)
    assert row["completion_sha256"] == hashlib.sha256(packed).hexdigest()
    assert row["completion_tokens"] == len(tokens)


def test_tokens_that_differ_in_order_or_split_differ_in_digest() -> None:
    digests = {token_sha256(tokens) for tokens in ([1, 2], [2, 1], [12], [1, 2, 0])}
    assert len(digests) == 4


@pytest.mark.parametrize("missing", ["correct", "format"])
def test_a_rollout_that_was_not_graded_fails_the_arm(
    grpo: tuple[AdvantageCall, Arm], missing: str
) -> None:
    call, arm = grpo
    del call.groups_P[1].trajectories_G[1].transitions[0].metrics[missing]
    with pytest.raises(ArmError, match=r"expected: metrics correct and format.*small-train-00001"):
        rollout_rows(call, arm)


def test_moments_are_those_of_the_definition() -> None:
    """Of 1, 2, 3, -2: mean 1, squared deviations 0, 1, 4, 9, so the deviation is sqrt(3.5)."""
    assert advantage_moments(np.array([1.0, 2.0, 3.0, -2.0])) == pytest.approx(
        {"sum": 4.0, "mean": 1.0, "std": 3.5**0.5, "min": -2.0, "max": 3.0, "mean_abs": 2.0}
    )


def test_a_step_row_keeps_reward_accuracy_format_and_truncation_apart(
    grpo: tuple[AdvantageCall, Arm],
) -> None:
    call, arm = grpo
    rollouts = rollout_rows(call, arm)
    rollouts[3] |= {"format": 0.0, "stop_reason": "length", "completion_tokens": 40}
    for row in rollouts[:3]:
        row["completion_tokens"] = 20
    row = step_row(call, arm, rollouts, TRAINED)
    means = ("reward_mean", "accuracy", "format", "truncation", "completion_tokens_mean")
    assert [row[name] for name in means] == pytest.approx([0.45, 0.5, 0.75, 0.25, 25.0])
    assert (row["rollouts"], row["groups"], row["group_size"]) == (4, 2, 2)
    assert row["prompt_ids_sha256"] == prompt_ids_sha256(call.problems_P)
    assert row["advantage"]["sum"] == pytest.approx(0.0, abs=1e-12)
    assert {name: row[name] for name in TRAINED} == TRAINED


def test_gs1_activation_is_that_of_the_weights() -> None:
    """Rows of softmax(cosine / tau) written out; contributors 1 / sum of squared weights."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    arm = small_arm("gs1", groups=4, group_size=1)
    rewards = [1.0, 0.0, 0.9, -0.1]
    call = call_of(arm, [[reward] for reward in rewards])
    vectors = TfidfVectorizer().fit_transform([p.question for p in call.problems_P]).toarray()
    contributors, gaps = [], []
    for i in range(4):
        others = [j for j in range(4) if j != i]
        raw = [np.exp(float(vectors[i] @ vectors[j]) / 0.2) for j in others]
        weights = [value / sum(raw) for value in raw]
        contributors.append(1 / sum(weight**2 for weight in weights))
        baseline = sum(w * rewards[j] for w, j in zip(weights, others, strict=True))
        gaps.append(abs(baseline - sum(rewards[j] for j in others) / 3))
    assert similarity_activation(call, arm) == pytest.approx(
        {
            "effective_contributors_median": float(np.median(contributors)),
            "mean_abs_baseline_minus_uniform_loo": sum(gaps) / 4,
        }
    )


@pytest.mark.parametrize("similarity", [None, "tfidf_prompt_cosine"])
def test_an_arm_without_a_similarity_baseline_has_no_activation(similarity: str | None) -> None:
    """A grpo arm may name a similarity in its spec; it has no effect, so none is reported."""
    arm = small_arm("grpo").model_copy(update={"similarity": similarity, "tau": 0.2})
    assert similarity_activation(call_of(arm, [[1.0, 0.0], [0.9, -0.1]]), arm) is None


def datum(mask: list[float], sampled: list[float]) -> tinker.Datum:
    tensors = {"mask": mask, "logprobs": sampled}
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints([5] * len(mask)),
        loss_fn_inputs={
            name: tinker.TensorData.from_torch(torch.tensor(values))
            for name, values in tensors.items()
        },
    )


DATA = [datum([0.0, 1.0, 1.0], [0.0, -1.0, -2.0]), datum([0.0, 1.0], [0.0, -0.5])]


def test_the_gap_is_over_action_tokens_only() -> None:
    """Differences -1 + 1.5, -2 + 1.75 and -0.5 + 0.5; the prompt's 100 does not count."""
    trained = [torch.tensor([100.0, -1.5, -1.75]), torch.tensor([-100.0, -0.5])]
    found = sampler_trainer_gap(DATA, trained)
    assert found == pytest.approx({"mean": 0.25 / 3, "max_abs": 0.5, "tokens": 3})


@pytest.mark.parametrize(
    "trained",
    [
        [torch.zeros(3)],
        [torch.zeros(3), torch.zeros(3)],
        [torch.zeros(2), torch.zeros(3)],
        [torch.zeros(3), torch.zeros(2), torch.zeros(2)],
    ],
    ids=["datum dropped", "token added", "order", "datum added"],
)
def test_values_for_other_tokens_fail_the_arm(trained: list[torch.Tensor]) -> None:
    with pytest.raises(ArmError, match="expected: 2 datums, 5 tokens"):
        sampler_trainer_gap(DATA, trained)


def test_a_log_probability_that_is_no_number_fails_the_arm() -> None:
    trained = [torch.tensor([0.0, float("nan"), 0.0]), torch.tensor([0.0, -float("inf")])]
    with pytest.raises(ArmError, match="2 of 3 differences"):
        sampler_trainer_gap(DATA, trained)


def test_activation_in_blocks_is_that_of_the_whole_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arm = small_arm("gs1", groups=4, group_size=1)
    call = call_of(arm, [[1.0], [0.0], [0.9], [-0.1]])
    wanted = similarity_activation(call, arm)
    monkeypatch.setattr(harness.step_record, "MOST_PROMPTS_AT_ONCE", 3)
    monkeypatch.setattr(harness.similarity, "BLOCK_ROWS", 3)
    assert similarity_activation(call, arm) == pytest.approx(wanted, rel=1e-12, abs=1e-12)
