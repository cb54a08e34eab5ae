"""``python -m harness report`` and ``verify``: a run's own report is compared, never rewritten."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from complete_run import reseal
from mini_project import ROOT
from small_run import plan_run

from harness.__main__ import main
from harness.digest import sha256_file
from harness.gates.verdict import Outcome
from harness.report import REPORT_NAMES
from harness.result import ResultDocument, publish
from harness.verify import verify_run


@pytest.fixture
def run(complete_original: Path, tmp_path: Path) -> Path:
    shutil.copytree(complete_original, tmp_path / "run")
    shutil.copytree(complete_original.parent / "rows", tmp_path / "rows")
    return tmp_path / "run"


def digests(folder: Path) -> dict[str, str]:
    return {str(path): sha256_file(path) for path in folder.rglob("*") if path.is_file()}


def report(run: Path, *more: str) -> int:
    return main(["report", str(run), "--gsm8k-dir", str(run.parent / "rows"), *more])


@pytest.mark.slow
def test_another_process_draws_the_same_bytes(run: Path) -> None:
    before = digests(run)
    command = [sys.executable, "-m", "harness", "report", str(run)]
    done = subprocess.run(
        [*command, "--gsm8k-dir", str(run.parent / "rows")],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pass report: the records give every byte of" in done.stdout
    assert f"open {run / 'report.html'}" in done.stdout
    assert digests(run) == before


@pytest.mark.parametrize(
    ("name", "was", "becomes"),
    [
        ("report.json", b'"verdict": "inconclusive"', b'"verdict": "supported"'),
        ("report.md", b"Verdict: inconclusive", b"Verdict: supported"),
        ("report.html", b"Verdict: inconclusive", b"Verdict: supported"),
    ],
)
def test_a_report_that_says_something_else_is_named(
    run: Path, capsys: pytest.CaptureFixture[str], name: str, was: bytes, becomes: bytes
) -> None:
    data = (run / name).read_bytes()
    assert was in data
    (run / name).write_bytes(data.replace(was, becomes, 1))
    reseal(run)
    assert report(run) == 1
    assert f"fail    report: {name}: not what the run's records give".split() == (
        capsys.readouterr().out.splitlines()[0].split()
    )
    wrong = [c for c in verify_run(run, run.parent / "rows") if c.outcome is not Outcome.PASS]
    assert [(check.name, check.outcome) for check in wrong] == [("report", Outcome.FAIL)]


def test_a_changed_drawing_is_found_by_drawing_again(run: Path) -> None:
    path = run / "report.html"
    data = path.read_bytes()
    assert data.count(b"never decides</text>") >= 1
    path.write_bytes(data.replace(b"never decides</text>", b"decides</text>", 1))
    assert report(run) == 1


def test_a_missing_file_of_the_three_is_named(run: Path) -> None:
    (run / "report.md").unlink()
    reseal(run)
    found = {check.name: check for check in verify_run(run, run.parent / "rows")}
    assert found["report"].outcome is Outcome.FAIL
    assert "report.md" in found["report"].detail


def test_a_run_without_a_report_leaves_the_question_open(run: Path) -> None:
    for name in REPORT_NAMES:
        (run / name).unlink()
    reseal(run)
    found = {check.name: check.outcome for check in verify_run(run, run.parent / "rows")}
    assert found["report"] is Outcome.UNKNOWN


def test_a_copy_is_drawn_beside_and_never_inside_the_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = digests(run)
    assert report(run, "--out", str(tmp_path / "copy")) == 0
    for name in REPORT_NAMES:
        assert (tmp_path / "copy" / name).read_bytes() == (run / name).read_bytes()
    assert report(run, "--out", str(run / "again")) == 4
    assert "not written into a run" in capsys.readouterr().err
    assert digests(run) == before


def test_an_unfinished_run_is_drawn_outside_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = plan_run(tmp_path).folder
    publish(planned / "result.json", ResultDocument.start("small: planned, nothing trained yet."))
    before = digests(planned)
    monkeypatch.chdir(tmp_path)
    assert report(planned) == 0
    assert "drawn of a run that is running: open artifacts/reports/" in capsys.readouterr().out
    drawn = tmp_path / "artifacts" / "reports" / "spec" / "run"
    assert json.loads((drawn / "report.json").read_bytes())["verdict"]["verdict"] is None
    assert digests(planned) == before


def test_without_the_data_set_equality_is_unknown(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(run.parent / "rows")
    assert report(run) == 3
    assert "the questions it shows cannot be had here" in capsys.readouterr().out


def test_a_folder_that_is_no_run_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 4
    assert "there is no run to report on" in capsys.readouterr().err


def test_a_damaged_record_is_an_error_with_its_name(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "decision.json").write_text('{"criteria": 3}')
    assert report(run) == 4
    assert "a record of the run has not the form it should have" in capsys.readouterr().err
