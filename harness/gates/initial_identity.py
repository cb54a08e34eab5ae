"""Do all arms start from the same adapter? Measured on the service, before any update.

Every arm's way of starting (a weights-only load of the run's initial state) is taken once for each
arm, and what came back is compared twice: the bytes of the exported adapter, and every
log-probability on a fixed batch. Log-probabilities alone would prove nothing, because LoRA's B is
zero at the start (contract §3); a state from another seed shows that the hash can tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tinker

from harness.arm_dataset import fewshot_prefix, prompt_for, renderer_for
from harness.problems import Problem
from harness.sdk_generation import training_client
from harness.service import (
    create_initial_state,
    export_adapter,
    fixed_batch_logprobs,
    reported_of,
)
from harness.spec_model import ExperimentSpec


@dataclass(frozen=True)
class StartOfArm:
    """What one arm started from, and what the service says of its client."""

    arm: str
    adapter_sha256: str
    batch_sha256: str
    output_sha256: str
    reported: Mapping[str, Any]


@dataclass(frozen=True)
class InitialIdentity:
    """What was measured.

    Attributes:
        initial_sha256: adapter of the state that was saved.
        other_seed_sha256: adapter of a state made with another seed.
        starts: one row an arm.
        reported_model: the model name the service gives for the client.
        reported_rank: the rank it gives; None when it gives none.
    """

    initial_sha256: str
    other_seed_sha256: str
    starts: tuple[StartOfArm, ...]
    reported_model: str
    reported_rank: int | None


def measure_initial_identity(
    client: tinker.ServiceClient,
    spec: ExperimentSpec,
    problems: Sequence[Problem],
    folder: Path,
    name: str,
) -> InitialIdentity:
    """Create one initial state and start every arm from it.

    Args:
        client: SDK client of the service.
        spec: the experiment.
        problems: questions of the fixed batch.
        folder: where exported adapters go.
        name: prefix of checkpoint names, unique on the service.
    """
    seed = spec.decision_rule.seeds[0]
    initial = create_initial_state(client, spec, seed, name, folder / "initial")
    other = create_initial_state(client, spec, seed + 1, f"{name}-other", folder / "other-seed")
    batch = fixed_batch(spec, problems)
    starts: list[StartOfArm] = []
    for arm in spec.arms:
        training = training_client(client.create_training_client_from_state(initial.checkpoint_uri))
        batch_sha256, output_sha256 = fixed_batch_logprobs(training, batch)
        adapter = export_adapter(client, training, f"{name}-{arm.name}", folder / arm.name)
        reported = reported_of(training)
        starts.append(StartOfArm(arm.name, adapter, batch_sha256, output_sha256, reported))
    return InitialIdentity(
        initial_sha256=initial.adapter_sha256,
        other_seed_sha256=other.adapter_sha256,
        starts=tuple(starts),
        reported_model=str(initial.reported.get("model_name", "")),
        reported_rank=initial.reported.get("lora_rank"),
    )


def fixed_batch(spec: ExperimentSpec, problems: Sequence[Problem]) -> list[tinker.Datum]:
    """Return the prompts and gold answers of ``problems`` as cross-entropy datums."""
    renderer, prefix = renderer_for(spec), fewshot_prefix(spec)
    datums: list[tinker.Datum] = []
    for problem in problems:
        prompt_T = prompt_for(problem, renderer, prefix).to_ints()
        answer_T = renderer.tokenizer.encode(problem.gold, add_special_tokens=False)
        tokens_T = [*prompt_T, *answer_T]
        weights_T = [0.0] * (len(prompt_T) - 1) + [1.0] * len(answer_T)
        datums.append(
            tinker.Datum(
                model_input=tinker.ModelInput.from_ints(tokens_T[:-1]),
                loss_fn_inputs={
                    "target_tokens": tinker.TensorData(data=tokens_T[1:], dtype="int64"),
                    "weights": tinker.TensorData(data=weights_T, dtype="float32"),
                },
            )
        )
    return datums
