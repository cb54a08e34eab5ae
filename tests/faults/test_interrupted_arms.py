"""Ctrl-C while two arms train at once: all processes end, and the same command continues."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.gates.verdict import Outcome
from harness.result import read_result
from harness.store import RunFolder
from harness.verify import verify_run
from tests.faults import resume_arena
from tests.faults.resume_arena import ARM, OTHER_ARM, ROOT, write_rows, write_spec

pytestmark = [pytest.mark.live, pytest.mark.slow]
STEPS = 6
ENDS_WITHIN_S = 60.0

PYTEST = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main())
"""
"""Listens to Ctrl-C even where these tests run as a job in the background, which ignores it."""


class Terminal:
    """A terminal in which ``pytest -m full --parallel 2`` is typed, on a small spec."""

    def __init__(self, folder: Path) -> None:
        self.artifacts, self.rows = folder / "artifacts", write_rows(folder / "rows")
        write_spec(folder)
        shutil.copy(ROOT / "specs" / "local.pins.json", folder / "spec.pins.json")
        self.spec = folder / "spec.json"

    def begin(self) -> subprocess.Popen[str]:
        """Start the command as the leader of its group, as a terminal does."""
        files = ["--spec", self.spec, "--artifacts", self.artifacts, "--gsm8k-dir", self.rows]
        plugins = ["-p", "no:cacheprovider", "-p", "tests.faults.proven_gates"]
        command = ["-m", "full", "--parallel", "2", "tests/full", *plugins]
        return subprocess.Popen(
            [sys.executable, "-c", PYTEST, *command, *map(str, files)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def left_over(self) -> list[str]:
        """Return the command lines of processes that still work on the artifacts."""
        found: list[str] = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found += [words] if str(self.artifacts) in words else []
        return found

    @property
    def run(self) -> Path:
        """The run's folder."""
        found = RunFolder.latest(self.artifacts, "spec")
        assert found is not None, "the session made no run"
        return found.path


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(resume_arena, "STEPS", STEPS)
    return Terminal(tmp_path)


def until_both_train(process: subprocess.Popen[str]) -> list[str]:
    """Return what was said until each arm has done two steps."""
    assert process.stdout is not None
    said: list[str] = []
    waited_for = {f"{arm} step 2/{STEPS}" for arm in (ARM, OTHER_ARM)}
    for line in process.stdout:
        said.append(line)
        waited_for = {words for words in waited_for if not line.startswith(words)}
        if not waited_for:
            return said
    pytest.fail(f"the session ended before both arms trained: {''.join(said)[-2000:]}")


def test_arms_at_once_end_at_ctrl_c_and_continue(terminal: Terminal) -> None:
    with terminal.begin() as process:
        until_both_train(process)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=ENDS_WITHIN_S)
    assert process.returncode == 2, f"exit {process.returncode}, expected 2: {said[-2000:]}"
    assert terminal.left_over() == [], "processes outlive the session"
    document = read_result(terminal.run / "result.json")
    assert (document.status, document.verdict) == ("running", None)
    assert "interrupted. Continue with: pytest -m full --spec spec.json" in document.summary

    with terminal.begin() as process:
        said, _ = process.communicate()
    assert process.returncode == 0, f"exit {process.returncode}, expected 0: {said[-2000:]}"
    for arm in (ARM, OTHER_ARM):
        assert f"{arm} continues after step" in said, f"{arm} was trained from the start: {said}"
    document = read_result(terminal.run / "result.json")
    assert document.status == "succeeded", document.summary
    false = [one for one in verify_run(terminal.run, terminal.rows) if one.outcome is Outcome.FAIL]
    assert not false, "\n".join(f"{one.name}: {one.detail}" for one in false)
    assert terminal.left_over() == [], "processes outlive the session"
