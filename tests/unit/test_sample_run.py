"""The committed sample run is what the demo made: it verifies, and names no machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.gates.verdict import Outcome
from harness.verify import exit_code, verify_run

SAMPLE = Path(__file__).parents[2] / "artifacts" / "sample" / "run"
_HOME = re.compile(rb"(?<![\w.])/(home|root|tmp|work|Users)/")


@pytest.fixture(scope="module")
def files() -> list[Path]:
    found = [path for path in SAMPLE.rglob("*") if path.is_file()]
    assert len(found) >= 50, f"{len(found)} files: not a whole run"
    return found


def test_every_check_of_it_passes() -> None:
    checks = verify_run(SAMPLE)
    open_checks = [str(check) for check in checks if check.outcome is not Outcome.PASS]
    assert (exit_code(checks), open_checks) == (0, [])


def test_its_report_is_there_and_it_names_no_folder_of_a_machine(files: list[Path]) -> None:
    assert {"report.html", "report.md", "report.json"} <= {path.name for path in files}
    named = [path.name for path in files if _HOME.search(path.read_bytes())]
    assert named == [], f"{len(named)} files name a folder of a machine: {named[:5]}"
