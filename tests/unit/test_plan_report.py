"""``plan``: the numbers of the rule, what each arm uses, and "not measured" where nothing was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mini_project import ROOT
from small_run import GRPO, GS1, small_spec_json, write_rows, write_spec

from harness.__main__ import main
from harness.commands import quiet_session
from harness.gates.evidence import EvidenceWriter
from harness.plan_report import conclusion, plan_document, plan_lines, prompts_used
from harness.plan_sources import dry_table, projected_time, source_lines
from harness.spec import load_spec

LOCAL = ROOT / "specs" / "local.json"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    write_rows(tmp_path / "rows")
    return write_spec(tmp_path, small_spec_json()).path


def test_the_local_experiment_in_figures() -> None:
    """The figures that the README and contract §12 state."""
    document = plan_document(load_spec(LOCAL), seed=0)
    criterion = document["criteria"][0]
    assert abs(criterion["half_width"] - 0.0747894) < 5e-8
    assert abs(criterion["difference_needed"] - 0.0247894) < 5e-8
    assert criterion["net_items_to_pass"] == 33
    for cell in criterion["chances"]:
        total = sum(cell[name] for name in ("passes", "fails", "tie", "open"))
        assert abs(total - 1) < 1e-9, f"chances of {cell} add up to {total}"
        assert len(cell["secondary"]) == 4
    text = "\n".join(plan_lines(document))
    assert "difference above +0.0248 (net +33 items)" in text
    assert "supported" in text


def test_prompts_are_those_of_the_contract() -> None:
    used = {row["arm"]: row for row in prompts_used(load_spec(LOCAL).spec)}
    assert {arm: row["prompts"] for arm, row in used.items()} == {
        "grpo_gs8_seed0": 320,
        "gs1_seed0": 2560,
    }
    assert {row["rollouts"] for row in used.values()} == {2560}


def test_the_command_prints_json_that_repeats_with_its_seed(small: Path, capsys: Capture) -> None:
    arguments = ["plan", str(small), "--gsm8k-dir", str(small.parent / "rows"), "--json"]
    outputs: list[dict[str, Any]] = []
    for seed in ("1", "1", "2"):
        assert main([*arguments, "--seed", seed, "--artifacts", str(small.parent)]) == 0
        outputs.append(json.loads(capsys.readouterr().out))
    assert outputs[0] == outputs[1]
    assert outputs[2]["simulation"]["seed"] == 2
    assert outputs[0]["criteria"][0]["chances"] != outputs[2]["criteria"][0]["chances"]
    assert outputs[0]["projected_time"]["not_measured"].startswith("no feasibility gate was run")
    assert [row["arm"] for row in outputs[0]["activation"]["arms"]] == [GS1]


def test_the_plan_is_text_with_the_seed_of_what_is_simulated(small: Path, capsys: Capture) -> None:
    arguments = ["plan", str(small), "--seed", "7", "--artifacts", str(small.parent)]
    assert main([*arguments, "--gsm8k-dir", str(small.parent / "none")]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "simulated with seed 7 where marked *"
    assert f"  {GRPO}: 4 prompts, 8 rollouts (2 prompts × 2 rollouts × 2 steps)" in out
    assert "not measured: the offline data set cannot be read" in out


def test_a_rule_that_can_never_pass_says_so(tmp_path: Path) -> None:
    raw = small_spec_json()
    raw["decision_rule"]["criteria"][0] |= {"margin": 0.99}
    text = "\n".join(plan_lines(plan_document(write_spec(tmp_path, raw), seed=0)))
    assert "can never pass with so few items" in text


def test_weights_without_an_exact_form_claim_nothing(tmp_path: Path) -> None:
    raw = small_spec_json()
    raw["decision_rule"]["criteria"][0]["weights"] = {"treatment": 1, "baseline": -0.5}
    document = plan_document(write_spec(tmp_path, raw), seed=0)
    assert "opposite weights" in document["criteria"][0]["not_computed"]
    assert document["conclusion"] == conclusion(document["criteria"])
    assert "nothing is claimed" in document["conclusion"]
    assert "not computed" in "\n".join(plan_lines(document))


def test_two_criteria_are_each_planned_and_not_called_a_verdict(tmp_path: Path) -> None:
    raw = small_spec_json()
    first = raw["decision_rule"]["criteria"][0]
    raw["decision_rule"]["criteria"].append({**first, "id": "second", "margin": -0.6})
    document = plan_document(write_spec(tmp_path, raw), seed=0)
    text = "\n".join(plan_lines(document))
    assert "supported" not in text
    assert "criterion second" in text


def test_times_come_from_the_newest_feasibility_gate(tmp_path: Path) -> None:
    session = quiet_session(LOCAL, tmp_path)
    for seconds in (100.0, 200.0):
        writer = EvidenceWriter(session.gates_folder, "local", session.binding(), {})
        record = {"projected_wall_seconds": seconds, "projected_gpu_hours": None}
        writer.gate_finished(
            "feasibility",
            {
                "outcome": "pass",
                "reason": "inside",
                "measures": [{"name": "s", "value": 1, "rule": {"at_most": 2}, "where": ""}],
                "notes": {"feasibility": record},
            },
        )
        writer.closing(session.binding())
        writer.close()
    time = projected_time(session)
    assert time["projected_wall_seconds"] == 200.0
    assert time["standing"] == "proven"
    line = source_lines({"arms": []}, time)[-1]
    assert line.startswith("  200 of 1800 s wall clock, unknown of 0.1 GPU-hours")


def test_a_plan_without_a_similarity_arm_or_its_range_measures_no_activation(
    tmp_path: Path,
) -> None:
    raw = small_spec_json()
    raw["activation_gate"]["checks"] = raw["activation_gate"]["checks"][:2]
    assert "no range" in dry_table(write_spec(tmp_path, raw).spec, None)["not_measured"]
