"""Do rollouts become the loss and the parameter gradient that the plan says? (contract §4)

Each batch of fixed rollouts goes three ways to a float64 loss and the full gradient of a small
policy's parameters:

    stock      the cookbook's ``prepare_minibatch`` and ``train_step``, untouched
    new path   the same with the treatment's seam bound in, mode grpo (treatment off) or gs1
    reference  :mod:`harness.reference` in plain Python on the rollouts themselves, one turn at a
               time, never a datum: neither packing, shifting nor masking is shared with stock

Baseline errors compare the new path, treatment off, with stock; reference errors compare each
treatment with the reference, and a third pair compares stock itself with the reference.

Shape suffixes: ``_P`` groups of a batch, ``_D`` datums, ``_T`` tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tinker
import torch
from tinker_cookbook.rl import train
from tinker_cookbook.rl.types import Env, EnvGroupBuilder

from harness import reference
from harness.advantage_seam import AdvantageSeam, arm_params
from harness.correctness import parity_errors
from harness.errors import GateError
from harness.gates.parity_cases import ParityCase, shifted
from harness.gates.parity_policy import Policy, flat
from harness.gates.parity_wire import LocalTraining, LossAndGradient, wire_loss
from harness.reference_modes import reference_advantages
from harness.training_record import TrainingRecord, recorded_training


def stock_result(
    case: ParityCase, policy: Policy, dtype: torch.dtype = torch.float64
) -> LossAndGradient:
    """Send the rollouts the stock way, with the stock advantages.

    Stock code computes in torch's default dtype, so the comparison runs it in float64: in its usual
    float32 the rounding of ``r - mean`` alone is as large as the tolerances of a baseline loss.
    """
    return _trained(_minibatch(case, dtype), policy)


def new_path_result(case: ParityCase, policy: Policy, folder: Path) -> LossAndGradient:
    """Send the rollouts as an arm does: the seam bound in where the loop looks for it.

    Raises:
        ArmError: when the seam was not called exactly once with the full batch.
    """
    seam = AdvantageSeam(case.arm, case.dataset)
    with recorded_training(TrainingRecord(case.arm, seam, folder, attempt=1)):
        data_D = _minibatch(case)
    seam.take_single_call(0)
    return _trained(data_D, policy)


def reference_result(case: ParityCase, policy: Policy) -> LossAndGradient:
    """Differentiate the rollouts turn by turn with the plain-Python reference.

    Raises:
        AdvantageError: for an advantage mode that has no reference.
    """
    turns = [
        (turn, advantage)
        for turns_G, advantages_G in zip(case.turns_PG, _reference_advantages(case), strict=True)
        for rollout, advantage in zip(turns_G, advantages_G, strict=True)
        for turn in rollout
    ]
    sequences = [shifted((*turn.observation_T, *turn.action_T)) for turn, _ in turns]
    logprobs = policy.logprobs_D(sequences)
    datums = [
        reference.ReferenceDatum(
            logprobs=found[-len(turn.action_T) :].tolist(),
            sampling_logprobs=turn.sampling_logprobs_T,
            advantages=[advantage] * len(turn.action_T),
            mask=[0.0 if turn.masked else 1.0] * len(turn.action_T),
        )
        for found, (turn, advantage) in zip(logprobs, turns, strict=True)
    ]
    outputs = [found[-len(datum.mask) :] for found, datum in zip(logprobs, datums, strict=True)]
    weights = [
        torch.tensor(reference.token_gradients(datum), dtype=torch.float64) for datum in datums
    ]
    gradient = flat(policy.gradient(outputs, weights))
    return LossAndGradient(reference.importance_sampling_loss(datums), gradient, datums)


def compared(actual: LossAndGradient, against: LossAndGradient) -> dict[str, dict[str, float]]:
    """Return contract §4's error rows of a loss and of a full gradient."""
    return {
        "loss": parity_errors(actual.loss, against.loss),
        "gradient": parity_errors(actual.gradient, against.gradient),
    }


def directional_gap(
    policy: Policy, found: LossAndGradient, *, seed: int, length: float = 1e-5
) -> float:
    """Return how far a gradient's slope is from a central difference of its loss.

    The direction is drawn from N(0, 1) by ``seed``, so slopes are about as large as the gradient is
    long; the gap is a share of that length, because a single slope may be near 0.
    """
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(policy.size(), generator=generator, dtype=torch.float64)
    ahead, behind = (
        float(wire_loss(policy.moved(direction, step), found.datums).detach())
        for step in (length, -length)
    )
    slope = float(found.gradient @ direction)
    return abs((ahead - behind) / (2 * length) - slope) / float(found.gradient.norm())


class _Group(EnvGroupBuilder):
    """Stands for a group that has been rolled out already."""

    async def make_envs(self) -> Sequence[Env]:
        raise GateError("a fixed rollout is never rolled out again")


class _Numerals:
    """A tokenizer for the stock loop's log lines: a token's text is its number."""

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))


def _minibatch(case: ParityCase, dtype: torch.dtype = torch.float64) -> list[tinker.Datum]:
    groups_P = case.groups_P()
    tokenizer: Any = _Numerals()
    preparing = train.prepare_minibatch(
        [_Group() for _ in groups_P], groups_P, tokenizer, None, 0.0, 0.0
    )
    with torch_default(dtype):
        data_D, _ = asyncio.run(preparing)
    return data_D


@contextmanager
def torch_default(dtype: torch.dtype) -> Iterator[None]:
    """Let torch make tensors of ``dtype`` from Python floats, and put its default back."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _trained(data_D: list[tinker.Datum], policy: Policy) -> LossAndGradient:
    client: Any = LocalTraining(policy)
    asyncio.run(train.train_step(data_D, client, 1e-4, 1, "importance_sampling"))
    (result,) = client.results
    return result


def _reference_advantages(case: ParityCase) -> list[list[float]]:
    return reference_advantages(
        case.arm.advantage_mode, case.questions_P, case.rewards_P, arm_params(case.arm)
    )
