"""A stage whose parent is killed ends by itself: no arm trains unwatched."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mini_project import ROOT

from harness.parent_watch import ORPHANED_EXIT_CODE, WATCH_VARIABLE

STAGE = """
import os, time
from harness.parent_watch import end_with_parent
end_with_parent()
os.write(int(os.environ["READY"]), b"%d" % os.getpid())
time.sleep(60)
"""
PARENT = """
import os, pathlib, subprocess, sys
from harness import stage
spawn = subprocess.Popen
fd = int(os.environ["READY"])
stage.subprocess.Popen = lambda *a, **k: spawn(*a, **k, pass_fds=[fd])
stage.run_stage("waiting_stage", [], environment={}, log_path=pathlib.Path(sys.argv[1]),
                on_poll=lambda: None)
"""


def ended(descriptor: int, timeout_s: float) -> bool:
    """Return whether the pipe's last writer is gone."""
    while select.select([descriptor], [], [], timeout_s)[0]:
        if not os.read(descriptor, 100):
            return True
    return False


@pytest.mark.parametrize("watched", ["1", "0"])
def test_a_stage_ends_when_its_parent_is_killed(tmp_path: Path, watched: str) -> None:
    (tmp_path / "waiting_stage.py").write_text(STAGE)
    code = PARENT.replace(
        "environment={}", f"environment={{'HARNESS_EXIT_WITH_PARENT': '{watched}'}}"
    )
    reading, writing = os.pipe()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}", "READY": str(writing)}
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "stage.log")],
        env=environment,
        pass_fds=[writing],
    )
    os.close(writing)
    stage = int(os.read(reading, 100))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    try:
        # The pipe closes when the stage is gone; an unwatched one outlives its parent.
        assert ended(reading, 20.0 if watched == "1" else 0.5) is (watched == "1")
    finally:
        os.close(reading)
        if watched == "0":
            os.kill(stage, signal.SIGKILL)


def test_the_stage_says_why_it_ended() -> None:
    code = "import time, harness.parent_watch as w; w.end_with_parent(); time.sleep(60)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), WATCH_VARIABLE: "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode == ORPHANED_EXIT_CODE
    assert b"watched this stage is gone" in done.stderr
