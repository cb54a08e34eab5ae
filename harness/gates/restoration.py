"""Does a restore bring the optimizer back? The create-save-restore probe of contract §3.

An adapter takes a few Adam steps, is saved, and comes back twice: with its optimizer, and with its
weights only (cold). All three clients then take one step on the same batch, so the gradient is the
same and only the moments can differ. Restored must equal uninterrupted, both must differ from cold.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tinker
from safetensors.torch import load_file

from harness.gates.fact import VACUOUS, Fact, Measured
from harness.gates.live_probe import LiveProbe, update
from harness.gates.verdict import Outcome
from harness.restoration import OptimizerCheck, optimizer_check
from harness.restoration_rules import Finding, judge_row
from harness.sdk_generation import training_client
from harness.service import export_adapter
from harness.spec_preflight import RestorationArm

WARM_UP_STEPS = 4
"""Enough that both bias corrections and both moments are far from those of a first step."""

ROWS_A_STEP = 4

COLD_DISTANCE = 0.2
"""Least distance of a cold update from a warm one, as a share of the warm update's norm: below
that the probe could not tell moments from none. Measured here: about 1."""

ADAM_NAMES = ("adam", "adamw")
"""AdamW without weight decay, which no arm sets, is Adam."""

NOT_REPORTED = "not reported"


def measure_restoration(probe: LiveProbe) -> Measured:
    """Run the probe on the service.

    Returns:
        facts on the three adapters before and after the fixed-gradient update and on what the
        service says of optimizer and rank; notes with each arm's row of contract §3 after a
        restore, and what that row leaves unverified.
    """
    uninterrupted = probe.new_trainer()
    for step in range(WARM_UP_STEPS):
        update(uninterrupted, probe.gold_rows(step * ROWS_A_STEP, ROWS_A_STEP), probe.adam())
    uri = uninterrupted.save_state(f"{probe.label}-warm").result().path
    clients = {
        "uninterrupted": uninterrupted,
        "restored": training_client(
            probe.client.create_training_client_from_state_with_optimizer(uri)
        ),
        "cold": training_client(probe.client.create_training_client_from_state(uri)),
    }
    before = {name: adapter_vector(probe, one, f"{name}-before") for name, one in clients.items()}
    for client in clients.values():
        update(client, probe.gold_rows(0, ROWS_A_STEP), probe.adam())
    after = {name: adapter_vector(probe, one, f"{name}-after") for name, one in clients.items()}
    saved = _saved_rank(probe, uri)
    rows = _restored_rows(probe, clients["restored"], uri)
    findings = [found for arm, row in rows for found in judge_row(arm.name, arm, row)]
    return Measured(
        (
            *_weight_facts(probe, before),
            *_update_facts(probe, before, after),
            *_said(probe, clients["restored"], saved, findings),
        ),
        {
            "optimizer_checks": {arm.name: row.model_dump(mode="json") for arm, row in rows},
            "findings": [str(finding) for finding in findings],
        },
    )


def _restored_rows(
    probe: LiveProbe, restored: tinker.TrainingClient, uri: str
) -> list[tuple[RestorationArm, OptimizerCheck]]:
    """Return contract §3's row of a restored client for every arm of the spec."""
    reported = restored.get_info().model_dump(mode="json", exclude_none=True)
    groups = probe.spec.restoration_preflight.groups
    return [
        (arm, optimizer_check(arm, reported, after_restore=1, evidence_ref=f"get_info after {uri}"))
        for group in groups
        for arm in group.arms
    ]


def adapter_vector(probe: LiveProbe, training: tinker.TrainingClient, name: str) -> np.ndarray:
    """Return an exported adapter as one float64 vector, tensors in the order of their names."""
    folder = probe.folder / f"{probe.label}-{name}"
    export_adapter(probe.client, training, f"{probe.label}-{name}", folder)
    return np.concatenate([tensor.ravel() for _, tensor in exported_tensors(folder)])


def exported_tensors(folder: Path) -> list[tuple[str, np.ndarray]]:
    """Return (name, float64 values) of every tensor in an exported adapter's folder."""
    found: list[tuple[str, np.ndarray]] = []
    for path in sorted(folder.glob("*.safetensors")):
        # Through torch, because numpy knows no bfloat16.
        tensors = load_file(path)
        found += [(name, tensors[name].double().numpy()) for name in sorted(tensors)]
    return found


def _weight_facts(probe: LiveProbe, before: Mapping[str, np.ndarray]) -> list[Fact]:
    base = before["uninterrupted"]
    effect = "the arm would go on from other weights than those it saved"
    facts = [
        Fact("adapter values compared", base.size, {"at_least": 1}, VACUOUS),
        Fact("norm of the saved adapter", _norm(base), {"above": 0.0}, "zeros equal zeros"),
    ]
    for name in ("restored", "cold"):
        value = _distance(before[name], base) / _norm(base)
        rule = {"at_most": probe.tolerances.restore}
        facts.append(
            Fact(f"{name} weights: distance / norm, before the update", value, rule, effect)
        )
    return facts


def _update_facts(
    probe: LiveProbe, before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]
) -> list[Fact]:
    moved = _distance(after["uninterrupted"], before["uninterrupted"])
    lost = "a resumed arm would start Adam again: its next steps are not those of the plan"
    blind = "the probe could not tell a restored optimizer from a fresh one"
    to_restored = _distance(after["restored"], after["uninterrupted"])
    to_cold = _distance(after["cold"], after["uninterrupted"])
    apart = _distance(after["restored"], after["cold"])
    scale = moved or float("nan")
    return [
        Fact("norm of the uninterrupted update", moved, {"above": 0.0}, "no update was made"),
        Fact(
            "restored - uninterrupted: distance / update norm",
            to_restored / scale,
            {"at_most": probe.tolerances.restore},
            lost,
        ),
        Fact(
            "cold - uninterrupted: distance / update norm",
            to_cold / scale,
            {"at_least": COLD_DISTANCE},
            blind,
        ),
        Fact(
            "restored - cold: distance / update norm",
            apart / scale,
            {"at_least": COLD_DISTANCE},
            lost,
        ),
    ]


def _said(
    probe: LiveProbe,
    restored: tinker.TrainingClient,
    saved_rank: int | str,
    findings: Sequence[Finding],
) -> list[Fact]:
    other = "another optimizer or capacity would be trained than the one that was planned"
    info = restored.get_info()
    config = info.optimizer_config
    name = NOT_REPORTED if config is None else config.type
    failed = [str(finding) for finding in findings if finding.outcome is Outcome.FAIL]
    ranks = {"one_of": [probe.spec.lora_rank, NOT_REPORTED]}
    return [
        Fact("optimizer in get_info", name, {"one_of": [*ADAM_NAMES, NOT_REPORTED]}, other),
        Fact("LoRA rank in get_info", _or_not_reported(info.lora_rank), ranks, other),
        Fact("LoRA rank in weights_info", saved_rank, ranks, other),
        Fact(
            "optimizer fields that differ from the plan",
            len(failed),
            {"equals": 0},
            other,
            "; ".join(failed[:2]),
        ),
    ]


def _saved_rank(probe: LiveProbe, uri: str) -> int | str:
    """Return the rank the service reports of a checkpoint.

    The SDK fills in an optimizer where ``weights_info`` names none, so only ``get_info`` counts.
    """
    with warnings.catch_warnings():
        # The replacement for this call, tinker.RestClient, does not share the client's headers.
        warnings.simplefilter("ignore", FutureWarning)
        rest = probe.client.create_rest_client()
    return _or_not_reported(rest.get_weights_info_by_tinker_path(uri).result().lora_rank)


def _or_not_reported(rank: int | None) -> int | str:
    return NOT_REPORTED if rank is None else rank


def _norm(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector))


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the L2 distance; adapters of different shapes are infinitely far apart."""
    return _norm(a - b) if a.shape == b.shape else float("inf")
