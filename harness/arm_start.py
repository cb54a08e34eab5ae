"""What an arm really started from, measured on its own client before its first update.

The plan says that every arm loads one saved state; this is the proof (contract §3): the bytes of
the adapter that the arm's client holds, and every log-probability on a fixed batch. A start that
is not the run's initial adapter stops the arm before anything is trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tinker

from harness.arm_restores import asked_optimizer, with_restores
from harness.digest import parse_json
from harness.errors import ArmError
from harness.gates.initial_identity import InitialIdentity, StartOfArm, fixed_batch
from harness.gates.provenance import provenance_of
from harness.plan import PlannedRun
from harness.reading import read_regular
from harness.service import export_adapter, fixed_batch_logprobs, reported_of, sdk_client
from harness.spec_model import Arm
from harness.store import write_json_atomic

START_NAME = "start.json"
FIXED_BATCH_ITEMS = 8


def prove_start(
    training: tinker.TrainingClient, run: PlannedRun, arm: Arm, attempt_folder: Path
) -> None:
    """Measure the arm's client, write ``start.json`` and refuse another start than the planned.

    Args:
        training: the arm's own training client, before its first update.
        run: the plan, with the run's initial state.
        arm: the arm.
        attempt_folder: where the record and the exported adapter go.

    Raises:
        ArmError: when the adapter is not the run's initial adapter, byte for byte.
    """
    batch = fixed_batch(run.spec, run.test_problems()[:FIXED_BATCH_ITEMS])
    batch_sha256, output_sha256 = fixed_batch_logprobs(training, batch)
    name = f"start-{run.folder.name}-{arm.name}-{attempt_folder.name}"
    with sdk_client() as client:
        adapter = export_adapter(client, training, name, attempt_folder / "start_adapter")
    record = {
        "arm": arm.name,
        "adapter_sha256": adapter,
        "batch_sha256": batch_sha256,
        "output_sha256": output_sha256,
        "reported": reported_of(training),
    }
    write_json_atomic(attempt_folder / START_NAME, record)
    expected = run.initial_state(arm.seed)["adapter_sha256"]
    if adapter != expected:
        raise ArmError(
            "the arm does not start from the run's initial adapter",
            expected=expected,
            found=adapter,
            where=f"arm {arm.name}, {attempt_folder.name}/{START_NAME}",
            fix="pytest -m preflight -k initial_identity: the service does not restore weights",
        )


def read_start(attempt_folder: Path) -> dict[str, Any]:
    """Return an attempt's ``start.json``."""
    return parse_json(read_regular(attempt_folder / START_NAME), where=START_NAME)


def run_provenance(
    run: PlannedRun,
    starts: Mapping[str, Mapping[str, Any]],
    restores: Mapping[str, Sequence[Mapping[str, Any]]],
    seed: int | None = None,
) -> dict[str, Any]:
    """Return contract §3's initialization_provenance of a run.

    Args:
        run: the plan, with the run's initial state.
        starts: arm → its ``start.json``, from the attempt that started from the initial state.
        restores: arm → every ``restored.json`` after that.
        seed: the seed that the arms were trained with; None is the first.
    """
    initial = run.initial_state(seed)
    found = InitialIdentity(
        initial_sha256=initial["adapter_sha256"],
        other_seed_sha256="",
        starts=tuple(StartOfArm(**start) for start in starts.values()),
        reported_model=str(initial["reported"].get("model_name", "")),
        reported_rank=int(initial["reported"].get("lora_rank", 0)),
    )
    record = provenance_of(run.spec, found, START_NAME)
    arms = {
        name: with_restores(arm, asked_optimizer(run.spec, name), restores.get(name, ()))
        for name, arm in record.arms.items()
    }
    return record.model_copy(update={"arms": arms}).to_json()
