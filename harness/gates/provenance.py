"""The record of contract §3 made of what the identity gate measured, and the facts it decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.errors import NotOfferedError
from harness.gates.fact import VACUOUS, Fact, Measured
from harness.gates.initial_identity import InitialIdentity
from harness.gates.verdict import Outcome
from harness.restoration import OptimizerCheck, Provenance, optimizer_check
from harness.restoration_rules import judge_provenance
from harness.spec_model import ExperimentSpec
from harness.spec_preflight import RestorationArm


def identity_facts(spec: ExperimentSpec, found: InitialIdentity, evidence: str) -> Measured:
    """Return the identity gate's facts, and as notes the record and what it leaves unverified.

    Args:
        spec: the experiment.
        found: what was measured.
        evidence: where the measurement is kept.

    Raises:
        NotOfferedError: when the service does not say which model it serves: there is no record
            of a start without a base.
    """
    if not found.reported_model:
        raise NotOfferedError("get_info answered without the model's name")
    record = provenance_of(spec, found, evidence)
    findings = judge_provenance(record, spec)
    failed = [str(item) for item in findings if item.outcome is Outcome.FAIL]
    unverified = [str(item) for item in findings if item.outcome is Outcome.UNKNOWN]
    unequal = "a difference between arms could come from where they started"
    facts = [Fact("arms started", len(found.starts), {"equals": len(spec.arms)}, VACUOUS)]
    first = found.starts[0].output_sha256
    for start in found.starts:
        same_adapter, same_output = {"equals": found.initial_sha256}, {"equals": first}
        digest, outputs = start.adapter_sha256, start.output_sha256
        facts += [
            Fact("adapter sha256", digest, same_adapter, unequal, start.arm),
            Fact("log-probabilities sha256", outputs, same_output, unequal, start.arm),
        ]
    facts += [
        Fact(
            "another seed gives another adapter",
            found.other_seed_sha256 != found.initial_sha256,
            {"equals": True},
            "equal hashes would prove nothing: the service ignores the seed",
        ),
        Fact(
            "model the service reports",
            found.reported_model,
            {"equals": spec.base_model},
            "another model would be tested",
        ),
        Fact(
            "rules of contract §3 that the record breaks",
            len(failed),
            {"equals": 0},
            "the record would not prove a common start",
            "; ".join(failed[:2]),
        ),
    ]
    lacking: list[str] = []
    if found.reported_rank is None:
        lacking.append("get_info answered without a LoRA rank")
    else:
        rank, rule = found.reported_rank, {"equals": spec.lora_rank}
        other = "another capacity would be tested"
        facts.append(Fact("LoRA rank the service reports", rank, rule, other))
    notes = {
        "initialization_provenance": record.to_json(),
        "unverified": unverified,
        "starts": [dict(vars(start)) for start in found.starts],
        "initial_sha256": found.initial_sha256,
    }
    return Measured(tuple(facts), notes, tuple(lacking))


def provenance_of(spec: ExperimentSpec, found: InitialIdentity, evidence: str) -> Provenance:
    """Return contract §3's record for every arm, from what the identity gate measured.

    Args:
        spec: names each arm's optimizer and what was asked of it.
        found: one start an arm, taken before any update.
        evidence: where the measurement is kept.
    """
    asked = {arm.name: arm for group in spec.restoration_preflight.groups for arm in group.arms}
    arms = {
        start.arm: {
            "initialization": {
                "base_checkpoint": found.reported_model,
                "adapter_sha256": start.adapter_sha256,
                "source": "local_hash",
                "evidence_ref": f"{evidence}: starts of {start.arm}",
                "before_first_update": True,
            },
            "restore_count": 0,
            "optimizer_checks": _creation_rows(asked.get(start.arm), start.reported, evidence),
            "initial_output": {
                "available": True,
                "batch_sha256": start.batch_sha256,
                "output_sha256": start.output_sha256,
                "evidence_ref": f"{evidence}: starts of {start.arm}",
                "before_first_update": True,
            },
        }
        for start in found.starts
    }
    return Provenance.model_validate({"version": 1, "arms": arms})


def _creation_rows(
    asked: RestorationArm | None, reported: Mapping[str, Any], evidence: str
) -> tuple[OptimizerCheck, ...]:
    if asked is None:
        return ()
    return (optimizer_check(asked, reported, after_restore=0, evidence_ref=evidence),)
