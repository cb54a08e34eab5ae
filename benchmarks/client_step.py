"""Our own time in a training step: the stock loop with the record against the stock loop alone.

The service is a stand-in in this process that answers at once, so all that is left is the client.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tinker
from small_run import arm_dataset, problems, small_arm
from stub_loop import StubSampler, StubTraining, run_loop

from benchmarks.measure import in_turns
from benchmarks.rows import Row
from harness.advantage_seam import AdvantageSeam
from harness.spec_model import Arm
from harness.training_record import TrainingRecord, recorded_training

STEPS, ROLLOUTS = 5, 64


class DistinctSampler(StubSampler):
    """Gives every prompt log-probabilities of its own, as a real model does."""

    async def sample_async(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> tinker.SampleResponse:
        """Answer at once."""
        answer = await super().sample_async(prompt, num_samples, sampling_params)
        sequences = [
            tinker.SampledSequence(
                stop_reason=found.stop_reason,
                sequence_id=found.sequence_id,
                tokens_np=np.asarray(found.tokens, dtype=np.int64),
                logprobs_np=np.full(len(found.tokens), -0.5 - self.asked / 4096, dtype=np.float32),
            )
            for found in answer.sequences
        ]
        return tinker.SampleResponse(sequences=sequences)


class AtOnce(StubTraining):
    """A training client whose samplers are such ones."""

    async def save_weights_and_get_sampling_client_async(self) -> StubSampler:
        """Return a new sampler at once."""
        self.samplers.append(DistinctSampler(self.dataset, len(self.samplers)))
        return self.samplers[-1]


def looped(arm: Arm, *, recorded: bool) -> None:
    """Run the loop over all steps, in a folder that is thrown away."""
    dataset = arm_dataset(arm, problems(ROLLOUTS * STEPS))
    training = AtOnce(dataset)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        if not recorded:
            run_loop(arm, dataset, training, path)
            return
        record = TrainingRecord(arm, AdvantageSeam(arm, dataset), path, attempt=1)
        with recorded_training(record):
            run_loop(arm, dataset, training, path)


def client_step(quick: bool) -> list[Row]:
    """Measure 8 groups of 8, which both loops train on."""
    arm = small_arm("grpo", groups=8, group_size=8, steps=STEPS)
    pairs = in_turns(
        lambda: looped(arm, recorded=True),
        lambda: looped(arm, recorded=False),
        3 if quick else 7,
    )
    facts: dict[str, Any] = pairs.facts() | {"steps": STEPS, "rollouts": ROLLOUTS}
    cpu = facts["cpu_s"]
    own_ms = (cpu["ours"] - cpu["bare"]) / STEPS * 1e3
    return [
        Row(
            f"our own time in a step, {ROLLOUTS} rollouts",
            "the stock loop alone, on a service that answers at once (CPU time)",
            own_ms,
            "ms",
            most=50.0,
            facts=facts,
        ),
        Row(
            f"the whole client's time in a step, {ROLLOUTS} rollouts",
            "–",
            cpu["ours"] / STEPS * 1e3,
            "ms",
        ),
    ]
