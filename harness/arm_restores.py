"""What every restore of an arm gave, for contract §3: one optimizer row a restore.

An attempt that continues another writes ``restored.json`` before its next update. Whether the
restored moments are the saved ones no response shows; the gate ``optimizer_restored`` measures it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tinker

from harness.attempts import RESTORED_NAME, Attempt, arm_restores, lineage, read_attempts
from harness.errors import ArmError
from harness.gates.verdict import Outcome
from harness.restoration import ArmProvenance, OptimizerCheck, optimizer_check
from harness.restoration_rules import judge_row
from harness.service import reported_of
from harness.spec_model import ExperimentSpec
from harness.spec_preflight import RestorationArm
from harness.store import write_json_atomic


def prove_restore(
    training: tinker.TrainingClient,
    spec: ExperimentSpec,
    arm_name: str,
    arm: Path,
    attempt: Attempt,
) -> None:
    """Write ``restored.json`` and refuse another optimizer than the planned.

    Args:
        training: the restored client, before its next update.
        spec: says what optimizer was asked for.
        arm_name: the arm.
        arm: its folder.
        attempt: the attempt, which continues another.

    Raises:
        ArmError: when the service says that the optimizer is another.
    """
    first = lineage(read_attempts(arm), attempt.number)[0]
    number = len(arm_restores(arm, first.number)) + 1
    record = {
        "arm": arm_name,
        "attempt": attempt.number,
        "step": attempt.first_step,
        "after_restore": number,
        "reported": reported_of(training),
    }
    write_json_atomic(attempt.folder(arm) / RESTORED_NAME, record)
    asked = asked_optimizer(spec, arm_name)
    if asked is None:
        return
    findings = judge_row(arm_name, asked, restore_row(asked, record))
    if wrong := [str(found) for found in findings if found.outcome is Outcome.FAIL]:
        raise ArmError(
            "the service restored another optimizer than the planned",
            expected="the spec's restoration_preflight",
            found="; ".join(wrong),
            where=f"arm {arm_name}, {attempt.folder(arm).name}/{RESTORED_NAME}",
            fix="pytest -m preflight -k optimizer_restored",
        )


def asked_optimizer(spec: ExperimentSpec, arm_name: str) -> RestorationArm | None:
    """Return what the spec asks of an arm's optimizer, or None where it does not say."""
    groups = spec.restoration_preflight.groups
    return next((arm for group in groups for arm in group.arms if arm.name == arm_name), None)


def restore_row(asked: RestorationArm, record: Mapping[str, Any]) -> OptimizerCheck:
    """Return contract §3's row of one ``restored.json``."""
    return optimizer_check(
        asked,
        record["reported"],
        after_restore=record["after_restore"],
        evidence_ref=f"attempt {record['attempt']}: {RESTORED_NAME}",
    )


def with_restores(
    arm: ArmProvenance, asked: RestorationArm | None, records: Sequence[Mapping[str, Any]]
) -> ArmProvenance:
    """Return an arm's provenance with its restores; how it was initialised stays.

    Args:
        arm: provenance of the arm's first start.
        asked: what the spec asks of its optimizer.
        records: its ``restored.json`` files, in order.
    """
    rows = () if asked is None else tuple(restore_row(asked, record) for record in records)
    changed = {
        "restore_count": len(records),
        "optimizer_checks": (*arm.optimizer_checks, *rows),
    }
    return arm.model_copy(update=changed)
