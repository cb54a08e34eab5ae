"""Disk full, no permission, another version, a clock that went back: said, and not damaged."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mini_project import ROOT
from small_run import BINDING, plan_run

import harness.durable
from harness.errors import HarnessError, StoreError
from harness.gates.catalog import gate_entry
from harness.gates.evidence import EvidenceWriter, read_history
from harness.gates.standing import standing_of
from harness.gates.verdict import Outcome
from harness.plan import PLAN_NAME, PlanVersionError, read_plan
from harness.result import ResultDocument, publish, read_result
from harness.stall_watch import ANSWERS
from harness.step_count import StepCounter
from harness.stopping import continue_command, publish_stopped
from harness.store import append_jsonl, read_jsonl, write_json_atomic
from harness.supervision import Supervision

FULL_DISK = """
import sys
from pathlib import Path
from harness.errors import StoreError
from harness.store import append_jsonl
try:
    while True:
        append_jsonl(Path(sys.argv[1]), {"text": "x" * 700})
except StoreError as error:
    print(error)
"""


def limit_files() -> None:
    """The kernel refuses what goes beyond 4 KiB in a file, in the middle of a line."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def test_a_full_disk_takes_no_part_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)],
        cwd=ROOT,
        preexec_fn=limit_files,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "a run's file cannot be read or written | found: File too large" in done.stdout
    assert len(read_jsonl(path)) == 5, "whole lines before the limit"
    append_jsonl(path, {"text": "there is space again"})
    assert len(read_jsonl(path)) == 6


def refusing(code: int) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_a_result_that_cannot_be_replaced_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path = tmp_path / "result.json"
    publish(path, ResultDocument.start("small: begun.").with_metrics({"accuracy": 0.25}))
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(harness.durable, "write_all", refusing(code))
        with pytest.raises(StoreError, match=os.strerror(code)) as error:
            publish_stopped(path, "small", "arm gs1", "a fault", "pytest -m full")
    assert "result.json" in str(error.value)
    assert path.read_bytes() == before
    assert [name.name for name in tmp_path.iterdir()] == ["result.json"], "nothing is left beside"


def test_gate_evidence_on_a_full_disk_is_a_clear_error_and_the_rest_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = EvidenceWriter(tmp_path, "spec", BINDING, {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refusing(errno.ENOSPC))
        with pytest.raises(StoreError, match="No space left on device"):
            writer.gate_started("stop_reasons")
    writer.close()
    (session,) = read_history(tmp_path)
    assert session.broken == ""


@pytest.mark.parametrize("version", [0, 2, "1", None, True])
def test_a_run_of_another_version_is_refused_by_version(tmp_path: Path, version: object) -> None:
    run = plan_run(tmp_path)
    write_json_atomic(run.folder / PLAN_NAME, {"version": version, "other": "layout"})
    with pytest.raises(PlanVersionError, match="expected: version 1") as error:
        read_plan(run.folder, tmp_path / "rows")
    assert f"found: version {version!r}" in str(error.value)
    newer = version == 2
    assert ("a newer harness wrote" if newer else "--fresh") in error.value.fix


@pytest.mark.parametrize("ahead", [timedelta(minutes=1), timedelta(days=400)])
@pytest.mark.parametrize("gate_id", ["advantage_properties", "stop_reasons"])
def test_evidence_from_the_future_proves_nothing(
    tmp_path: Path, ahead: timedelta, gate_id: str
) -> None:
    writer = EvidenceWriter(tmp_path, "spec", BINDING, {})
    measured = [{"name": "error", "value": 0.5, "rule": {"at_most": 1.0}, "where": ""}]
    writer.gate_finished(gate_id, {"outcome": "pass", "reason": "", "measures": measured})
    writer.closing(BINDING)
    writer.close()
    history = read_history(tmp_path)
    now = datetime.now(UTC)
    proven = standing_of(gate_entry(gate_id), history, BINDING, now)
    assert proven.outcome is Outcome.PASS, proven.reason
    back = standing_of(gate_entry(gate_id), history, BINDING, now - ahead)
    assert back.outcome is Outcome.UNKNOWN, f"evidence {ahead} ahead of the clock counts"
    assert back.reason.startswith("the clock went back: evidence is "), back.reason


SERVICE = {"TINKER_BASE_URL": "http://127.0.0.1:9", "TINKER_API_KEY": "the-key-of-this-test"}


def nothing() -> None:
    """What there is to follow of a stage without steps."""


def stage(watched: Supervision, folder: Path, work: Callable[[], None]) -> None:
    """Run work as a stage's process would be run."""

    def run(environment: object, log: Path, on_poll: object) -> float:
        del environment, log, on_poll
        work()
        return 0.0

    log = folder / "logs" / "initial.log"
    watched.stage("initial state", SERVICE, lambda: log, lambda: nothing, run, pace=ANSWERS)


def supervision(folder: Path, said: list[str]) -> Supervision:
    path = folder / "result.json"
    publish(path, ResultDocument.start("small: begun.").with_metrics({"accuracy": 0.25}))
    return Supervision(path, "small", 0, "pytest -m full", said.append)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (StoreError("a run's file cannot be written. Really", found="No space"), "Really"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_a_run_that_stopped_says_why_and_how_to_go_on(
    tmp_path: Path, error: BaseException, says: str
) -> None:
    def work() -> None:
        raise error

    with pytest.raises(type(error)):
        stage(supervision(tmp_path, []), tmp_path, work)
    document = read_result(tmp_path / "result.json")
    assert document.status == "running"
    assert document.summary.startswith("small: stopped in initial state, ")
    assert says in document.summary
    assert document.summary.endswith("Continue with: pytest -m full.")
    assert document.metrics.model_dump()["accuracy"] == 0.25, "a number got lost"


def test_a_result_that_cannot_be_written_does_not_hide_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = supervision(tmp_path, [])

    def work() -> None:
        raise HarnessError("the first cause")

    monkeypatch.setattr(harness.durable, "write_all", refusing(errno.ENOSPC))
    with pytest.raises(HarnessError, match="the first cause") as error:
        stage(watched, tmp_path, work)
    assert "No space left" in "".join(error.value.__notes__)


def test_the_command_that_continues_names_no_place_on_this_machine(tmp_path: Path) -> None:
    default = "specs/local.json"
    assert continue_command(tmp_path, tmp_path / default, default) == "pytest -m full"
    inside = continue_command(tmp_path, tmp_path / "specs" / "b.json", default)
    assert inside == "pytest -m full --spec specs/b.json"
    assert str(tmp_path) not in continue_command(ROOT, tmp_path / "c.json", default)


def test_steps_are_counted_once_over_attempts_and_without_a_torn_line(tmp_path: Path) -> None:
    count = StepCounter(tmp_path)
    assert count() == 0
    for attempt, steps in ((1, [0, 1, 2]), (2, [0, 1, 2, 3])):
        folder = tmp_path / "arms" / "gs1" / f"attempt-{attempt:02d}"
        folder.mkdir(parents=True)
        lines = "".join(json.dumps({"step": step}) + "\n" for step in steps)
        (folder / "steps.jsonl").write_text(lines + '{"step": 9')
    assert count() == 4, "a step that two attempts trained is one step"
    shutil.copytree(tmp_path / "arms" / "gs1", tmp_path / "arms" / "grpo")
    assert count() == 8
