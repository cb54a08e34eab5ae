"""Runs the stock loop with the arm's advantages and writes down what it did.

One name of ``tinker_cookbook.rl.train`` is rebound to change anything: ``compute_advantages``.
Five more are wrapped to look, and pass their arguments and results through untouched:
``print_group`` (so that printing is not mistaken for training), ``train_step`` (what was sent),
``_training_logprobs_from_fwd_bwd`` (the service's ``loss:sum``, which the loop discards),
``do_group_rollout_and_filter_constant_reward`` (rollouts that failed) and
``save_checkpoint_and_get_sampling_client`` (which weights the next rollouts come from). The client
that the last one returns sends the planned sampling seeds, where there are any.
All six are put back when the run ends.

Shape suffix: ``_D`` datums.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tinker
import torch
from tinker_cookbook.rl import train

from harness.advantage_seam import AdvantageSeam
from harness.errors import ArmError
from harness.redact import Redactor
from harness.rollout_origin import (
    SHARED_BOUNDS,
    GapBounds,
    failure_row,
    refuse_foreign_rollouts,
)
from harness.rollout_seeds import RolloutSeeds, SeededSampler
from harness.spec_model import Arm
from harness.step_record import rollout_rows, sampler_trainer_gap, step_row
from harness.store import append_jsonl

ProveStart = Callable[[tinker.TrainingClient], None]


class TrainingRecord:
    """Writes ``steps.jsonl`` and ``rollouts.jsonl`` of one attempt, a step at a time.

    Args:
        arm: the plan.
        seam: the arm's advantages.
        folder: the attempt's folder.
        attempt: number of the attempt, from 1.
        first_step: step the attempt starts from.
        prove_start: called once with the arm's training client before its first update.
        sampling_seeds: seed of every rollout; None leaves the loop's requests as they are.
        bounds: how far sampler and trainer may be apart on a rollout.
    """

    def __init__(
        self,
        arm: Arm,
        seam: AdvantageSeam,
        folder: Path,
        attempt: int,
        first_step: int = 0,
        prove_start: ProveStart | None = None,
        sampling_seeds: RolloutSeeds | None = None,
        bounds: GapBounds = SHARED_BOUNDS,
    ) -> None:
        self.arm = arm
        self.seam = seam
        self.folder = folder
        self.attempt = attempt
        self.next_step = first_step
        self.prove_start = prove_start
        self.sampling_seeds = sampling_seeds
        self.bounds = bounds
        self.redactor = Redactor.from_environment(os.environ)
        self.sampler_version = first_step - 1
        self.sampling_session = ""
        self.loss_sums: list[float] = []
        self._clock_s = time.monotonic()

    def observe_sampler(self, client: tinker.SamplingClient) -> None:
        """Note that new weights were handed to the sampler."""
        self.sampler_version += 1
        # The SDK gives a sampling client no public name; the service's session id is it.
        self.sampling_session = client._sampling_session_id

    def observe_forward_backward(self, output: tinker.ForwardBackwardOutput) -> None:
        """Note the service's own loss of one forward-backward pass.

        Raises:
            ArmError: when the service reports no finite ``loss:sum``.
        """
        loss = output.metrics.get("loss:sum")
        if loss is None or not math.isfinite(loss):
            raise ArmError(
                "the service does not report the loss it optimised",
                expected="a finite metric loss:sum",
                found=str(sorted(output.metrics)) if loss is None else str(loss),
                where=f"arm {self.arm.name}, step {self.next_step}",
                fix="use a service that reports loss:sum, and rewards that keep it finite",
            )
        self.loss_sums.append(float(loss))

    def observe_failed_rollout(self, builder: Any, error: Exception) -> None:
        """Write down why a rollout failed; the loop then fails the step, as the cookbook does."""
        # The builder holds the question, the data set the row that it was made from.
        question = builder.env_thunk.args[0]
        item_id = next(
            problem.item_id
            for problem in self.seam.dataset.current_problems_P()
            if problem.question == question
        )
        row = failure_row(error, self.arm.name, self.attempt, self.next_step, item_id)
        append_jsonl(self.folder / "rollout_failures.jsonl", self.redactor.redact_json(row))

    def write_step(
        self,
        data_D: list[tinker.Datum],
        training_logprobs_D: list[torch.Tensor],
        training_s: float,
    ) -> None:
        """Write the step's lines once its update is done.

        Raises:
            ArmError: when the step was not the next one, or did not send the planned datums.
        """
        call = self.seam.take_single_call(self.next_step)
        planned = self.arm.group_size * self.arm.groups_per_batch
        if len(data_D) != planned or len(self.loss_sums) != 1:
            raise ArmError(
                "a step must send every rollout as one datum in one forward-backward pass",
                expected=f"{planned} datums in 1 pass",
                found=f"{len(data_D)} datums in {len(self.loss_sums)} passes",
                where=f"arm {self.arm.name}, step {call.step}",
                fix="run the synchronous loop with one substep",
            )
        where = f"arm {self.arm.name}, step {call.step}"
        gap = sampler_trainer_gap(data_D, training_logprobs_D)
        refuse_foreign_rollouts(data_D, training_logprobs_D, self.bounds, where)
        rollouts = rollout_rows(call, self.arm)
        now_s = time.monotonic()
        trained = {
            "attempt": self.attempt,
            "sampler_version": self.sampler_version,
            "sampling_session": self.sampling_session,
            "datums": len(data_D),
            "loss_sum": self.loss_sums.pop(),
            "sampler_trainer_gap": gap,
            "training_s": training_s,
            "step_s": now_s - self._clock_s,
        }
        self._clock_s = now_s
        append_jsonl(self.folder / "rollouts.jsonl", *rollouts)
        append_jsonl(self.folder / "steps.jsonl", step_row(call, self.arm, rollouts, trained))
        self.next_step += 1


@contextmanager
def recorded_training(record: TrainingRecord) -> Iterator[None]:
    """Rebind the treatment and the observers for the length of a run, then put them back."""
    names = (
        "compute_advantages",
        "print_group",
        "train_step",
        "_training_logprobs_from_fwd_bwd",
        "do_group_rollout_and_filter_constant_reward",
        "save_checkpoint_and_get_sampling_client",
    )
    stock = {name: getattr(train, name) for name in names}
    replacements = {"compute_advantages": record.seam, **_observers(record, stock)}
    try:
        for name, replacement in replacements.items():
            setattr(train, name, replacement)
        yield
    finally:
        for name, original in stock.items():
            setattr(train, name, original)


def _observers(record: TrainingRecord, stock: dict[str, Any]) -> dict[str, Any]:
    def print_group(*args: Any, **kwargs: Any) -> Any:
        record.seam.displaying = True
        try:
            return stock["print_group"](*args, **kwargs)
        finally:
            record.seam.displaying = False

    async def train_step(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
        prove_start, record.prove_start = record.prove_start, None
        if prove_start is not None:
            # In a thread, because the SDK's blocking calls may not run inside its caller's loop.
            await asyncio.to_thread(prove_start, kwargs["training_client"])
        started_s = time.monotonic()
        logprobs_D = await stock["train_step"](*args, **kwargs)
        data_D = kwargs["data_D"] if "data_D" in kwargs else args[0]
        record.write_step(data_D, logprobs_D, time.monotonic() - started_s)
        return logprobs_D

    def training_logprobs(output: tinker.ForwardBackwardOutput) -> list[torch.Tensor]:
        record.observe_forward_backward(output)
        return stock["_training_logprobs_from_fwd_bwd"](output)

    async def group_rollout(*args: Any, **kwargs: Any) -> Any:
        builder = kwargs["env_group_builder"] if "env_group_builder" in kwargs else args[1]
        stock_rollout = stock["do_group_rollout_and_filter_constant_reward"]
        try:
            group = await stock_rollout(*args, **kwargs)
        except Exception as error:
            record.observe_failed_rollout(builder, error)
            raise
        if group is None:
            raise ArmError(
                "a group of rollouts was left out",
                expected=f"{record.arm.group_size} rollouts",
                found="none",
                where=f"arm {record.arm.name}, step {record.next_step}",
                fix="keep the loop's default of failing fast: no step counts with fewer rollouts",
            )
        return group

    async def save_and_sample(*args: Any, **kwargs: Any) -> Any:
        client, metrics = await stock["save_checkpoint_and_get_sampling_client"](*args, **kwargs)
        record.observe_sampler(client)
        if record.sampling_seeds is None:
            return client, metrics
        return SeededSampler(client, record.sampling_seeds), metrics

    return {
        "print_group": print_group,
        "train_step": train_step,
        "_training_logprobs_from_fwd_bwd": training_logprobs,
        "do_group_rollout_and_filter_constant_reward": group_rollout,
        "save_checkpoint_and_get_sampling_client": save_and_sample,
    }
