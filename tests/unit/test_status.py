"""``status``: proven, stale and missing gates, where a run stands, what is next, watching."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from complete_run import complete_run, edit_json
from mini_project import pinned_local
from small_run import GRPO, GS1

from harness.__main__ import main
from harness.commands import quiet_session
from harness.gates.binding import Binding
from harness.gates.evidence import EvidenceWriter
from harness.result import ResultDocument, publish
from harness.run_state import read_run_state, run_lines
from harness.session import HarnessSession
from harness.status import follow, plain_printer, run_reader, spec_reader

PASS = {
    "outcome": "pass",
    "reason": "every measurement inside what is allowed",
    "measures": [{"name": "error", "value": 0.5, "rule": {"at_most": 1.0}, "where": ""}],
    "notes": {},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("status")
    complete_run(folder)
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def interrupted(run: Path, steps: int = 1) -> None:
    """Leave a run as it is while its second arm trains: one posted arm, a torn last line."""
    document = ResultDocument.start("small: 1 of 2 arms trained and scored, no verdict yet.")
    document = document.with_metrics({"accuracy": 0.25}).with_metrics({"accuracy": 0.5}, arm=GRPO)
    (run / "result.json").unlink()
    publish(run / "result.json", document.arm_completed(GRPO))
    arm = run / "arms" / GS1
    (arm / "done.json").unlink()
    path = arm / "attempt-01" / "steps.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:steps]) + '{"arm": "gs1_sm')


def session(artifacts: Path) -> HarnessSession:
    """Return a session on the local spec, pinned to what is installed."""
    artifacts.mkdir(exist_ok=True)
    return quiet_session(pinned_local(artifacts), artifacts)


def same_spec(here: HarnessSession, command: str) -> str:
    return f"{command} --spec={here.options.spec_path}"


def prove(where: HarnessSession, binding: Binding, *gates: str, **changes: object) -> None:
    writer = EvidenceWriter(where.gates_folder, "local", binding, {})
    for gate in gates:
        writer.gate_started(gate)
        writer.gate_finished(gate, {**PASS, **changes})
    writer.closing(binding)
    writer.close()


def test_a_finished_run_is_told_with_steps_scores_and_verdict(run: Path) -> None:
    state = read_run_state(run)
    assert state.has_ended
    assert [(arm.steps_done, arm.steps_planned, arm.is_trained) for arm in state.arms] == [
        (2, 2, True),
        (2, 2, True),
    ]
    text = "\n".join(run_lines(state))
    assert "base model 0.2500, grpo_small 0.5000, gs1_small 0.5500" in text
    assert "verdict: inconclusive (insufficient_evidence)" in text
    proven, required = state.gates
    assert proven == required > 0


def test_an_unfinished_arm_shows_complete_rows_rate_and_time_left(run: Path) -> None:
    interrupted(run)
    arm = read_run_state(run).arms[1]
    assert (arm.name, arm.steps_done, arm.is_trained, arm.accuracy) == (GS1, 1, False, None)
    assert arm.step_s == 0.5
    assert arm.left_s == 0.5, "one step of 0.5 s is left"
    lines, has_ended = run_reader(run)()
    assert not has_ended
    assert f"  {GS1}: training, 1 of 2 steps, 0.50 s a step, 0 s of training left" in lines
    assert f"{GS1} not yet" in "\n".join(lines)
    assert "verdict:" not in "\n".join(lines)


def test_steps_before_a_resume_count_and_superseded_ones_do_not(run: Path) -> None:
    """Attempt 1 made steps 0 and 1; attempt 2 continues after step 0 and has not made one yet."""
    arm = run / "arms" / GS1
    (arm / "done.json").unlink()
    second = arm / "attempt-02"
    second.mkdir()
    assert read_run_state(run).arms[1].steps_done == 2, "an attempt that left no trace yet"
    (second / "resumed.json").write_text('{"attempt": 2, "continues": 1, "step": 1}')
    assert read_run_state(run).arms[1].steps_done == 1
    rows = (arm / "attempt-01" / "steps.jsonl").read_text().splitlines(keepends=True)
    (second / "steps.jsonl").write_text(rows[1])
    state = read_run_state(run).arms[1]
    assert (state.steps_done, state.attempt) == (2, 2)


def test_reading_a_run_changes_nothing_in_it(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    run_reader(run)()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_gates_are_proven_stale_failed_or_missing(tmp_path: Path) -> None:
    here = session(tmp_path)
    now = here.binding()
    old = replace(now, files={**now.files, "harness/loss.py": "0" * 64})
    prove(here, old, "loss_gradient_parity")
    prove(here, now, "advantage_properties")
    prove(here, now, "dry_activation", outcome="fail", reason="median outside 2 to 40")
    lines, _ = spec_reader(here)()
    assert f"1 of {len(here.required)} required gates proven" in lines[0]
    assert "  proven (1): advantage_properties" in lines
    stale = lines.index("  stale (1): loss_gradient_parity")
    assert lines[stale + 1] == "    changed since: harness/loss.py"
    failed = lines.index("  failed (1): dry_activation")
    assert lines[failed + 1] == "    median outside 2 to 40"
    assert "    never run; needs the service" in lines
    assert lines[-2:] == [
        "run: none yet",
        f"next: see why and mend it: {same_spec(here, 'pytest -m preflight -k dry_activation')}",
    ]


def test_the_next_command_follows_from_the_newest_run(tmp_path: Path, run: Path) -> None:
    here = session(tmp_path / "artifacts")
    full = same_spec(here, "pytest -m full")
    assert spec_reader(here)()[0][-1] == f"next: {full}"
    runs = tmp_path / "artifacts" / "runs" / "local"
    runs.mkdir(parents=True)
    (runs / "latest").symlink_to(run)
    assert f"start a new run: {full}" in spec_reader(here)()[0][-1]
    prove(here, here.binding(), *here.required)
    lines, has_ended = spec_reader(here)()
    assert has_ended
    assert lines[-1].startswith("next: python -m harness verify ")
    interrupted(run)
    lines, has_ended = spec_reader(here)()
    assert not has_ended
    assert lines[-1].endswith(f"this continues the run: {full}")


def test_watching_shows_each_change_once_and_ends_with_the_run(run: Path, finished: Path) -> None:
    interrupted(run)
    shown: list[str] = []
    waits: list[int] = []

    def wait() -> None:
        waits.append(len(waits))
        if len(waits) == 2:
            shutil.rmtree(run)
            shutil.copytree(finished, run)

    follow(run_reader(run), plain_printer(shown.append), wait)
    assert waits == [0, 1], "one look while it trains, one without news, then it has ended"
    assert sum("training, 1 of 2 steps" in line for line in shown) == 1
    assert sum("verdict: inconclusive" in line for line in shown) == 1
    assert shown[-1].startswith("next: python -m harness verify")


def test_the_command_names_what_is_no_run_and_no_spec(
    tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", str(tmp_path)]) == 4
    assert "do: name a run's folder" in capsys.readouterr().err
    edit_json(run / "result.json", "status", value="done")
    assert main(["status", str(run)]) == 4
    assert "contract §2" in capsys.readouterr().err
    assert main(["status", "--watch", str(run.parent / "none.json")]) == 4


def test_the_command_follows_a_finished_run_without_waiting(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--watch", str(run)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("run run: succeeded")
    assert json.loads((run / "result.json").read_text())["summary"] in out
