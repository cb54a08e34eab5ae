"""Defects between the rollouts and the update, each against what an arm or ``verify`` checks.

The patched pieces are those of ``one_step``. Shape suffixes: ``_P`` groups, ``_D`` datums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tinker_cookbook.recipes.math_rl.math_env import MathEnv
from tinker_cookbook.rl import data_processing, train
from tinker_cookbook.rl.types import TrajectoryGroup

from harness import advantage_seam, training_record
from harness.advantage_seam import RolloutBatch
from tests.mutants import one_step
from tests.mutants.client_registry import planted

ARM, VERIFY = "arm_run_time", "verify_training"
Groups = list[TrajectoryGroup]


def change_groups(patch: pytest.MonkeyPatch, change: Callable[[Groups], Groups]) -> None:
    """Change the collected rollouts before the loop prepares them."""
    honest = one_step.collected
    patch.setattr(one_step, "collected", lambda dataset, arm: change(honest(dataset, arm)))


# --- what the loop is given -------------------------------------------------------------------


@planted(ARM, "the treatment is never applied: both arms train on stock advantages")
def stock_function_patched_in_wrong_module(patch: pytest.MonkeyPatch) -> None:
    honest, stock = one_step.recorded_training, data_processing.compute_advantages

    @contextmanager
    def bound_elsewhere(record: Any) -> Iterator[None]:
        # Not through monkeypatch: it would put the seam back after the record has left the loop.
        with honest(record):
            setattr(train, "compute_advantages", stock)  # noqa: B010 - not exported by name
            data_processing.compute_advantages = record.seam
            try:
                yield
            finally:
                data_processing.compute_advantages = stock

    patch.setattr(one_step, "recorded_training", bound_elsewhere)


@planted(ARM, "a gs1 step trains on one rollout, because every group of one is constant")
def constant_groups_removed(patch: pytest.MonkeyPatch) -> None:
    change_groups(patch, data_processing.remove_constant_reward_groups)


@planted(ARM, "two smaller updates in place of the planned one")
def two_substeps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(one_step, "SUBSTEPS", 2)


@planted(ARM, "the baseline is over half of the batch")
def minibatched_baseline(patch: pytest.MonkeyPatch) -> None:
    honest = one_step.loop_body

    async def halves(groups_P: Groups, dataset: Any) -> None:
        middle = len(groups_P) // 2
        for part in (groups_P[:middle], groups_P[middle:]):
            await honest(part, dataset)

    patch.setattr(one_step, "loop_body", halves)


@planted(ARM, "rewards are paired with the prompts of other groups")
def groups_in_another_order(patch: pytest.MonkeyPatch) -> None:
    change_groups(patch, lambda groups_P: groups_P[::-1])


@planted(ARM, "one group counts twice and another not at all")
def group_repeated(patch: pytest.MonkeyPatch) -> None:
    change_groups(patch, lambda groups_P: [groups_P[0], *groups_P[:-1]])


@planted(ARM, "a group that failed is left out without a word")
def group_dropped(patch: pytest.MonkeyPatch) -> None:
    change_groups(patch, lambda groups_P: groups_P[:-1])


@planted(ARM, "more rollouts than the arm's share of the budget")
def group_added(patch: pytest.MonkeyPatch) -> None:
    change_groups(patch, lambda groups_P: [*groups_P, groups_P[0]])


@planted(ARM, "one rollout of a group counts twice in its mean")
def wrong_group_size(patch: pytest.MonkeyPatch) -> None:
    def longer(groups_P: Groups) -> Groups:
        first = groups_P[0]
        more = [*first.trajectories_G, first.trajectories_G[0]]
        grown = TrajectoryGroup(more, [0.0] * len(more), [{} for _ in more])
        return [grown, *groups_P[1:]]

    change_groups(patch, longer)


@planted(ARM, "the arms' shapes are swapped: gs1 trains on groups of four")
def arms_swapped_in_training(patch: pytest.MonkeyPatch) -> None:
    swapped = {"grpo": "gs1", "gs1": "grpo"}
    patch.setattr(
        one_step, "executed_arm", lambda arm: one_step.planned_arm(swapped[arm.advantage_mode])
    )


@planted(ARM, "a rollout is trained on that nobody graded")
def ungraded_rollout(patch: pytest.MonkeyPatch) -> None:
    def ungraded(groups_P: Groups) -> Groups:
        first = groups_P[0].trajectories_G[0]
        first.transitions[-1] = replace(first.transitions[-1], metrics={})
        return groups_P

    change_groups(patch, ungraded)


@planted(ARM, "a reward that is no number spreads into every baseline")
def reward_is_nan(patch: pytest.MonkeyPatch) -> None:
    def spoilt(groups_P: Groups) -> Groups:
        first = groups_P[0].trajectories_G[0]
        first.transitions[-1] = replace(first.transitions[-1], reward=float("nan"))
        return groups_P

    change_groups(patch, spoilt)


@planted(ARM, "a printed group of the log is taken for the training batch")
def print_group_recorded_as_call(patch: pytest.MonkeyPatch) -> None:
    honest = training_record._observers

    def without(record: Any, stock: dict[str, Any]) -> dict[str, Any]:
        return honest(record, stock) | {"print_group": stock["print_group"]}

    patch.setattr(training_record, "_observers", without)


@planted(ARM, "one rollout of each step is never sent")
def datum_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(one_step, "sent", lambda data_D: data_D[:-1])


@planted(ARM, "advantages are computed twice: which were trained on is not known")
def second_advantage_call(patch: pytest.MonkeyPatch) -> None:
    honest = train.prepare_minibatch

    async def twice(*arguments: Any) -> Any:
        await honest(*arguments)
        return await honest(*arguments)

    patch.setattr(train, "prepare_minibatch", twice)


@planted(ARM, "the loss that was optimised is not on record")
def loss_not_reported(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(one_step.StandIn, "metrics", {})


# --- prompts ----------------------------------------------------------------------------------


@planted(VERIFY, "the arms see the prompts in different orders")
def prompts_reordered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(one_step, "handed_out", lambda batch_P: batch_P[::-1])


@planted(ARM, "a repeated prompt is its own nearest neighbour")
def prompts_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        one_step,
        "handed_out",
        lambda batch_P: [*batch_P[:-1], replace(batch_P[-1], question=batch_P[0].question)],
    )


def change_texts(patch: pytest.MonkeyPatch, change: Callable[[str], str]) -> None:
    """Change the texts that the seam hands to the similarity."""

    def of(rewards: Sequence[Sequence[float]], prompts: Sequence[str]) -> RolloutBatch:
        return RolloutBatch.of(rewards, [change(prompt) for prompt in prompts])

    stand_in = type("Batch", (), {"of": staticmethod(of)})
    patch.setattr(advantage_seam, "RolloutBatch", stand_in)


@planted(VERIFY, "every prompt looks alike, because the answer instruction is part of each")
def prompt_suffix_left_in_text(patch: pytest.MonkeyPatch) -> None:
    change_texts(patch, lambda text: text + MathEnv.question_suffix())


@planted(VERIFY, "every prompt looks alike, because the few-shot pair is part of each")
def prompt_prefix_left_in_text(patch: pytest.MonkeyPatch) -> None:
    prefix = " ".join(str(message["content"]) for message in MathEnv.standard_fewshot_prefix())
    change_texts(patch, lambda text: f"{prefix} {text}")


@planted(VERIFY, "similarity is measured on the first words only")
def prompt_cut_before_similarity(patch: pytest.MonkeyPatch) -> None:
    change_texts(patch, lambda text: text[:12])


@planted(VERIFY, "advantages on record are not those that were computed")
def advantages_rounded_in_the_record(patch: pytest.MonkeyPatch) -> None:
    honest = training_record.rollout_rows

    def rounded(*arguments: Any) -> list[dict[str, Any]]:
        rows = honest(*arguments)
        return [row | {"advantage": round(row["advantage"], 6)} for row in rows]

    patch.setattr(training_record, "rollout_rows", rounded)
