"""The gates' own measurements: near zero on the real thing, far from it on a planted defect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from small_run import LOCAL_SPEC, arm_dataset, problems, small_arm

import harness.advantages as advantages_module
from harness.advantages import ArmParams, RolloutBatch
from harness.errors import AdvantageError
from harness.gates import advantage_identities
from harness.gates.advantage_identities import grpo_violations, gs1_violations, worst_of
from harness.gates.initial_identity import fixed_batch
from harness.gates.mode_identities import OBEYS
from harness.gates.prompt_activation import contributors_check, measure_prompts, table_text
from harness.gates.synthetic_rollouts import MAX_COMPLETION_TOKENS, synthetic_groups
from harness.problems import ProblemSet
from harness.service import register_model_tokenizer
from harness.spec_model import ExperimentSpec

REWARDS = [[1.0, 0.0, 0.9], [0.0, -0.1, 1.0]]
PROMPTS = ["Tom has red apples", "Ann has red pears", "a blue train left", "Tom left Ann"]
FLAT = [1.0, 0.0, 0.9, -0.1]
PARAMS = ArmParams(group_size=1, tau=0.2, similarity="tfidf_prompt_cosine")
TOLERANCE = 1e-12
Advantages = list[np.ndarray]
Defect = Callable[[Advantages, RolloutBatch], Advantages]


def test_the_real_advantages_violate_nothing() -> None:
    found = {**grpo_violations(REWARDS), **gs1_violations(PROMPTS, FLAT, PARAMS)}
    names = {f"{mode} {name}" for mode in ("grpo", "gs1") for name in OBEYS[mode]}
    assert len(found) == len(names) + 4, "every identity, and four of the weights"
    assert names <= set(found), names - set(found)
    assert max(found.values()) <= TOLERANCE, found


def scaled(advantages: Advantages, batch: RolloutBatch) -> Advantages:
    del batch
    return [1.001 * values for values in advantages]


def negated(advantages: Advantages, batch: RolloutBatch) -> Advantages:
    del batch
    return [-values for values in advantages]


def rounded(advantages: Advantages, batch: RolloutBatch) -> Advantages:
    del batch
    return [values.astype(np.float32).astype(np.float64) for values in advantages]


def rewards_themselves(advantages: Advantages, batch: RolloutBatch) -> Advantages:
    del advantages
    return list(batch.rewards_P)


def batch_mean(advantages: Advantages, batch: RolloutBatch) -> Advantages:
    del advantages
    mean = float(np.concatenate(batch.rewards_P).mean())
    return [rewards - mean for rewards in batch.rewards_P]


DEFECTS = [scaled, negated, rounded, rewards_themselves, batch_mean]


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.parametrize("mode", ["grpo", "gs1"])
def test_a_planted_defect_is_seen(
    monkeypatch: pytest.MonkeyPatch, mode: str, defect: Defect
) -> None:
    stock = advantages_module.compute

    def broken(name: str, batch: RolloutBatch, params: ArmParams) -> Advantages:
        return defect(stock(name, batch, params), batch)

    monkeypatch.setattr(advantages_module, "compute", broken)
    grpo = mode == "grpo"
    found = grpo_violations(REWARDS) if grpo else gs1_violations(PROMPTS, FLAT, PARAMS)
    assert max(found.values()) > 1e3 * TOLERANCE, f"{defect.__name__} looks right: {found}"


def test_kept_self_weights_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_self(similarity_PP: np.ndarray, tau: float) -> np.ndarray:
        raw_PP = np.exp(similarity_PP / tau)
        return raw_PP / raw_PP.sum(axis=1, keepdims=True)

    monkeypatch.setattr(advantage_identities, "gs1_weights", with_self)
    assert gs1_violations(PROMPTS, FLAT, PARAMS)["gs1 largest self-weight"] > 0.1


def test_the_worst_of_many_batches_is_kept() -> None:
    assert worst_of([{"a": 1.0, "b": 0.0}, {"a": 3.0}, {"b": 2.0}]) == {"a": 3.0, "b": 2.0}


def test_synthetic_rollouts_carry_the_prompts_and_rewards_they_are_asked_for() -> None:
    dataset = arm_dataset(small_arm(groups=2, group_size=3))
    dataset.get_batch(1)
    groups = synthetic_groups(dataset, REWARDS, np.random.default_rng(3))
    assert [group.get_total_rewards() for group in groups] == REWARDS
    lengths = set()
    for group, problem in zip(groups, dataset.batches[1], strict=True):
        for trajectory in group.trajectories_G:
            (transition,) = trajectory.transitions
            assert transition.ob.to_ints() == dataset.prompt_tokens_T(problem)
            assert len(transition.ac.logprobs) == len(transition.ac.tokens)
            lengths.add(len(transition.ac.tokens))
    assert len(lengths) > 1, "equal lengths would hide a misplaced token"
    assert max(lengths) <= MAX_COMPLETION_TOKENS


def small_spec(**changes: Any) -> ExperimentSpec:
    arms = (small_arm("grpo"), small_arm("gs1", groups=4, group_size=1))
    return LOCAL_SPEC.model_copy(update={"arms": arms, **changes})


def train_set(count: int = 12) -> ProblemSet:
    return ProblemSet(tuple(problems(count)), "made up", "0" * 64)


def contributors(texts: Sequence[str], tau: float) -> list[float]:
    """Contract §5 with plain loops: 1 / sum of squared softmax weights of each prompt."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer().fit_transform(texts).toarray()
    found: list[float] = []
    for i in range(len(texts)):
        raw = [np.exp(float(vectors[i] @ vectors[j]) / tau) for j in range(len(texts)) if j != i]
        found.append(sum(raw) ** 2 / sum(value**2 for value in raw))
    return found


def test_prompts_are_measured_on_every_batch_the_run_would_train_on() -> None:
    spec = small_spec()
    train = train_set()
    (found,) = measure_prompts(spec, train)
    order = np.random.default_rng(spec.execution.data_seed).permutation(12)
    texts = [train.problems[row].question for row in order]
    expected = [float(np.median(contributors(texts[at : at + 4], 0.2))) for at in (0, 4)]
    assert found.arm.name == "gs1_small", "the other arm has no similarity"
    assert list(found.measured.medians_B) == pytest.approx(expected)


def test_a_gs1_arm_without_a_range_cannot_be_checked() -> None:
    gate = LOCAL_SPEC.activation_gate.model_copy(update={"checks": ()})
    assert contributors_check(small_spec(activation_gate=gate)) is None
    with pytest.raises(AdvantageError, match="gs1_small"):
        measure_prompts(small_spec(activation_gate=gate), train_set())


def test_the_table_holds_the_arms_own_tau_beside_the_usual_ones() -> None:
    spec = small_spec()
    (found,) = measure_prompts(spec, train_set())
    arm = found.arm.model_copy(update={"tau": 0.123})
    lines = table_text(spec, train_set(), arm, found.check).splitlines()
    assert any(" 0.123 " in line for line in lines), "\n".join(lines)
    assert any(" 0.05 " in line for line in lines)


def test_the_fixed_batch_scores_the_gold_answer_only() -> None:
    register_model_tokenizer(LOCAL_SPEC)
    dataset = arm_dataset(small_arm())
    for problem, datum in zip(problems(2), fixed_batch(LOCAL_SPEC, problems(2)), strict=True):
        prompt = dataset.prompt_tokens_T(problem)
        answer = dataset.renderer.tokenizer.encode(problem.gold, add_special_tokens=False)
        whole = [*prompt, *answer]
        assert datum.model_input.to_ints() == whole[:-1]
        assert datum.loss_fn_inputs["target_tokens"].data == whole[1:]
        weights = datum.loss_fn_inputs["weights"].data
        assert weights == [0.0] * (len(prompt) - 1) + [1.0] * len(answer)
