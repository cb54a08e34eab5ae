"""What the live gates share: one SDK client, a few rendered prompts, and stated tolerances.

The embedded service is deterministic, so its gates compare bits or float32 rounding. A service
that many clients share packs and schedules requests as it likes (tinker-notes §10): its gates
assert gaps and flip rates instead. Both sets of bounds are fixed here, before anything is measured.

Legend: ``_P`` prompts, ``_T`` tokens, ``_C`` tokens of a completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tinker

from harness.arm_dataset import fewshot_prefix, prompt_for, renderer_for
from harness.gates.not_offered import lacks, target_logprobs
from harness.problems import Problem
from harness.sdk_generation import sampling_client, training_client
from harness.spec_model import ExperimentSpec

PROBE_LEARNING_RATE = 5e-3
"""Far above any arm's: one update must stand out from bfloat16 rounding of an exported adapter."""

PROBE_MAX_TOKENS = 80
"""Completions of the probes are cut here, whatever the run's own limit: a gate takes seconds."""


@dataclass(frozen=True)
class Tolerances:
    """Bounds of one kind of service.

    Attributes:
        restore: distance of restored from uninterrupted, as a share of the update's norm.
        flip_rate: share of completions that may differ where all should be equal.
        gap_max: largest |sampler - trainer| log-probability of a token.
        gap_mean: mean of the same over all tokens.
    """

    restore: float
    flip_rate: float
    gap_max: float
    gap_mean: float


EXACT = Tolerances(restore=0.0, flip_rate=0.0, gap_max=1e-4, gap_mean=1e-5)
"""Embedded: restore is bit for bit; float32 trainer against float64 sampler leaves about 1e-6."""

SHARED = Tolerances(restore=0.05, flip_rate=0.10, gap_max=0.5, gap_mean=0.02)
"""Shared services compute in bfloat16 with other kernels for sampling: single unlikely tokens may
be tenths of a nat off while the mean stays in the hundredths. An update of restored moments moves
by a few percent when one gradient is recomputed in another packing; fresh moments move it by
about its whole length. Greedy text flips where two tokens are a rounding error apart."""


Scored = tuple[Sequence[int], Sequence[int]]
"""(prompt_T, completion_C): what log-probabilities are asked for."""


class LiveProbe:
    """One service under test.

    Args:
        client: SDK client of the service.
        spec: the experiment.
        problems: questions to probe with; at least 16.
        folder: where exported adapters go.
        label: prefix of checkpoint names, unique on the service.
        exact: whether the service is the embedded one.
    """

    def __init__(
        self,
        client: tinker.ServiceClient,
        spec: ExperimentSpec,
        problems: Sequence[Problem],
        folder: Path,
        label: str,
        *,
        exact: bool,
    ) -> None:
        self.client = client
        self.spec = spec
        self.problems = tuple(problems)
        self.folder = folder
        self.label = label
        self.tolerances = EXACT if exact else SHARED
        renderer, prefix = renderer_for(spec), fewshot_prefix(spec)
        self.tokenizer: Any = renderer.tokenizer
        self.stop_ids = [stop for stop in renderer.get_stop_sequences() if isinstance(stop, int)]
        self.prompts_P = [prompt_for(problem, renderer, prefix).to_ints() for problem in problems]
        self.gold_P: list[list[int]] = [
            renderer.tokenizer.encode(problem.gold, add_special_tokens=False)
            for problem in problems
        ]

    def new_trainer(self, *, rank: int | None = None, seed: int = 0) -> tinker.TrainingClient:
        """Return a training client with a new adapter of the spec's rank, or another."""
        return training_client(
            self.client.create_lora_training_client(
                self.spec.base_model, rank=rank or self.spec.lora_rank, seed=seed
            )
        )

    @cached_property
    def sampler(self) -> tinker.SamplingClient:
        """A sampler of a new adapter, which several gates only read from."""
        return sampling_client(self.new_trainer().save_weights_and_get_sampling_client())

    def params(
        self,
        *,
        temperature: float | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: Any = "the run's own",
    ) -> tinker.SamplingParams:
        """Return sampling parameters as the run's rollouts use them, but for what is given."""
        execution = self.spec.execution
        return tinker.SamplingParams(
            max_tokens=max_tokens or min(PROBE_MAX_TOKENS, execution.max_tokens),
            temperature=execution.temperature if temperature is None else temperature,
            seed=seed,
            stop=self.stop_ids if stop == "the run's own" else stop,
        )

    def adam(self) -> tinker.AdamParams:
        """Return the run's Adam constants at the probe's learning rate."""
        moments = self.spec.execution.optimizer
        return tinker.AdamParams(
            learning_rate=PROBE_LEARNING_RATE,
            beta1=moments.beta1,
            beta2=moments.beta2,
            eps=moments.eps,
        )

    def gold_rows(self, first: int, count: int) -> list[Scored]:
        """Return prompts with their gold answers as completions."""
        chosen = slice(first, first + count)
        return list(zip(self.prompts_P[chosen], self.gold_P[chosen], strict=True))


def sample_each(
    client: tinker.SamplingClient,
    prompts_P: Sequence[Sequence[int]],
    params_P: Sequence[tinker.SamplingParams],
    count: int = 1,
) -> list[list[tinker.SampledSequence]]:
    """Send one request a prompt, all at once; return ``count`` sequences a prompt."""
    pending = [
        client.sample(tinker.ModelInput.from_ints(list(prompt_T)), count, params)
        for prompt_T, params in zip(prompts_P, params_P, strict=True)
    ]
    drawn = [list(future.result().sequences) for future in pending]
    if short := [len(row) for row in drawn if len(row) != count]:
        raise lacks("asample", f"{count} sequences a request: {short[0]} given")
    return drawn


def scored_datum(row: Scored, weight: float = 1.0) -> tinker.Datum:
    """Return a cross-entropy datum whose weight is on the completion's tokens only."""
    prompt_T, completion_C = row
    tokens_T = [*prompt_T, *completion_C]
    weights_T = [0.0] * (len(prompt_T) - 1) + [weight] * len(completion_C)
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(tokens_T[:-1]),
        loss_fn_inputs={
            "target_tokens": tinker.TensorData(data=tokens_T[1:], dtype="int64"),
            "weights": tinker.TensorData(data=weights_T, dtype="float32"),
        },
    )


def trainer_logprobs(training: tinker.TrainingClient, rows: Sequence[Scored]) -> np.ndarray:
    """Return the trainer's log-probabilities of all completions' tokens, float64, end to end."""
    result = training.forward([scored_datum(row) for row in rows], "cross_entropy").result()
    return np.concatenate(target_logprobs(result, [len(completion) for _, completion in rows]))


def sampler_logprobs(client: tinker.SamplingClient, rows: Sequence[Scored]) -> np.ndarray:
    """Return the sampler's own scores of all completions' tokens, float64, end to end."""
    pending = [client.compute_logprobs(tinker.ModelInput.from_ints([*p, *c])) for p, c in rows]
    parts: list[np.ndarray] = []
    for future, (_, completion_C) in zip(pending, rows, strict=True):
        scores = (future.result() or [])[-len(completion_C) :]
        given = [score for score in scores if score is not None]
        if len(given) != len(completion_C):
            wanted = len(completion_C)
            raise lacks("asample", f"prompt_logprobs of {wanted} tokens: {len(given)} given")
        parts.append(np.asarray(given, dtype=np.float64))
    return np.concatenate(parts)


def update(
    training: tinker.TrainingClient, rows: Sequence[Scored], params: tinker.AdamParams
) -> None:
    """Make one optimizer step on the cross-entropy of ``rows``: the same rows and weights give
    the same gradient."""
    passed = training.forward_backward([scored_datum(row) for row in rows], "cross_entropy")
    stepped = training.optim_step(params)
    passed.result()
    stepped.result()
