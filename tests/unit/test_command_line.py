"""``python -m harness``: commands, exit codes, and messages that say what to do next."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mini_project import ROOT, required_ids

from harness.__main__ import COMMANDS, main
from harness.result import ResultDocument, publish
from harness.spec import load_spec

LOCAL = ROOT / "specs" / "local.json"
Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_without_a_command_the_usage_is_shown_and_the_exit_code_is_4(capsys: Capture) -> None:
    code, out, _ = run(capsys)
    assert code == 4
    for name in COMMANDS:
        assert f"  {name}" in out


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_not_an_error(capsys: Capture, flag: str) -> None:
    code, out, _ = run(capsys, flag)
    assert code == 0
    assert out.startswith("usage: python -m harness COMMAND")


def test_every_command_explains_itself(capsys: Capture) -> None:
    for name in COMMANDS:
        code, out, _ = run(capsys, name, "--help")
        assert code == 0, name
        assert f"python -m harness {name}" in out


def test_an_unknown_command_is_a_usage_error(capsys: Capture) -> None:
    code, _, err = run(capsys, "trian")
    assert code == 4
    assert "unknown command 'trian'" in err
    assert "commands:" in err


@pytest.mark.parametrize("arguments", [("spec",), ("spec", "a", "b"), ("grade", "--loud")])
def test_a_bad_command_line_exits_4_not_2(capsys: Capture, arguments: tuple[str, ...]) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 4
    assert "usage: python -m harness" in err


def test_a_spec_is_shown_with_digest_arms_and_gates(capsys: Capture) -> None:
    loaded = load_spec(LOCAL)
    code, out, _ = run(capsys, "spec", str(LOCAL))
    assert code == 0
    assert f"sha256:{loaded.digest}" in out
    for arm in loaded.spec.arms:
        assert f"arm {arm.name}: advantage {arm.advantage_mode}" in out
    assert f"({len(required_ids())}): {', '.join(required_ids())}" in out
    assert "half-width 0.0747894" in out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('"batch_size": 63', "batch_size"),
        ('"batch_size": NaN', "NaN"),
        ('"batch_size": 64, "batch_size": 64', "twice"),
    ],
    ids=["rule", "not a number", "duplicate key"],
)
def test_a_bad_spec_exits_4_and_names_the_fault(
    capsys: Capture, tmp_path: Path, change: str, message: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(LOCAL.read_text().replace('"batch_size": 64', change))
    code, out, err = run(capsys, "spec", str(path))
    assert (code, out) == (4, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["spec", "grade"])
def test_a_file_that_cannot_be_read_says_what_to_do(
    capsys: Capture, tmp_path: Path, command: str
) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        code, _, err = run(capsys, command, str(path))
        assert code == 4
        assert " | do: " in err, f"no next step in {err!r}"


ANSWERS = [
    {"text": "so \\boxed{18}", "gold": "18", "finished": True},
    {"text": "18 and", "gold": "18", "finished": False},
]
GRADES = [{"prediction": "18", "correct": True}, {"prediction": None, "correct": False}]


def lines_of(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_grade_prints_one_line_a_line(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(lines_of(ANSWERS))
    code, out, _ = run(capsys, "grade", str(path))
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == GRADES


def test_grade_reads_standard_input(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(lines_of(ANSWERS).encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    code, out, _ = run(capsys, "grade", "-")
    assert (code, len(out.splitlines())) == (0, 2)


def test_grade_names_the_line_it_cannot_read(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(lines_of([*ANSWERS, {"text": "no gold"}]))
    code, out, err = run(capsys, "grade", str(path))
    assert code == 4
    assert len(out.splitlines()) == 2, "what came before is kept"
    assert "line 3" in err


def test_result_prints_the_document_as_one_line(capsys: Capture, tmp_path: Path) -> None:
    document = ResultDocument.start("small: planned.").with_metrics({"accuracy": 0.25})
    publish(tmp_path / "result.json", document)
    code, out, _ = run(capsys, "result", str(tmp_path))
    assert code == 0
    assert out.count("\n") == 1
    assert json.loads(out.removeprefix("RESULT ")) == document.to_json()


def test_result_without_a_run_says_what_to_do(capsys: Capture, tmp_path: Path) -> None:
    code, _, err = run(capsys, "result", str(tmp_path))
    assert code == 4
    assert "do: make demo, or name another run" in err


def test_a_damaged_result_is_refused(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"status": "succeeded", "summary": "x"}')
    code, out, err = run(capsys, "result", str(tmp_path))
    assert (code, out) == (4, "")
    assert "contract §2" in err


@pytest.mark.parametrize("copies", [1, 8000], ids=["short", "longer than a pipe holds"])
def test_a_reader_that_went_away_is_no_error(tmp_path: Path, copies: int) -> None:
    """As in ``python -m harness grade FILE | head -0``: no traceback, whatever the size."""
    path = tmp_path / "answers.jsonl"
    path.write_text(lines_of(ANSWERS * copies))
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "harness", "grade", str(path)],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        # A buffered stream, as for most people: it is flushed when the interpreter ends.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    os.close(writer)
    assert (done.returncode, done.stderr.decode()) == (0, "")
