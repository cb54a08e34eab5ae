"""An arm that is started by hand trains nothing on gates that did not stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_run import GRPO, plan_run

import harness.arm
from harness.arm import main, refuse_unproven
from harness.errors import ArmError
from harness.plan import PLAN_NAME, PlannedRun, read_plan


def planned(folder: Path, gates: dict[str, Any], pilot_steps: int | None = None) -> PlannedRun:
    run = plan_run(folder)
    plan = {**run.plan, "gates": gates, "pilot_steps": pilot_steps}
    (run.folder / PLAN_NAME).write_text(json.dumps(plan))
    return read_plan(run.folder, run.gsm8k_dir)


def gate(outcome: str) -> dict[str, str]:
    return {"outcome": outcome, "session": "s"}


@pytest.mark.parametrize("outcome", ["unknown", "fail"])
def test_an_arm_by_hand_is_refused_and_names_the_gate(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outcome: str,
) -> None:
    run = planned(tmp_path, {"a": gate("pass"), "dry_activation": gate(outcome)})
    monkeypatch.setattr(harness.arm, "take_attempt", lambda *_: pytest.fail("it trained"))
    assert main([str(run.folder), GRPO, "--gsm8k-dir", str(run.gsm8k_dir)]) == 1
    assert "not proven then: dry_activation" in capsys.readouterr().err


def test_a_plan_without_gates_is_no_proof(tmp_path: Path) -> None:
    with pytest.raises(ArmError, match="no gate at all"):
        refuse_unproven(planned(tmp_path, {}))


def test_proven_gates_and_pilots_may_train(tmp_path: Path) -> None:
    (tmp_path / "proven").mkdir()
    (tmp_path / "pilot").mkdir()
    refuse_unproven(planned(tmp_path / "proven", {"a": gate("pass")}))
    refuse_unproven(planned(tmp_path / "pilot", {"a": gate("unknown")}, pilot_steps=3))
