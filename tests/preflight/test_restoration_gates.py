"""Live gate: every arm starts from the same adapter and the same outputs (contract §3)."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from harness.experiment import Experiment
from harness.gates.initial_identity import measure_initial_identity
from harness.gates.recorder import GateRecorder
from harness.problems import load_problems
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
    with experiment.sdk_client() as client:
        found = measure_initial_identity(
            client,
            spec,
            test.problems[:FIXED_BATCH_ITEMS],
            tmp_path,
            f"identity-{uuid4().hex[:8]}",
        )
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
