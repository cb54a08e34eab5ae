"""The small policy and the fixed rollouts on which parity is measured: are they what they say?"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tinker_cookbook.rl import train as stock_loop
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages

from harness.errors import AdvantageError, GateError
from harness.gates.parity import directional_gap, reference_result, stock_result
from harness.gates.parity_cases import LAYOUTS, ParityCase, parity_case, shifted
from harness.gates.parity_measure import measure_parity
from harness.gates.parity_policy import VOCABULARY, Policy, flat
from harness.gates.parity_wire import LocalTraining
from harness.gates.treatment_off import treatment_off_arms
from harness.spec import load_spec
from harness.spec_model import Arm

SPEC = load_spec(Path(__file__).parents[2] / "specs" / "local.json").spec
ARM = Arm(
    name="grpo", advantage_mode="grpo", group_size=3, groups_per_batch=4, seed=0, lr=1e-4, steps=1
)
POLICY = Policy.seeded(7)


def case(layout: str, seed: int = 3) -> ParityCase:
    return parity_case(ARM, layout, POLICY, "fresh", seed)


def test_every_parameter_is_float64() -> None:
    assert {tensor.dtype for tensor in POLICY.parameters.values()} == {torch.float64}


def test_probabilities_sum_to_one_over_the_vocabulary() -> None:
    rows = [([5, 9, 2], [9, 2, token]) for token in range(VOCABULARY)]
    last = torch.stack([logprobs_T[-1] for logprobs_T in POLICY.logprobs_D(rows)])
    total = float(last.detach().exp().sum())
    assert math.isclose(total, 1.0, rel_tol=1e-12), f"probabilities sum to {total}"


def test_a_log_probability_depends_on_earlier_tokens_only() -> None:
    tokens_T = [3, 1, 4, 1, 5, 9, 2, 6]
    whole_T = POLICY.logprobs_D([shifted(tokens_T)])[0]
    for length in range(2, len(tokens_T)):
        prefix_T = POLICY.logprobs_D([shifted(tokens_T[:length])])[0]
        gap = float((prefix_T - whole_T[: length - 1]).abs().max().detach())
        assert gap < 1e-14, f"prefix of {length} tokens: gap {gap}"
    changed_T = POLICY.logprobs_D([shifted([2, *tokens_T[1:]])])[0]
    assert float((changed_T - whole_T)[1:].abs().min().detach()) > 1e-6, (
        "earlier tokens must matter"
    )


def test_padding_beside_longer_sequences_changes_nothing() -> None:
    short, long = shifted([1, 2, 3]), shifted(list(range(20)))
    alone_T, together_T = POLICY.logprobs_D([short])[0], POLICY.logprobs_D([long, short])[1]
    assert float((alone_T - together_T).abs().max().detach()) < 1e-14


def test_the_gradient_is_the_slope_in_every_coordinate_tried() -> None:
    rows = [shifted([1, 2, 3, 4, 5])]
    gradient = flat(POLICY.gradient([POLICY.logprobs_D(rows)[0].sum()]))
    for index in torch.randperm(POLICY.size(), generator=torch.Generator().manual_seed(1))[:20]:
        axis = torch.zeros(POLICY.size(), dtype=torch.float64)
        axis[index] = 1.0
        ahead, behind = (
            float(POLICY.moved(axis, step).logprobs_D(rows)[0].detach().sum())
            for step in (1e-5, -1e-5)
        )
        slope, found = (ahead - behind) / 2e-5, float(gradient[index])
        assert abs(slope - found) < 1e-8, f"parameter {index}: gradient {found}, slope {slope}"


@pytest.mark.parametrize(("layout", "datums"), list(zip(LAYOUTS, (12, 12, 24, 12), strict=True)))
def test_layouts_give_the_datums_they_promise(layout: str, datums: int) -> None:
    groups_P = case(layout).groups_P()
    data_D, _ = assemble_training_data(groups_P, compute_advantages(groups_P))
    assert len(data_D) == datums
    assert len({datum.model_input.length for datum in data_D}) > 2, "lengths must differ"


def test_rollouts_carry_their_planned_reward_whatever_the_layout() -> None:
    for layout in LAYOUTS:
        made = case(layout)
        found = [tuple(group.get_total_rewards()) for group in made.groups_P()]
        assert tuple(found) == made.rewards_P, layout


def test_one_seed_gives_one_input() -> None:
    assert case("masked").to_json() == case("masked").to_json()
    assert case("masked", seed=4).to_json() != case("masked").to_json()


def test_the_reference_and_stock_code_agree_on_one_worked_rollout() -> None:
    """Two rollouts of one token each: loss -(A1 r1 + A2 r2) with ratios 1 and A = +-0.5."""
    arm = ARM.model_copy(update={"group_size": 2, "groups_per_batch": 1})
    made = parity_case(arm, "single", POLICY, "fresh", 5)
    rewards = made.rewards_P[0]
    sizes = [len(rollout[0].action_T) for rollout in made.turns_PG[0]]
    half = (rewards[0] - rewards[1]) / 2
    expected = -(half * sizes[0] - half * sizes[1])
    for result in (reference_result(made, POLICY), stock_result(made, POLICY)):
        assert math.isclose(result.loss, expected, abs_tol=1e-5), (result.loss, expected)


def test_a_wrong_gradient_shows_against_the_central_difference() -> None:
    found = stock_result(case("single"), POLICY)
    right = directional_gap(POLICY, found, seed=1)
    wrong = type(found)(found.loss, found.gradient * 1.01, found.datums)
    off = directional_gap(POLICY, wrong, seed=1)
    assert right < 1e-6, f"gap {right}"
    assert off > 1000 * right, f"gap {off} of a gradient 1 % too long, {right} of the right one"


def test_another_loss_than_the_planned_one_is_refused() -> None:
    client = LocalTraining(POLICY)
    with pytest.raises(GateError, match="ppo"):
        client.forward_backward_async([], "ppo").send(None)


def test_a_mode_without_a_reference_is_refused() -> None:
    made = case("single")
    unknown = ARM.model_copy(update={"advantage_mode": "new"})
    strange = type(made)(made.name, unknown, made.dataset, made.rewards_P, made.turns_PG)
    with pytest.raises(AdvantageError, match="no reference"):
        reference_result(strange, POLICY)


@pytest.mark.parametrize(
    ("batch_size", "shape"), [(64, (8, 8)), (6, (6, 1)), (33, (3, 11)), (13, (13, 1))]
)
def test_a_spec_without_the_treatment_off_is_given_an_arm_for_it(
    batch_size: int, shape: tuple[int, int]
) -> None:
    arms = tuple(arm for arm in SPEC.arms if arm.advantage_mode == "gs1")
    spec = SPEC.model_copy(update={"arms": arms, "batch_size": batch_size})
    (arm,) = treatment_off_arms(spec)
    assert (arm.advantage_mode, arm.tau) == ("grpo", None)
    assert (arm.group_size, arm.groups_per_batch) == shape
    assert treatment_off_arms(SPEC) == [SPEC.arms[0]], "a spec's own arm is taken"


def test_a_batch_of_one_has_no_treatment_off() -> None:
    arms = tuple(arm for arm in SPEC.arms if arm.advantage_mode == "gs1")
    with pytest.raises(GateError, match="turns the treatment off"):
        treatment_off_arms(SPEC.model_copy(update={"arms": arms, "batch_size": 1}))


def bound_now() -> tuple[object, ...]:
    names = ("compute_advantages", "print_group", "train_step")
    return (*(getattr(stock_loop, name) for name in names), torch.get_default_dtype())


def test_measuring_leaves_stock_code_and_torch_as_they_were(tmp_path: Path) -> None:
    before = bound_now()
    first, again = measure_parity(SPEC, tmp_path), measure_parity(SPEC, tmp_path)
    assert bound_now() == before
    assert torch.get_default_dtype() == torch.float32, torch.get_default_dtype()
    assert first == again, "one seed must give one measurement"
    assert measure_parity(SPEC, tmp_path, seed=1).fixed_input != first.fixed_input
