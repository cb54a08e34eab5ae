"""Two processes, one run: the second is refused by name, a dead one's lock is taken over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mini_project import ROOT

from harness.errors import StoreError
from harness.run_lock import acquire, lock_path

HOLDER = """
import sys
from pathlib import Path
from harness.run_lock import acquire
acquire(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def holder(run: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str], *, kill: bool) -> None:
    if kill:
        process.kill()
    process.communicate()


def test_a_second_process_is_refused_with_both_named(tmp_path: Path) -> None:
    run = tmp_path / "run-1"
    other = holder(run)
    try:
        with pytest.raises(StoreError, match="another process works on this run") as refusal:
            acquire(run)
    finally:
        end(other, kill=False)
    message = str(refusal.value)
    assert f"held by process {other.pid} on " in message
    assert "free for process " in message
    assert message.count("started 20") == 2


def test_the_lock_of_a_killed_process_is_taken_over_and_said(tmp_path: Path) -> None:
    run = tmp_path / "run-1"
    other = holder(run)
    end(other, kill=True)
    lock = acquire(run)
    assert lock is not None
    assert f"process {other.pid} on " in lock.taken_over
    lock.release()


def test_a_process_that_ended_well_leaves_nothing_to_say(tmp_path: Path) -> None:
    run = tmp_path / "run-1"
    end(holder(run), kill=False)
    lock = acquire(run)
    assert lock is not None
    assert lock.taken_over == ""
    lock.release()
    lock.release()
    assert lock_path(run).read_bytes() == b""


def test_a_process_does_not_refuse_itself_and_runs_do_not_share(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "run-1")
    other = acquire(tmp_path / "run-2")
    assert lock is not None
    assert other is not None
    assert acquire(tmp_path / "run-1") is None
    lock.release()
    other.release()


def test_a_torn_lock_file_is_no_obstacle(tmp_path: Path) -> None:
    run = tmp_path / "run-1"
    lock_path(run).write_text('{"pid": 12')
    lock = acquire(run)
    assert lock is not None
    assert "process unknown" in lock.taken_over
    lock.release()
