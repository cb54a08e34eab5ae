"""Planted defects on the way from rollouts to a gradient, and the comparison that must show each.

Every defect is one small patch. The offline gate's measuring function runs on it, and the rows
named with it must leave the spec's tolerances, or the path must refuse the batch. A defect that
stock code shares shows against the reference only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker
import torch
from tinker_cookbook.rl import data_processing, train
from tinker_cookbook.rl.types import TrajectoryGroup

from harness import advantage_seam, advantages
from harness.errors import ArmError, HarnessError
from harness.gates import parity, parity_wire
from harness.gates.parity_facts import parity_facts
from harness.gates.parity_measure import measure_parity
from harness.gates.parity_policy import Policy
from harness.local_service import losses
from harness.similarity import uniform_loo_weights
from harness.spec import LoadedSpec, load_spec

ROOT = Path(__file__).parents[2]
NEW = ("baseline_loss", "baseline_gradient", "reference_loss", "reference_gradient")
SHARED = (
    "stock_reference_loss",
    "stock_reference_gradient",
    "reference_loss",
    "reference_gradient",
)
TREATMENT = ("reference_loss", "reference_gradient")
GRADIENT = ("stock_reference_gradient", "reference_gradient")

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """A defect, the error rows that must leave their tolerances, and what it would have done."""

    patch: Patch
    rows: tuple[str, ...]
    effect: str


MUTANTS: dict[str, Mutant] = {}


def mutant(rows: tuple[str, ...], effect: str) -> Callable[[Patch], Patch]:
    def register(patch: Patch) -> Patch:
        MUTANTS[patch.__name__] = Mutant(patch, rows, effect)
        return patch

    return register


def small_spec() -> LoadedSpec:
    """The local spec with 16 rollouts a step, so that a measurement takes about a second."""
    loaded = load_spec(ROOT / "specs" / "local.json")
    sizes = {"grpo": {"group_size": 4, "groups_per_batch": 4}, "gs1": {"groups_per_batch": 16}}
    arms = tuple(arm.model_copy(update=sizes[arm.advantage_mode]) for arm in loaded.spec.arms)
    return replace(loaded, spec=loaded.spec.model_copy(update={"arms": arms}))


def failing_rows(folder: Path) -> set[str]:
    """Measure, and return the names of the error rows with a value outside its tolerance."""
    loaded = small_spec()
    facts = parity_facts(loaded, measure_parity(loaded.spec, folder), ROOT).failures()
    endings = ("max_abs_error", "cosine_similarity")
    return {fact.name.split()[0] for fact in facts if fact.name.split()[-1] in endings}


def test_the_clean_path_has_no_failing_row(tmp_path: Path) -> None:
    assert failing_rows(tmp_path) == set()


# --- the advantages of the new path -----------------------------------------------------------


def change_advantages(
    patch: pytest.MonkeyPatch, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    honest = advantage_seam.compute
    patch.setattr(
        advantage_seam,
        "compute",
        lambda *arguments: [change(values_G) for values_G in honest(*arguments)],
    )


@mutant(NEW, "the arm is pushed away from what was rewarded")
def advantage_sign_flipped(patch: pytest.MonkeyPatch) -> None:
    change_advantages(patch, lambda values_G: -values_G)


@mutant(("baseline_gradient", "reference_gradient"), "advantages keep three digits")
def advantages_in_float16(patch: pytest.MonkeyPatch) -> None:
    change_advantages(patch, lambda values_G: values_G.astype(np.float16).astype(np.float64))


@mutant(NEW, "easy and hard groups weigh alike: another objective than the plan's")
def advantages_divided_by_deviation(patch: pytest.MonkeyPatch) -> None:
    honest = advantage_seam.compute

    def normalised(*arguments: Any) -> list[np.ndarray]:
        found = honest(*arguments)
        spread = float(np.concatenate(found).std())
        return [values_G / spread for values_G in found]

    patch.setattr(advantage_seam, "compute", normalised)


@mutant(NEW, "what was worse than its baseline teaches nothing")
def negative_advantages_dropped(patch: pytest.MonkeyPatch) -> None:
    change_advantages(patch, lambda values_G: np.maximum(values_G, 0.0))


@mutant(NEW, "every update is twice as long as planned")
def advantages_doubled(patch: pytest.MonkeyPatch) -> None:
    change_advantages(patch, lambda values_G: 2.0 * values_G)


@mutant(NEW, "a rollout is credited with another's reward")
def advantages_of_another_rollout(patch: pytest.MonkeyPatch) -> None:
    honest = advantage_seam.compute

    def shifted(*arguments: Any) -> list[np.ndarray]:
        found = honest(*arguments)
        rolled = np.roll(np.concatenate(found), 1)
        return np.split(rolled, np.cumsum([len(values_G) for values_G in found])[:-1])

    patch.setattr(advantage_seam, "compute", shifted)


@mutant(("baseline_loss", "baseline_gradient"), "GRPO's baseline is the batch's, not the group's")
def mean_over_the_batch(patch: pytest.MonkeyPatch) -> None:
    def batch_mean(batch: Any, _params: Any) -> list[np.ndarray]:
        mean = float(np.concatenate(batch.rewards_P).mean())
        return [rewards_G - mean for rewards_G in batch.rewards_P]

    patch.setattr(advantages, "MODES", {**advantages.MODES, "grpo": batch_mean})


@mutant(("baseline_loss", "baseline_gradient"), "a group's own rollout is left out of its mean")
def grpo_leaves_itself_out(patch: pytest.MonkeyPatch) -> None:
    def leave_out(batch: Any, _params: Any) -> list[np.ndarray]:
        return [(r - r.mean()) * len(r) / (len(r) - 1) for r in batch.rewards_P]

    patch.setattr(advantages, "MODES", {**advantages.MODES, "grpo": leave_out})


# --- the treatment's weights ------------------------------------------------------------------


def change_weights(
    patch: pytest.MonkeyPatch, change: Callable[[np.ndarray, float], np.ndarray]
) -> None:
    patch.setattr(advantages, "gs1_weights", change)


@mutant(TREATMENT, "a reward is compared with itself: the gradient shrinks")
def self_weight_kept(patch: pytest.MonkeyPatch) -> None:
    def softmax(similarity_PP: np.ndarray, tau: float) -> np.ndarray:
        powers_PP = np.exp(similarity_PP / tau)
        return powers_PP / powers_PP.sum(axis=1, keepdims=True)

    change_weights(patch, softmax)


@mutant(TREATMENT, "the least similar prompts make the baseline")
def similarity_negated(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, tau: honest(-similarity_PP, tau))


@mutant(TREATMENT, "a sharp kernel becomes a flat one")
def tau_inverted(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, tau: honest(similarity_PP, 1.0 / tau))


@mutant(TREATMENT, "columns instead of rows sum to one")
def weights_transposed(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, tau: honest(similarity_PP, tau).T)


@mutant(TREATMENT, "the treatment is plain leave-one-out")
def weights_uniform(patch: pytest.MonkeyPatch) -> None:
    change_weights(patch, lambda similarity_PP, _tau: uniform_loo_weights(len(similarity_PP)))


@mutant(TREATMENT, "similarities belong to other prompts than the rewards")
def prompts_in_another_order(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, tau: honest(similarity_PP[::-1, ::-1], tau))


# --- the loss ---------------------------------------------------------------------------------


def change_loss(
    patch: pytest.MonkeyPatch,
    formula: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    """Replace the token losses; the formula is given logprobs, sampling logprobs, advantages."""

    def patched(logprobs_T: torch.Tensor, inputs: Any, _config: Any) -> torch.Tensor:
        return formula(logprobs_T, inputs["logprobs"], inputs["advantages"])

    honest = losses.LOSSES["importance_sampling"]
    patch.setitem(losses.LOSSES, "importance_sampling", replace(honest, formula=patched))


@mutant(SHARED, "the loss is minimised where it should be maximised")
def loss_sign_flipped(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, q, a: torch.exp(logp - q) * a)


@mutant(SHARED, "long answers weigh less than planned")
def loss_is_a_mean_per_sequence(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, q, a: -torch.exp(logp - q) * a / len(a))


@mutant(SHARED, "the learning rate is divided by the number of datums")
def loss_is_a_mean_over_datums(patch: pytest.MonkeyPatch) -> None:
    honest = parity_wire.wire_loss

    def mean(policy: Policy, data_D: Sequence[tinker.Datum]) -> torch.Tensor:
        return honest(policy, data_D) / len(data_D)

    patch.setattr(parity_wire, "wire_loss", mean)
    patch.setattr(parity, "wire_loss", mean)


@mutant(SHARED, "tokens that moved far stop teaching: PPO instead of importance sampling")
def ratio_clipped(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, q, a: -torch.exp(logp - q).clamp(0.8, 1.2) * a)


# Its gradient is the right one, ratio times A: only the reported loss gives it away.
@mutant(("stock_reference_loss", "reference_loss"), "the loss in the log is not the one optimised")
def ratio_detached(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, q, a: -torch.exp(logp - q).detach() * a * logp)


@mutant(SHARED, "rollouts of older weights are treated as fresh")
def sampling_logprobs_ignored(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, _q, a: -torch.exp(logp - logp.detach()) * a)


@mutant(SHARED, "the ratio is upside down")
def ratio_inverted(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, q, a: -torch.exp(q - logp) * a)


@mutant(SHARED, "likelihood of good answers is raised whatever the ratio")
def plain_policy_gradient(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, _q, a: -logp * a)


@mutant(SHARED, "an entropy bonus that nobody planned")
def entropy_bonus(patch: pytest.MonkeyPatch) -> None:
    change_loss(patch, lambda logp, q, a: -torch.exp(logp - q) * a + 1e-3 * logp)


# --- datums -----------------------------------------------------------------------------------


def change_inputs(
    patch: pytest.MonkeyPatch, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    """Change the loss inputs of every datum on its way to the wire."""
    honest = train._remove_mask

    def removed(datum: tinker.Datum) -> tinker.Datum:
        given = {name: data.to_torch() for name, data in datum.loss_fn_inputs.items()}
        changed = {name: tinker.TensorData.from_torch(data) for name, data in change(given).items()}
        return honest(tinker.Datum(model_input=datum.model_input, loss_fn_inputs=changed))

    patch.setattr(train, "_remove_mask", removed)


@mutant(SHARED, "turns that failed to parse are trained on")
def masked_turns_trained(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(data_processing, "PARSE_ERROR_MASKED_METRIC_KEY", "another key")


@mutant(SHARED, "the prompt is trained on")
def prompt_tokens_trained(patch: pytest.MonkeyPatch) -> None:
    def fill(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        values_T = inputs["advantages"]
        strongest = values_T[values_T.abs().argmax()]
        return inputs | {"advantages": torch.full_like(values_T, float(strongest))}

    change_inputs(patch, fill)


@mutant(SHARED, "every token's credit goes to its neighbour")
def targets_off_by_one(patch: pytest.MonkeyPatch) -> None:
    change_inputs(patch, lambda inputs: inputs | {"target_tokens": inputs["target_tokens"].roll(1)})


@mutant(SHARED, "advantages start one token late")
def advantages_off_by_one(patch: pytest.MonkeyPatch) -> None:
    change_inputs(patch, lambda inputs: inputs | {"advantages": inputs["advantages"].roll(1)})


@mutant(SHARED, "ratios compare neighbouring tokens")
def sampling_logprobs_off_by_one(patch: pytest.MonkeyPatch) -> None:
    change_inputs(patch, lambda inputs: inputs | {"logprobs": inputs["logprobs"].roll(1)})


@mutant(SHARED, "a long answer's credit is spread over its tokens")
def advantages_divided_by_length(patch: pytest.MonkeyPatch) -> None:
    change_inputs(
        patch,
        lambda inputs: inputs | {"advantages": inputs["advantages"] / inputs["mask"].sum().clip(1)},
    )


@mutant(SHARED, "one rollout of each step is never trained on")
def last_datum_dropped(patch: pytest.MonkeyPatch) -> None:
    honest = data_processing.assemble_training_data

    def shorter(*arguments: Any) -> Any:
        data_D, metadata_D = honest(*arguments)
        return (data_D[:-1], metadata_D[:-1]) if len(data_D) > 4 else (data_D, metadata_D)

    patch.setattr(train, "assemble_training_data", shorter)


@mutant(SHARED, "later turns of a rollout are never trained on")
def later_turns_lost(patch: pytest.MonkeyPatch) -> None:
    honest = data_processing.trajectory_to_data

    def first_turn(trajectory: Any, advantage: float) -> list[tinker.Datum]:
        return honest(replace(trajectory, transitions=trajectory.transitions[:1]), advantage)

    patch.setattr(data_processing, "trajectory_to_data", first_turn)


@mutant(SHARED, "rewards of earlier turns are forgotten")
def last_turns_reward_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        TrajectoryGroup,
        "get_total_rewards",
        lambda self: [one.transitions[-1].reward for one in self.trajectories_G],
    )


# --- the gradient -----------------------------------------------------------------------------


def change_gradient(
    patch: pytest.MonkeyPatch, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
) -> None:
    honest = parity_wire.flat
    patch.setattr(parity_wire, "flat", lambda gradient: honest(change(dict(gradient))))


@mutant(GRADIENT, "one weight matrix is never trained, and the loss looks right")
def one_tensor_not_trained(patch: pytest.MonkeyPatch) -> None:
    change_gradient(patch, lambda found: found | {"1.v": torch.zeros_like(found["1.v"])})


@mutant(GRADIENT, "the gradient has the right norm and the wrong direction")
def two_tensors_swapped(patch: pytest.MonkeyPatch) -> None:
    change_gradient(patch, lambda found: found | {"0.q": found["0.k"], "0.k": found["0.q"]})


@mutant(GRADIENT, "long gradients are cut to norm 1")
def gradient_clipped(patch: pytest.MonkeyPatch) -> None:
    def clip(found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        norm = float(torch.cat([part.reshape(-1) for part in found.values()]).norm())
        return {name: part / max(1.0, norm) for name, part in found.items()}

    change_gradient(patch, clip)


@mutant(GRADIENT, "gradients pass through bfloat16")
def gradient_in_bfloat16(patch: pytest.MonkeyPatch) -> None:
    change_gradient(
        patch, lambda found: {name: part.bfloat16().double() for name, part in found.items()}
    )


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_the_defect_leaves_the_tolerances(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    record_property: Callable[[str, Any], None],
) -> None:
    planted = MUTANTS[name]
    record_property(
        "mutant", {"name": name, "gate": "loss_gradient_parity", "effect": planted.effect}
    )
    with monkeypatch.context() as patch:
        planted.patch(patch)
        failing = failing_rows(tmp_path)
    survived = set(planted.rows) - failing
    assert not survived, (
        f"{name} ({planted.effect}): {sorted(survived)} stayed inside the spec's tolerances;"
        f" outside were {sorted(failing) or 'none'}"
    )


# --- defects that the path refuses ------------------------------------------------------------


@contextmanager
def bound_elsewhere(record: Any) -> Iterator[None]:
    """Bind the seam in the module that defines the stock function, where nobody looks for it."""
    honest = data_processing.compute_advantages
    data_processing.compute_advantages = record.seam
    try:
        yield
    finally:
        data_processing.compute_advantages = honest


def test_a_seam_in_the_wrong_module_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(parity, "recorded_training", bound_elsewhere)
    with pytest.raises(ArmError, match="exactly once"):
        failing_rows(tmp_path)


def test_groups_dropped_before_the_seam_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    honest = train.prepare_minibatch

    def fewer(builders_P: Any, groups_P: Any, *rest: Any) -> Any:
        return honest(builders_P[:-1], groups_P[:-1], *rest)

    monkeypatch.setattr(train, "prepare_minibatch", fewer)
    with pytest.raises(HarnessError, match="planned groups"):
        failing_rows(tmp_path)


def test_there_are_at_least_thirty_defects() -> None:
    assert len(MUTANTS) >= 30, f"{len(MUTANTS)} defects"
