"""One fixed batch for the live parity gates, and clients that all start from one state.

The batch has what a run's datums have and more: unequal lengths, prompt tokens that count for
nothing, masked stretches in the middle, and sampling log-probabilities of older weights. All
clients start from an adapter that has been trained a little: at creation LoRA's B is zero, A has no
gradient, and half of every comparison would be empty.

Shape suffixes: ``_D`` datums, ``_T`` tokens; every array of a datum has its (T,).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tinker
from safetensors import safe_open

from harness.gates.live_probe import LiveProbe, update
from harness.gates.not_offered import target_logprobs
from harness.loss import DatumArrays, importance_ratios
from harness.sdk_generation import training_client
from harness.service import export_adapter

FloatArray = npt.NDArray[np.float64]
WARM_UP_STEPS = 3
ROWS_A_STEP = 4
SEED = 20260803
STALENESS = 0.3
"""Nats (standard deviation) between the sampling log-probabilities and the trainer's own."""


@dataclass(frozen=True, eq=False)
class PlannedDatum:
    """One datum before it has sampling log-probabilities.

    Attributes:
        tokens: prompt and completion.
        advantages, mask: of each target; both 0 on prompt and masked tokens.
    """

    tokens: Sequence[int]
    advantages: FloatArray
    mask: FloatArray


class ParityBench:
    """A service with a fixed batch and a common start.

    Args:
        probe: the service.
        name: prefix of this bench's checkpoints.
    """

    def __init__(self, probe: LiveProbe, name: str) -> None:
        self.probe = probe
        self.name = f"{probe.label}-{name}"
        self._random = np.random.default_rng(SEED)
        self._exports = 0

    @cached_property
    def start_uri(self) -> str:
        """The saved state that every client starts from."""
        client = self.probe.new_trainer()
        for step in range(WARM_UP_STEPS):
            update(client, self.probe.gold_rows(step * ROWS_A_STEP, ROWS_A_STEP), self.probe.adam())
        return client.save_state(f"{self.name}-start").result().path

    def fresh(self) -> tinker.TrainingClient:
        """Return a client at the common start with a fresh optimizer."""
        return training_client(self.probe.client.create_training_client_from_state(self.start_uri))

    @cached_property
    def start_adapter(self) -> dict[str, FloatArray]:
        """The adapter at the common start."""
        return self.adapter(self.fresh())

    def adapter(self, client: tinker.TrainingClient) -> dict[str, FloatArray]:
        """Export a client's adapter: tensors by name, widened to float64."""
        self._exports += 1
        name = f"{self.name}-{self._exports}"
        folder = self.probe.folder / name
        export_adapter(self.probe.client, client, name, folder)
        return _tensors(folder)

    def change(self, client: tinker.TrainingClient) -> FloatArray:
        """Return how far a client's adapter is from the start, one flat vector."""
        now = self.adapter(client)
        return np.concatenate(
            [(now[name] - before).reshape(-1) for name, before in self.start_adapter.items()]
        )

    @cached_property
    def data_D(self) -> list[tinker.Datum]:  # noqa: N802 - shape suffix
        """The importance-sampling datums, their log-probabilities stale."""
        return [
            importance_datum(sequence, self._stale(sequence, logprobs_T))
            for sequence, logprobs_T in zip(self.sequences_D, self._start_logprobs_D, strict=True)
        ]

    @cached_property
    def sequences_D(self) -> list[PlannedDatum]:  # noqa: N802 - shape suffix
        """Prompts, completions, advantages and masks of the batch."""
        return [self._sequence(index) for index in range(len(self.probe.prompts_P))]

    @cached_property
    def _start_logprobs_D(self) -> list[FloatArray]:  # noqa: N802 - shape suffix
        scored = [cross_entropy_datum(sequence, sequence.mask) for sequence in self.sequences_D]
        return self.returned(self.fresh().forward(scored, "cross_entropy").result())

    def returned(self, output: tinker.ForwardBackwardOutput) -> list[FloatArray]:
        """Return the log-probabilities of each datum's targets as the service sent them, float64.

        Raises:
            NotOfferedError: when one is missing.
        """
        return target_logprobs(output, [len(one.mask) for one in self.sequences_D])

    def arrays_D(  # noqa: N802 - shape suffix
        self, data_D: Sequence[tinker.Datum], logprobs_D: Sequence[FloatArray]
    ) -> list[DatumArrays]:
        """Join datums with log-probabilities the service gave them, for the recomputation."""
        return [
            DatumArrays(
                logprobs_T, _input(datum, "logprobs"), _input(datum, "advantages"), one.mask
            )
            for datum, logprobs_T, one in zip(data_D, logprobs_D, self.sequences_D, strict=True)
        ]

    def _sequence(self, index: int) -> PlannedDatum:
        prompts_P = self.probe.prompts_P
        prompt_T = prompts_P[index]
        size = 5 + 3 * (index % 8)
        completion_T = self._random.choice(np.concatenate(prompts_P), size=size)
        mask = np.zeros(len(prompt_T) + size - 1)
        mask[len(prompt_T) - 1 :] = 1.0
        if index % 2:
            third = size // 3
            mask[len(prompt_T) - 1 + third : len(prompt_T) - 1 + 2 * third] = 0.0
        advantage = float(np.float32(self._random.choice([1.0, -0.6, 0.35, -0.1])))
        tokens_T = [*prompt_T, *(int(token) for token in completion_T)]
        return PlannedDatum(tokens_T, advantage * mask, mask)

    def _stale(self, sequence: PlannedDatum, logprobs_T: FloatArray) -> FloatArray:
        """Move log-probabilities; masked action tokens keep theirs, prompt tokens have none."""
        noise_T = STALENESS * self._random.standard_normal(len(logprobs_T))
        action_T = np.arange(len(logprobs_T)) >= int(np.argmax(sequence.mask))
        return np.where(action_T, np.minimum(logprobs_T + noise_T, 0.0), 0.0)


def importance_datum(sequence: PlannedDatum, sampling_logprobs_T: FloatArray) -> tinker.Datum:
    """Return a datum of the loss importance_sampling."""
    return _datum(sequence, logprobs=sampling_logprobs_T, advantages=sequence.advantages)


def cross_entropy_datum(sequence: PlannedDatum, weights_T: FloatArray) -> tinker.Datum:
    """Return a datum of the loss cross_entropy."""
    return _datum(sequence, weights=weights_T)


def negated(datum: tinker.Datum) -> tinker.Datum:
    """Return the same datum with every advantage negated: its gradient points the other way."""
    inputs = dict(datum.loss_fn_inputs)
    inputs["advantages"] = _float32(-_input(datum, "advantages"))
    return tinker.Datum(model_input=datum.model_input, loss_fn_inputs=inputs)


def trained_ratios(arrays_D: Sequence[DatumArrays]) -> FloatArray:
    """Return exp(logp - q) of every token that counts."""
    return np.concatenate([importance_ratios(one)[one.mask_T == 1] for one in arrays_D])


def _datum(sequence: PlannedDatum, **inputs_T: FloatArray) -> tinker.Datum:
    tokens_T = list(sequence.tokens)
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(tokens_T[:-1]),
        loss_fn_inputs={
            "target_tokens": tinker.TensorData(data=tokens_T[1:], dtype="int64"),
            **{name: _float32(values_T) for name, values_T in inputs_T.items()},
        },
    )


def _float32(values_T: FloatArray) -> tinker.TensorData:
    return tinker.TensorData(data=values_T.astype(np.float32).tolist(), dtype="float32")


def _input(datum: tinker.Datum, name: str) -> FloatArray:
    return datum.loss_fn_inputs[name].to_numpy().astype(np.float64)


def _tensors(folder: Path) -> dict[str, FloatArray]:
    tensors: dict[str, FloatArray] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as opened:
            for name in sorted(opened.keys()):
                tensors[name] = opened.get_tensor(name).double().numpy()
    return tensors
