"""A mirror gets the steps' numbers and nothing secret; losing it is said once and stops nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mini_project import ROOT, make_project

from harness.errors import UsageError
from harness.step_line import StepProgress
from harness.step_mirror import (
    PATH_VARIABLE,
    ProcessMirror,
    environment_for,
    feed,
    open_mirror,
    require_tracker,
    step_numbers,
)

NAMES = ("local", "run-1", "run-1.gs1_small.attempt-01")
ROW: dict[str, Any] = {
    "arm": "gs1_small",
    "step": 0,
    "reward_mean": 0.25,
    "step_s": 2.0,
    "activation": None,
    "sampler": "tinker://x",
    "advantage": {"mean": -0.5, "max": 1},
    "restored": True,
}
NUMBERS = {"reward_mean": 0.25, "step_s": 2.0, "advantage/mean": -0.5, "advantage/max": 1.0}
FAKE = """
import json, pathlib

class Run:
    def __init__(self, **named):
        self.lines = [named]
    def log(self, metrics, step):
        self.lines.append([step, metrics])
    def finish(self):
        pathlib.Path("seen.json").write_text(json.dumps(self.lines))

def init(**named):
    return Run(**named)
"""
BROKEN = "def init(**named):\n    raise RuntimeError('no login here')\n"
DEAF = "import time\ndef init(**named):\n    time.sleep(60)\n"


class MemoryMirror:
    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self.logged.append((step, dict(numbers)))

    def close(self) -> None:
        """Nothing is held."""


def test_a_row_becomes_its_finite_numbers() -> None:
    assert step_numbers(ROW | {"loss_sum": float("nan")}) == NUMBERS


def test_every_step_that_is_seen_is_copied_once(tmp_path: Path) -> None:
    mirror = MemoryMirror()
    path = tmp_path / "steps.jsonl"
    progress = StepProgress(path, 3, [feed(mirror)])
    for step in range(2):
        with path.open("a") as stream:
            stream.write(json.dumps(ROW | {"step": step}) + "\n")
        progress()
        progress()
    assert mirror.logged == [(0, NUMBERS), (1, NUMBERS)]


@pytest.fixture
def said() -> list[str]:
    return []


def mirror_of(
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: list[str],
    close_s: float = 30.0,
) -> ProcessMirror:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "trackio.py").write_text(code)
    monkeypatch.setenv(PATH_VARIABLE, str(packages))
    return ProcessMirror("trackio", NAMES, tmp_path / "mirror", said.append, close_s)


def test_the_tracker_gets_names_and_steps_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    mirror = mirror_of(FAKE, tmp_path, monkeypatch, said)
    for step in range(3):
        mirror.log(step, NUMBERS)
    mirror.close()
    init, *steps = json.loads((tmp_path / "mirror" / "seen.json").read_text())
    assert (init["project"], init["group"], init["name"]) == NAMES
    assert (init["auto_log_gpu"], init["auto_log_cpu"]) == (False, False)
    assert steps == [[step, NUMBERS] for step in range(3)]
    assert said == []


def test_a_tracker_that_breaks_is_said_once_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    mirror = mirror_of(BROKEN, tmp_path, monkeypatch, said)
    mirror.log(0, NUMBERS)
    mirror.close()
    mirror.log(1, NUMBERS)
    assert len(said) == 1, said
    assert said[0].startswith("mirror trackio: it ended ")
    assert said[0].endswith("RuntimeError: no login here; the run goes on without it")


def test_a_tracker_that_reads_nothing_holds_no_step_up_and_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """Far more than a pipe holds is handed on; nobody reads, and yet every call returns."""
    mirror = mirror_of(DEAF, tmp_path, monkeypatch, said, close_s=0.5)
    for step in range(20):
        mirror.log(step, {f"number_{index}": 0.5 for index in range(1000)})
    mirror.close()
    assert said == ["mirror trackio: it did not end within 0.5 s; the run goes on without it"]


def test_a_mirror_that_cannot_start_is_said_and_no_error(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "file").touch()
    assert open_mirror("trackio", NAMES, tmp_path / "file", said.append) is None
    assert said == ["mirror trackio: not started: File exists; the run goes on without it"]


def test_a_tracker_is_given_no_secret_but_its_own() -> None:
    secrets = {"TINKER_API_KEY": "k", "WANDB_API_KEY": "w", "HF_TOKEN": "h", "MLFLOW_X": "m"}
    own = {"trackio": {"HF_TOKEN"}, "mlflow": set(), "wandb": {"WANDB_API_KEY"}}
    for kind, expected in own.items():
        found = environment_for(kind, {**secrets, "PATH": "/bin"})
        shown = {name for name in found if name in secrets} - {"MLFLOW_X"}
        assert shown == expected, f"{kind} gets {sorted(shown)}"
        assert found["PATH"] == "/bin"
        assert str(ROOT) in found["PYTHONPATH"].split(os.pathsep)


def test_a_tracker_that_is_not_installed_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb.py").touch()
    require_tracker("wandb", {PATH_VARIABLE: str(tmp_path)})
    monkeypatch.setattr("sys.path", [str(tmp_path / "empty")])
    with pytest.raises(UsageError, match=r"pip install --target DIR trackio"):
        require_tracker("trackio", {PATH_VARIABLE: str(tmp_path)})


def test_the_session_refuses_a_tracker_it_does_not_have(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = SimpleNamespace(find_spec=lambda *_: None)
    monkeypatch.setattr("harness.step_mirror.PathFinder", nothing)
    make_project(pytester)
    result = pytester.runpytest_inprocess("--mirror", "trackio")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--mirror trackio needs the package trackio*"])


TRACKIO = PathFinder.find_spec("trackio", [os.environ.get(PATH_VARIABLE, ""), *sys.path])
INSTALL = f"pip install --target DIR trackio; {PATH_VARIABLE}=DIR pytest -m slow -k trackio"
READ_BACK = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage
print(json.dumps(SQLiteStorage.get_logs(sys.argv[1], sys.argv[2])))
"""


@pytest.mark.slow
@pytest.mark.skipif(TRACKIO is None, reason=f"Run: {INSTALL}")
def test_trackio_itself_holds_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    mirror = ProcessMirror("trackio", NAMES, tmp_path / "mirror", said.append)
    for step in range(3):
        mirror.log(step, NUMBERS)
    mirror.close()
    assert said == []
    read = [sys.executable, "-c", READ_BACK, NAMES[0], NAMES[2]]
    run = subprocess.run(
        read,
        check=True,
        capture_output=True,
        text=True,
        env=environment_for("trackio", os.environ),
    )
    found = json.loads(run.stdout)
    assert [row["step"] for row in found] == [0, 1, 2]
    assert all(NUMBERS.items() <= row.items() for row in found), found
