"""The cookbook's own synchronous loop, run in memory: only the service's clients are stand-ins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tinker
import torch
from small_run import LOCAL_SPEC
from tinker_cookbook.rl import train

from harness.arm import training_config
from harness.arm_dataset import ArmDataset
from harness.spec_model import Arm

Output = tinker.ForwardBackwardOutput


class Future:
    """An SDK future that is done."""

    def __init__(self, value: Any) -> None:
        self.value = value

    async def result_async(self) -> Any:
        return self.value


class StubSampler:
    """Answers right, wrong, without a box, and cut off, in turn."""

    def __init__(self, dataset: ArmDataset, number: int) -> None:
        self._sampling_session_id = f"stub:sample:{number}"
        self.dataset = dataset
        self.golds = {
            tuple(dataset.prompt_tokens_T(problem)): problem.gold
            for batch in dataset.batches
            for problem in batch
        }
        self.asked = 0

    async def sample_async(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> tinker.SampleResponse:
        gold = self.golds[tuple(prompt.to_ints())]
        kind, self.asked = self.asked % 4, self.asked + 1
        text = [f"\\boxed{{{gold}}}", "\\boxed{999}", f"the answer is {gold}", "then 1"][kind]
        tokens = self.dataset.renderer.tokenizer.encode(text, add_special_tokens=False)
        stops = sampling_params.stop
        assert isinstance(stops, list)
        tokens += [] if kind == 3 else stops[:1]
        sequence = tinker.SampledSequence(
            stop_reason="length" if kind == 3 else "stop",
            sequence_id=f"{self._sampling_session_id}:{self.asked}",
            tokens_np=np.asarray(tokens, dtype=np.int64),
            logprobs_np=np.full(len(tokens), -0.5, dtype=np.float32),
        )
        return tinker.SampleResponse(sequences=[sequence] * num_samples)


class StubTraining:
    """Returns the log-probabilities it was sent, plus a known gap, and counts its calls."""

    GAP = 0.25

    def __init__(self, dataset: ArmDataset) -> None:
        self.dataset = dataset
        self.sent: list[list[tinker.Datum]] = []
        self.loss_fns: list[str] = []
        self.optimizer_steps: list[tinker.AdamParams] = []
        self.samplers: list[StubSampler] = []
        self.outputs: list[Output] = []
        self.edit: Callable[[Output], Output] = lambda output: output

    async def forward_backward_async(
        self, data: list[tinker.Datum], loss_fn: str, loss_fn_config: Mapping[str, Any] | None
    ) -> Future:
        assert loss_fn_config is None
        self.sent.append(data)
        self.loss_fns.append(loss_fn)
        logprobs = [
            torch.tensor(datum.loss_fn_inputs["logprobs"].data) - self.GAP for datum in data
        ]
        output = Output(
            loss_fn_output_type="TensorData",
            loss_fn_outputs=[{"logprobs": tinker.TensorData.from_torch(row)} for row in logprobs],
            metrics={"loss:sum": 10.0 + len(self.sent)},
        )
        self.outputs.append(self.edit(output))
        return Future(self.outputs[-1])

    async def optim_step_async(self, params: tinker.AdamParams) -> Future:
        self.optimizer_steps.append(params)
        return Future(tinker.OptimStepResponse(metrics={"optim/grad_norm": 1.0}))

    async def save_weights_and_get_sampling_client_async(self) -> StubSampler:
        self.samplers.append(StubSampler(self.dataset, len(self.samplers)))
        return self.samplers[-1]


class NoCheckpoints:
    """A checkpoint manager with nothing to save."""

    def should_save_periodic(self, step: int) -> bool:
        return step < 0

    async def maybe_save_rolling_async(self, **_: Any) -> None:
        return


class LoggedMetrics:
    """A metrics logger that keeps the rows."""

    store = None

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def log_metrics(self, metrics: dict[str, Any], step: int) -> None:
        self.rows.append({"step": step, **metrics})


def run_loop(
    arm: Arm,
    dataset: ArmDataset,
    training: StubTraining,
    log_path: Path,
    *,
    first_step: int = 0,
    **changes: Any,
) -> list[dict[str, Any]]:
    """Run ``do_sync_training`` over the data set and return what the loop logged.

    Args:
        arm: the plan.
        dataset: its batches.
        training: the stand-in for the service.
        log_path: the loop's own folder.
        first_step: where the loop starts.
        changes: fields of the loop's configuration that differ from the harness's own.
    """
    import chz

    config = training_config(LOCAL_SPEC, arm, dataset, log_path, "tinker://initial/weights/x")
    logger = LoggedMetrics()
    stand_ins: dict[str, Any] = {
        "training_client": training,
        "ml_logger": logger,
        "checkpoint_mgr": NoCheckpoints(),
    }
    asyncio.run(
        train.do_sync_training(
            start_batch=first_step,
            end_batch=len(dataset),
            num_batches=len(dataset),
            config=chz.replace(config, **changes),
            kl_reference_client=None,
            evaluators=[],
            dataset=dataset,
            tokenizer=dataset.renderer.tokenizer,
            **stand_ins,
        )
    )
    return logger.rows
