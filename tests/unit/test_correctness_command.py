"""``python -m harness.correctness``: its lines and its exit codes (contract §4)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from preflight_record import NAMES, PINS, ROOT, record, spec_path, with_errors

from harness.correctness import main

__all__ = ["spec_path"]


def run(spec_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    path = spec_path.with_name("preflight.json")
    path.write_text(text)
    code = main([str(spec_path), str(path)])
    return code, capsys.readouterr().out.splitlines()


def test_the_command_prints_one_line_a_check(
    spec_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = run(spec_path, json.dumps(record()), capsys)
    assert code == 0
    assert lines[-1] == "correctness: passed"
    for name in (*PINS, *NAMES):
        assert sum(f"advantage_loss {name}: passed" in line for line in lines) == 1, (name, lines)
    code, lines = run(
        spec_path, json.dumps(with_errors("baseline_loss", max_abs_error=1.0)), capsys
    )
    assert (code, lines[-1]) == (1, "correctness: failed")
    assert any("baseline_loss: failed (max_abs_error 1, allowed 3e-06" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (json.dumps({"required": True, "paths": []}), 1),
        (json.dumps(record(baseline_revision="UNRESOLVED")), 1),
        ("{", 2),
        ("[]", 2),
        (json.dumps(record()).replace('"max_abs_error": 0.0', '"max_abs_error": NaN', 1), 2),
        (json.dumps(record()).replace('"required"', '"required": false, "required"', 1), 2),
        ("{}", 2),
    ],
)
def test_exit_codes(
    text: str, code: int, spec_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(spec_path, text, capsys)[0] == code


def test_missing_files_and_wrong_usage_exit_2(spec_path: Path, tmp_path: Path) -> None:
    assert main([str(spec_path), str(tmp_path / "nowhere.json")]) == 2
    assert main([str(tmp_path / "nowhere.json"), str(spec_path)]) == 2
    assert main([str(spec_path)]) == 2


def test_the_module_runs_as_a_command(spec_path: Path) -> None:
    path = spec_path.with_name("preflight.json")
    path.write_text(json.dumps(record()))
    command = [sys.executable, "-m", "harness.correctness", str(spec_path), str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "correctness: passed"), done
