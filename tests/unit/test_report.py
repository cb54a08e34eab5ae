"""A report says what the run's files say: the same numbers three times, and nothing else."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from complete_run import edit_json, redraw
from report_golden import GOLDEN, NAMES, stable
from small_run import BINDING, GRPO, GS1, plan_run, small_spec_json

from harness.digest import sha256_file
from harness.gates.evidence import EvidenceWriter
from harness.plan import GATES_FOLDER
from harness.redact import Redactor
from harness.report import REPORT_NAMES, build_report, parse_report, report_json
from harness.report_files import drawn_files
from harness.report_model import Report
from harness.report_render import render_html, render_markdown
from harness.result import ResultDocument, publish, read_result
from harness.store import append_jsonl, read_jsonl, write_json_atomic

HALF_WIDTH = 2 * math.sqrt(math.log(40) / 80)
"""Width 2, alpha 0.05, 40 items: 0.4295."""


@pytest.fixture
def run(complete_original: Path, tmp_path: Path) -> Path:
    shutil.copytree(complete_original, tmp_path / "run")
    shutil.copytree(complete_original.parent / "rows", tmp_path / "rows")
    return tmp_path / "run"


def report_of(run: Path, environ: dict[str, str] | None = None) -> Report:
    return build_report(run, run.parent / "rows", Redactor.from_environment(environ or {}))


def planned_run(folder: Path) -> Path:
    """A run of which nothing but the plan and the first result exists."""
    run = plan_run(folder).folder
    publish(run / "result.json", ResultDocument.start("small: planned, nothing trained yet."))
    return run


@pytest.mark.parametrize("name", NAMES)
def test_the_report_of_the_small_run_is_the_golden_one(run: Path, name: str) -> None:
    golden = (GOLDEN / name).read_text(encoding="utf-8")
    assert stable((run / name).read_bytes()) == golden, (
        f"{name} changed; if that is wanted: python tests/unit/report_golden.py"
    )


def test_its_numbers_are_those_worked_out_by_hand(run: Path) -> None:
    report = report_of(run)
    (criterion,) = report.criteria
    # 22 of 40 items against 20 of 40, the same 20 among them; margin -0.05.
    assert criterion.mean == pytest.approx(0.05, abs=1e-12)
    assert criterion.half_width == pytest.approx(HALF_WIDTH, abs=1e-12)
    scores = {score.arm: (score.value, score.unfinished) for score in report.scores}
    assert scores == {"base": (0.25, 1), GRPO: (0.5, 1), GS1: (0.55, 1)}
    (change,) = report.change
    assert (change.wins, change.losses, change.ties) == (2, 0, 38)
    assert change.discordance == pytest.approx(0.05)
    to_pass, to_fail, items, margin, discordance = change.by_rule
    # 40 · (0.4295 − 0.05) = 15.2, so 16 net items pass; 40 · (−0.4795) = −19.2, so −20 fail.
    assert "a net of +16 items, found +2" in to_pass.note, to_pass
    assert "a net of -20 items, found +2" in to_fail.note, to_fail
    # 4 · ln(40) / (2 · 0.1²) = 737.8
    assert items.needed == "738 (then it would pass)"
    assert margin.needed == "below -0.3795 to pass, above +0.4795 to fail"
    assert discordance.now == "0.0500 (2 of 40)"
    curve = {arm.arm: [point.rollouts for point in arm.steps] for arm in report.training}
    assert curve == {GRPO: [4, 8], GS1: [4, 8]}


def test_page_and_text_give_the_numbers_of_the_model(run: Path) -> None:
    (criterion,) = report_of(run).criteria
    numbers = (
        f"n 40, mean +0.0500, half-width {HALF_WIDTH:.4f}, interval"
        f" [{criterion.lower:+.4f}, {criterion.upper:+.4f}], margin -0.0500"
    )
    for name in ("report.html", "report.md"):
        assert numbers in (run / name).read_text(encoding="utf-8"), f"{name} says other numbers"
    assert parse_report(json.loads((run / "report.json").read_bytes())) == report_of(run)


def test_examples_come_worst_first(run: Path) -> None:
    # Item 39 was answered by neither; give it to the baseline, and the treatment does worse on it.
    path = run / f"predictions/{GRPO}.jsonl"
    rows = [dict(row) for row in read_jsonl(path)]
    rows[38] |= {"value": 1.0}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = report_of(run).examples
    kinds = [(kind.kind, kind.items, kind.shown) for kind in shown.kinds]
    assert kinds == [
        ("treatment worse", 1, 1),
        ("treatment better", 2, 2),
        ("equal, no credit", 17, 10),
        ("equal, with credit", 20, 10),
    ]
    first = shown.items[0]
    assert (first.item_id, first.effect) == ("small-test-00038", -1.0)
    assert first.question == "test: what is 38 plus 38"
    answers = {answer.arm: (answer.prediction, answer.value) for answer in first.answers}
    assert answers == {"base": ("999", 0.0), GRPO: ("999", 1.0), GS1: ("999", 0.0)}


def test_a_run_that_has_only_begun_says_not_yet(tmp_path: Path) -> None:
    run = planned_run(tmp_path)
    report = report_of(run)
    assert (report.verdict.verdict, report.criteria, report.scores) == (None, (), ())
    assert {gate.outcome for gate in report.gates} == {"unknown"}, "nothing was proven"
    assert report.feasibility.observed_wall_s is None
    for text in (render_html(report), render_markdown(report)):
        assert "Verdict: not yet" in text
        for sentence in (
            "Not yet: nothing was scored.",
            "Not yet: no interval of the difference exists.",
            "Not yet: no criterion was judged.",
            "not measured",
            "not run here",
        ):
            assert sentence in text, f"{sentence!r} is not said"


def test_an_arm_at_work_is_shown_as_far_as_it_came(run: Path, tmp_path: Path) -> None:
    begun = planned_run(make_folder(tmp_path / "begun"))
    attempt = begun / f"arms/{GS1}/attempt-02"
    shutil.copytree(run / f"arms/{GS1}/attempt-01", attempt)
    steps = (attempt / "steps.jsonl").read_bytes()
    (attempt / "steps.jsonl").write_bytes(steps[:-30])
    found = {
        arm.arm: (arm.attempts, len(arm.steps), arm.finished) for arm in report_of(begun).training
    }
    assert found == {GRPO: (0, 0, False), GS1: (2, 1, False)}


def make_folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_run_that_capacity_stopped_says_so(tmp_path: Path) -> None:
    run = planned_run(tmp_path)
    stopped = {
        "status": "failed",
        "summary": "No capacity.",
        "metrics": {"arms": {}},
        "completed_arms": [],
        "verdict": "inconclusive",
        "outcome_reason": "incomplete_execution",
        "capacity_block": {
            "error": "503 from the service",
            "comparison_steps_completed": 0,
            "released_clients": 1,
        },
    }
    write_json_atomic(run / "result.json", stopped)
    report = report_of(run)
    assert report.verdict.stopped_by_capacity == "503 from the service"
    assert "503 from the service" in render_markdown(report)


def test_a_third_arm_is_scored_and_drawn_and_decides_nothing(tmp_path: Path) -> None:
    raw = small_spec_json()
    third = {**raw["arms"][0], "name": "grpo_again"}
    raw["arms"].append(third)
    group = raw["restoration_preflight"]["groups"][0]["arms"]
    group.append({**group[0], "name": "grpo_again"})
    run = plan_run(tmp_path, raw).folder
    publish(run / "result.json", ResultDocument.start("small: planned, nothing trained yet."))
    report = report_of(run)
    assert [arm.arm for arm in report.training] == [GRPO, GS1, "grpo_again"]
    assert "grpo_again" in render_html(report)
    assert all("grpo_again" not in line for line in report.verdict.rule)


def test_a_verdict_that_gates_weakened_names_the_rules_own(run: Path) -> None:
    edit_json(run / "decision.json", "verdict", value="supported")
    report = report_of(run)
    assert (report.verdict.verdict, report.verdict.by_rule) == ("inconclusive", "supported")
    assert "The rule alone says supported" in render_markdown(report)


def test_measured_times_are_shown_and_others_are_not_made_up(run: Path) -> None:
    (run / "timings.jsonl").unlink()
    usage: Any = read_result(run / "result.json").feasibility
    unmeasured = report_of(run).feasibility
    assert unmeasured.observed_wall_s == usage["observed_usage"]["wall_seconds"], "as was posted"
    assert {phase.observed_s for phase in unmeasured.phases} == {None}
    append_jsonl(
        run / "timings.jsonl",
        {"stage": "arm", "arm": GS1, "seconds": 2.5},
        {"stage": "decision", "seconds": 0.25},
    )
    found = report_of(run).feasibility
    assert found.observed_wall_s == 2.75
    phases = {phase.name: (phase.projected_s, phase.observed_s) for phase in found.phases}
    assert phases == {"setup": (None, None), "training": (None, 2.5), "evaluation": (None, None)}
    stages = {stage.name: stage.observed_s for stage in found.stages}
    # Two steps of half a second each, by the steps' own clocks.
    assert stages == {
        f"arm {GS1}": 2.5,
        "decision": 0.25,
        f"2 steps of {GRPO}": 1.0,
        f"2 steps of {GS1}": 1.0,
    }


def test_planted_defects_are_counted_by_gate(run: Path) -> None:
    assert report_of(run).mutants is None
    record = {
        "version": 1,
        "killed": 1,
        "run": 2,
        "not_run": ["a", "b", "c"],
        "survivors": ["late"],
        "false_alarms": {"alarms": 0, "clean_runs": 4, "by_gate": []},
        "mutants": [
            {"name": "early", "gate": "dry_activation", "effect": "x", "killed": True},
            {"name": "late", "gate": "dry_activation", "effect": "x", "killed": False},
        ],
    }
    write_json_atomic(run.parent / "mutants.json", record)
    redraw(run)
    assert (run / "mutants.json").read_bytes() == (run.parent / "mutants.json").read_bytes()
    report = report_of(run)
    counts = {gate.gate: (gate.mutants_killed, gate.mutants_run) for gate in report.gates}
    assert counts["dry_activation"] == (1, 2)
    assert counts["feasibility"] == (None, None)
    assert "killed 1 of 2, 3 not run" in (run / "report.md").read_text()


def test_a_pass_that_its_own_measurement_contradicts_is_shown_as_fail(tmp_path: Path) -> None:
    run = planned_run(tmp_path)
    writer = EvidenceWriter(run / GATES_FOLDER, "spec", BINDING, {})
    measure = {"name": "largest error", "value": 2.0, "rule": {"at_most": 1.0}, "where": ""}
    record = {"outcome": "pass", "reason": "fine", "measures": [measure], "notes": {}}
    writer.gate_finished("dry_activation", record)
    writer.close()
    gates = {"dry_activation": {"outcome": "pass", "session": writer.session}}
    edit_json(run / "plan.json", "gates", value=gates)
    gate = next(gate for gate in report_of(run).gates if gate.gate == "dry_activation")
    assert gate.outcome == "fail", gate.reason
    assert gate.nearest is not None
    assert not gate.nearest.inside


def test_the_same_files_give_the_same_bytes_under_other_settings(run: Path) -> None:
    import matplotlib as mpl

    with mpl.rc_context({"lines.linewidth": 9, "svg.hashsalt": "other", "font.size": 20}):
        again = drawn_files(report_of(run))
    for name in REPORT_NAMES:
        assert again[name] == (run / name).read_bytes(), f"{name} differs"


def test_drawing_changes_no_file_of_the_run(run: Path) -> None:
    before = {path: sha256_file(path) for path in run.rglob("*") if path.is_file()}
    drawn_files(report_of(run))
    assert {path: sha256_file(path) for path in run.rglob("*") if path.is_file()} == before


def test_the_json_is_the_model_with_its_keys_sorted(run: Path) -> None:
    data = report_json(report_of(run))
    document = json.loads(data)
    assert list(document) == sorted(document)
    assert document["version"] == 1
