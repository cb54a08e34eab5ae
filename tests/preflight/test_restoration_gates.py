"""Live gates: every arm starts from the same adapter, and a restore is complete (contract §3)."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from harness.experiment import Experiment
from harness.gates.initial_identity import measure_initial_identity
from harness.gates.live_probe import LiveProbe
from harness.gates.recorder import GateRecorder
from harness.gates.restoration import ROWS_A_STEP, WARM_UP_STEPS, measure_restoration, provenance_of
from harness.gates.verdict import Outcome
from harness.problems import load_problems
from harness.restoration_rules import judge_provenance
from harness.service import register_model_tokenizer
from harness.session import HarnessSession

FIXED_BATCH_ITEMS = 8


@pytest.mark.preflight
@pytest.mark.live
@pytest.mark.gate("initial_identity")
def test_initial_identity(
    gate: GateRecorder, harness_session: HarnessSession, experiment: Experiment, tmp_path: Path
) -> None:
    spec = harness_session.loaded.spec
    register_model_tokenizer(spec)
    test = load_problems(spec, "test", harness_session.options.gsm8k_dir)
    name = f"identity-{uuid4().hex[:8]}"
    with experiment.sdk_client() as client:
        found = measure_initial_identity(
            client,
            spec,
            test.problems[:FIXED_BATCH_ITEMS],
            tmp_path,
            name,
        )
    record = provenance_of(spec, found, f"gate initial_identity, exports {name}")
    findings = judge_provenance(record, spec)
    gate.note("initialization_provenance", record.to_json())
    gate.note("unverified", [str(item) for item in findings if item.outcome is Outcome.UNKNOWN])
    gate.note("starts", [start.__dict__ for start in found.starts])
    gate.note("initial_sha256", found.initial_sha256)
    unequal = "a difference between arms could come from where they started"
    for start in found.starts:
        gate.check(
            "adapter sha256",
            start.adapter_sha256,
            effect=unequal,
            where=start.arm,
            equals=found.initial_sha256,
        )
        gate.check(
            "log-probabilities sha256",
            start.output_sha256,
            effect=unequal,
            where=start.arm,
            equals=found.starts[0].output_sha256,
        )
    gate.check(
        "another seed gives another adapter",
        found.other_seed_sha256 != found.initial_sha256,
        effect="equal hashes would prove nothing: the service ignores the seed",
        equals=True,
    )
    gate.check(
        "model the service reports",
        found.reported_model,
        effect="another model would be tested",
        equals=spec.base_model,
    )
    gate.check(
        "LoRA rank the service reports",
        found.reported_rank,
        effect="another capacity would be tested",
        equals=spec.lora_rank,
    )
    failed = [str(item) for item in findings if item.outcome is Outcome.FAIL]
    gate.check(
        "rules of contract §3 that the record breaks",
        len(failed),
        effect="the record would not prove a common start",
        where="; ".join(failed[:2]),
        equals=0,
    )


@pytest.mark.preflight
@pytest.mark.live
@pytest.mark.gate("optimizer_restored")
def test_optimizer_restored(
    gate: GateRecorder, harness_session: HarnessSession, experiment: Experiment, tmp_path: Path
) -> None:
    spec = harness_session.loaded.spec
    register_model_tokenizer(spec)
    test = load_problems(spec, "test", harness_session.options.gsm8k_dir)
    with experiment.sdk_client() as client:
        probe = LiveProbe(
            client,
            spec,
            test.problems[: WARM_UP_STEPS * ROWS_A_STEP],
            tmp_path,
            f"restore-{uuid4().hex[:8]}",
            exact=harness_session.service_name == "embedded",
        )
        measure_restoration(probe).record(gate)
