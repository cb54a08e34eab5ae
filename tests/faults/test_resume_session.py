"""A whole experiment whose session is killed five times equals one that never was.

A session is killed while one of its requests is held (:mod:`tests.faults.resume_session`), so that
what was durable at that moment is known and not a matter of pace.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.arm import arm_folder, read_done
from harness.attempts import arm_rollouts, arm_steps, read_attempts
from harness.compare import compare_runs
from harness.digest import parse_json
from harness.gates.verdict import Outcome
from harness.store import RunFolder, read_jsonl
from harness.verify import verify_run
from tests.faults.resume_arena import ARM, OTHER_ARM, ROOT, TIMES, write_rows, write_spec
from tests.faults.resume_session import HELD

pytestmark = [pytest.mark.live, pytest.mark.slow]
GONE_WITHIN_S = 60.0


class Project:
    """A spec, its rows and the artifacts of sessions that work on it."""

    def __init__(self, folder: Path) -> None:
        self.artifacts = folder / "artifacts"
        self.rows = write_rows(folder / "rows")
        write_spec(folder)
        self.spec = folder / "spec.json"

    def session(self, moment: str = "") -> list[str]:
        """Run a session and return what it said; SIGKILL it at the moment, if there is one."""
        script = ROOT / "tests" / "faults" / "resume_session.py"
        words = [self.spec, self.artifacts, self.rows, *filter(None, [moment])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        said: list[str] = []
        with subprocess.Popen(
            [sys.executable, str(script), *map(str, words)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line.strip())
                if said[-1] == HELD:
                    process.send_signal(signal.SIGKILL)
                    break
        self.wait_for_orphans()
        assert said[-1] == (HELD if moment else "DONE"), f"{moment or 'to its end'}: {said}"
        return said

    def wait_for_orphans(self) -> None:
        """Return when no process of the session is left: stages and service end by themselves."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if str(self.artifacts).encode() not in (process / "cmdline").read_bytes():
                    continue
                descriptor = os.pidfd_open(int(process.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
            gone = select.select([descriptor], [], [], GONE_WITHIN_S)[0]
            os.close(descriptor)
            assert gone, f"process {process.name} outlives its session by {GONE_WITHIN_S:g} s"

    @property
    def run(self) -> Path:
        found = RunFolder.latest(self.artifacts, "spec")
        assert found is not None
        return found.path


def content(run: Path) -> dict[str, Any]:
    """Return what a run found, without times and addresses."""
    found: dict[str, Any] = {}
    for name in ("base", OTHER_ARM, ARM):
        rows = read_jsonl(run / "predictions" / f"{name}.jsonl")
        plain = [{**row, "checkpoint": ""} for row in rows]
        found[f"predictions {name}"] = plain
    for name in (OTHER_ARM, ARM):
        done, arm = read_done(run, name), arm_folder(run, name)
        assert done is not None
        steps = arm_steps(arm, done)
        found[f"steps {name}"] = [
            {key: value for key, value in row.items() if key not in TIMES} for row in steps
        ]
        found[f"rollouts {name}"] = list(arm_rollouts(arm, done))
    result = parse_json((run / "result.json").read_bytes(), where="result.json")
    found["result"] = [result[key] for key in ("status", "verdict", "metrics", "completed_arms")]
    return found


def test_a_session_killed_five_times_ends_as_if_it_never_was(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "killed").mkdir()
    plain, killed = Project(tmp_path / "plain"), Project(tmp_path / "killed")
    plain.session()
    killed.session("score of the base model")
    killed.session("update after a saved state")
    third = killed.session("first state of an arm")
    assert any(line.startswith(f"{OTHER_ARM} continues after step 2/") for line in third), third
    fourth = killed.session("update after the first state")
    assert not any(line.startswith(f"{ARM} continues") for line in fourth), fourth
    fifth = killed.session("score of an arm")
    assert any(line.startswith(f"{ARM} continues after step 1/") for line in fifth), fifth
    last = killed.session()
    assert last[0].endswith(": continued"), last[0]
    for arm in (OTHER_ARM, ARM):
        assert f"{arm}: already trained in this run" in last, last
    expected, found = content(plain.run), content(killed.run)
    differing = [name for name in expected if expected[name] != found[name]]
    assert not differing, f"killed and plain differ in {differing}"
    attempts = {
        arm: [(one.first_step, one.continues) for one in read_attempts(arm_folder(killed.run, arm))]
        for arm in (OTHER_ARM, ARM)
    }
    expected_attempts = {OTHER_ARM: [(0, None), (2, 1)], ARM: [(0, None), (0, None), (1, 2)]}
    assert attempts == expected_attempts, f"(first step, continues): {attempts}"
    result = parse_json((killed.run / "result.json").read_bytes(), where="result.json")
    restored = {
        name: arm["restore_count"]
        for name, arm in result["initialization_provenance"]["arms"].items()
    }
    assert restored == {OTHER_ARM: 1, ARM: 1}, restored
    parts = {part.name: part.outcome for part in compare_runs(plain.run, killed.run)}
    unequal = {name: str(found) for name, found in parts.items() if found is not Outcome.PASS}
    # No gate ran in either session, and what is missing is unknown to compare.
    assert unequal == {"content": "unknown", "gates": "unknown"}, unequal
    checks = verify_run(killed.run, killed.rows)
    false = [f"{one.name}: {one.detail}" for one in checks if one.outcome is Outcome.FAIL]
    assert not false, false
