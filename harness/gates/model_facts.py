"""Facts about what is served: the model by name and digest, its context, and the adapter's rank."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import tinker

from harness.gates.fact import VACUOUS, Fact, Measured
from harness.gates.live_probe import LiveProbe, sampler_logprobs, trainer_logprobs
from harness.gates.restoration import adapter_vector, exported_tensors
from harness.sdk_generation import sampling_client
from harness.service import export_adapter, reported_of

ROWS = 16


def measure_model(probe: LiveProbe, announced: Mapping[str, Any] | None) -> Measured:
    """Check name, context and rank, and that sampler and trainer have one base model.

    Args:
        probe: the service under test.
        announced: raw capabilities of an embedded service, with its model's digest; None elsewhere,
            where the protocol has no revision to compare.

    Returns:
        facts; only those on the capabilities when they do not list the model. What the service
        does not report of context, name or rank is lacking.
    """
    spec = probe.spec
    wrong = "another model or capacity would be tested than the one that was planned"
    lacking: list[str] = []
    facts = _listed(probe, wrong, lacking)
    if any(not fact.holds for fact in facts):
        return Measured(tuple(facts))
    training = probe.new_trainer()
    if reported := reported_of(training).get("model_name"):
        rule = {"equals": spec.base_model}
        facts.append(Fact("base model in get_info", reported, rule, wrong))
    else:
        lacking.append("get_info answered without the model's name")
    for rank in sorted({spec.lora_rank, max(1, spec.lora_rank // 2)}):
        facts += _rank_facts(probe, probe.new_trainer(rank=rank), rank, wrong, lacking)
    if announced is not None and spec.embedded is not None:
        found, rule = announced.get("model_sha256"), {"equals": spec.embedded.base_model_sha256}
        facts.append(Fact("sha256 of the model's weights", str(found), rule, wrong))
    facts += [*_seed_facts(probe), *_same_base(probe, training)]
    return Measured(tuple(facts), lacking=tuple(dict.fromkeys(lacking)))


def _same_base(probe: LiveProbe, training: tinker.TrainingClient) -> list[Fact]:
    """Compare the base model's sampler with a trainer whose adapter still does nothing."""
    base = sampling_client(probe.client.create_sampling_client(base_model=probe.spec.base_model))
    rows = probe.gold_rows(0, ROWS)
    gaps = np.abs(sampler_logprobs(base, rows) - trainer_logprobs(training, rows))
    return [
        Fact("tokens compared", gaps.size, {"at_least": ROWS}, VACUOUS),
        Fact(
            "mean |base model's sampler - trainer with a new adapter|, nats",
            float(gaps.mean()),
            {"at_most": probe.tolerances.gap_mean},
            "the base model's score would belong to another model than the arms'",
        ),
    ]


def _seed_facts(probe: LiveProbe) -> list[Fact]:
    """Compare adapters of one seed, twice, and of another."""
    first, again, other = (
        adapter_vector(probe, probe.new_trainer(seed=seed), f"seed-{seed}-{i}")
        for i, seed in enumerate((1, 1, 2))
    )
    unseeded = "the recorded initialization seed would not reproduce the adapter"
    return [
        Fact("adapter values of one seed", first.size, {"at_least": 1}, VACUOUS),
        Fact("one seed, one adapter", np.array_equal(first, again), {"equals": True}, unseeded),
        Fact("two seeds, one adapter", np.array_equal(first, other), {"equals": False}, unseeded),
    ]


def _listed(probe: LiveProbe, wrong: str, lacking: list[str]) -> list[Fact]:
    with warnings.catch_warnings():
        # The replacement for this call, tinker.RestClient, does not share the client's headers.
        warnings.simplefilter("ignore", FutureWarning)
        models = probe.client.get_server_capabilities().supported_models
    name = probe.spec.base_model
    found = [model for model in models if model.model_name == name]
    context = [model.max_context_length for model in found if model.max_context_length]
    if found and not context:
        lacking.append("get_server_capabilities answered without a longest context")
    refused = [model for model in found if False in (model.trainable, model.sampleable)]
    facts = [
        Fact("times the capabilities list the base model", len(found), {"equals": 1}, wrong, name),
        Fact(
            "models listed as not trainable or not sampleable",
            len(refused),
            {"equals": 0},
            wrong,
            name,
        ),
    ]
    facts += [
        Fact(
            "longest context, tokens",
            longest,
            {"at_least": probe.spec.max_seq_len},
            "long prompts or answers would be refused in the middle of the run",
            name,
        )
        for longest in context
    ]
    return facts


def _rank_facts(
    probe: LiveProbe,
    training: tinker.TrainingClient,
    asked: int,
    wrong: str,
    lacking: list[str],
) -> list[Fact]:
    folder = probe.folder / f"{probe.label}-rank-{asked}"
    export_adapter(probe.client, training, f"{probe.label}-rank-{asked}", folder)
    ranks = [min(value.shape) for name, value in exported_tensors(folder) if "lora_A" in name]
    where = f"asked for {asked}"
    reported = training.get_info().lora_rank
    if reported is None:
        lacking.append("get_info answered without a LoRA rank")
    said = [] if reported is None else [reported]
    return [
        *(Fact("LoRA rank in get_info", rank, {"equals": asked}, wrong, where) for rank in said),
        Fact("exported A matrices", len(ranks), {"at_least": 1}, VACUOUS, where),
        Fact(
            "smallest rank of an exported A", min(ranks, default=0), {"equals": asked}, wrong, where
        ),
        Fact(
            "largest rank of an exported A", max(ranks, default=0), {"equals": asked}, wrong, where
        ),
    ]
