"""A stage is a process: its failure shows its own last words, its end is certain."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from harness import stage
from harness.errors import ArmError, DocumentError
from harness.stage import LineFollower, run_stage
from harness.step_line import SeenStep, StepProgress, coloured_line, plain_line

TALKS = "import sys\nprint('first words')\nprint('last words', sys.argv[1:])\n"
FAILS = "import sys\nfor i in range(40): print('line', i)\nsys.exit('it broke: no weights')\n"
WAITS = "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\ntime.sleep(15)\n"
DEAF = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS
SHOWS = "import os\nprint(os.environ['TINKER_BASE_URL'], os.environ['OMP_NUM_THREADS'])\n"


@pytest.fixture
def stage_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes a stage of some code and runs it."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(code: str, *arguments: str, on_poll: Any = lambda: None, **environment: str) -> float:
        (tmp_path / "made_up_stage.py").write_text(code)
        return run_stage(
            "made_up_stage",
            arguments,
            environment=environment,
            log_path=tmp_path / "logs" / "stage.log",
            on_poll=on_poll,
        )

    return run


def log_of(tmp_path: Path) -> str:
    return (tmp_path / "logs" / "stage.log").read_text()


def test_a_stages_output_goes_to_its_log(stage_module: Any, tmp_path: Path) -> None:
    assert stage_module(TALKS, "run", "arm") > 0.0
    assert log_of(tmp_path) == "first words\nlast words ['run', 'arm']\n"


def test_a_second_attempt_is_added_to_the_log(stage_module: Any, tmp_path: Path) -> None:
    stage_module(TALKS)
    stage_module(TALKS)
    assert log_of(tmp_path).count("first words") == 2


def test_a_stage_gets_the_service_and_one_thread(stage_module: Any, tmp_path: Path) -> None:
    stage_module(SHOWS, TINKER_BASE_URL="http://127.0.0.1:9")
    assert log_of(tmp_path) == "http://127.0.0.1:9 1\n"


def test_a_failed_stage_reports_its_code_and_the_end_of_its_log(stage_module: Any) -> None:
    with pytest.raises(ArmError) as failure:
        stage_module(FAILS, "run", "gs1_small")
    message = str(failure.value)
    assert "the stage made_up_stage gs1_small failed" in message
    assert "found: exit code 1" in message
    assert "it broke: no weights" in message
    assert "line 39" in message
    assert "line 5\n" not in message, "only the end of the log belongs in a message"
    assert "do: read stage.log" in message


def test_progress_is_looked_at_once_more_after_the_end(stage_module: Any, tmp_path: Path) -> None:
    """A stage faster than one poll still shows its lines."""
    seen: list[bool] = []
    writes = f"open({str(tmp_path / 'done')!r}, 'w').close()"
    stage_module(writes, on_poll=lambda: seen.append((tmp_path / "done").exists()))
    assert seen[-1] is True


@pytest.mark.parametrize(
    ("code", "ending"),
    [(WAITS, signal.SIGTERM), (DEAF, signal.SIGKILL)],
    ids=["asked", "deaf to the request"],
)
def test_an_interrupt_ends_the_stage(
    stage_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, ending: int
) -> None:
    started = tmp_path / "started"
    created: list[Any] = []
    popen = stage.subprocess.Popen

    def remembered(*args: Any, **kwargs: Any) -> Any:
        created.append(popen(*args, **kwargs))
        return created[0]

    def interrupt() -> None:
        if started.exists():
            raise KeyboardInterrupt

    monkeypatch.setattr(stage.subprocess, "Popen", remembered)
    monkeypatch.setattr(stage, "_POLL_S", 0.02)
    monkeypatch.setattr(stage, "_GRACE_S", 0.2)
    with pytest.raises(KeyboardInterrupt):
        stage_module(code, str(started), on_poll=interrupt)
    (process,) = created
    assert process.returncode == -ending, "the child outlived the interrupt, or was not asked first"
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_a_line_still_being_written_waits(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    follower = LineFollower(path)
    assert list(follower.new_rows()) == [], "a file that is not there yet has no rows"
    path.write_bytes(b'{"step": 0}\n{"step')
    assert list(follower.new_rows()) == [{"step": 0}]
    assert list(follower.new_rows()) == [], "the torn line is no row"
    with path.open("ab") as stream:
        stream.write(b'": 1}\n{"step": 2}\n')
    assert list(follower.new_rows()) == [{"step": 1}, {"step": 2}]


def test_a_torn_letter_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    whole = '{"item": "é"}\n'.encode()
    path.write_bytes(whole[:11])
    follower = LineFollower(path)
    assert list(follower.new_rows()) == []
    path.write_bytes(whole)
    assert list(follower.new_rows()) == [{"item": "é"}]


def test_a_complete_line_that_is_no_json_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text('{"step": NaN}\n')
    with pytest.raises(DocumentError, match=r"steps\.jsonl"):
        list(LineFollower(path).new_rows())


def step(number: int, seconds: float) -> dict[str, Any]:
    return {
        "arm": "gs1_small",
        "step": number,
        "reward_mean": 0.25,
        "accuracy": 0.5,
        "format": 0.75,
        "truncation": 0.125,
        "loss_sum": -12.34,
        "sampler_trainer_gap": {"max_abs": 1.2e-5},
        "step_s": seconds,
    }


def test_progress_is_one_line_a_step_with_the_time_left(tmp_path: Path) -> None:
    """After 10 s for the first of 4 steps, 30 s are left; after 2 s for the second, 12 s."""
    golden = Path(__file__).parent / "golden" / "progress.txt"
    said: list[str] = []
    path = tmp_path / "steps.jsonl"
    progress = StepProgress(path, 4, [lambda step: said.append(plain_line(step))])
    progress()
    for number, seconds in enumerate((10.0, 2.0)):
        with path.open("a") as stream:
            stream.write(json.dumps(step(number, seconds)) + "\n")
        progress()
        progress()
    assert "\n".join(said) + "\n" == golden.read_text()


def seen(done: int) -> SeenStep:
    return SeenStep("gs1_small", done, 4, 90.0, step(done - 1, 2.0))


@pytest.mark.parametrize("columns", [40, 80, 120, 200])
def test_a_coloured_line_is_one_row_of_the_terminal(columns: int) -> None:
    line = coloured_line(seen(1), columns)
    assert "\x1b[" in line
    text = re.sub(r"\x1b\[[0-9;]*m", "", line)
    assert "\n" not in text
    assert len(text) <= columns, f"{len(text)} characters in {columns} columns: {text}"
    assert text.startswith("gs1_small 1/4 ")
    assert ("━" in text) == (columns >= 100)
    if columns == 200:
        # The same numbers as the plain line, the time left first.
        assert set(plain_line(seen(1)).split()) - {"step"} <= set(text.split())


def test_the_bar_is_as_long_as_the_work_done() -> None:
    green = re.findall(r"\x1b\[32m(━*)\x1b", coloured_line(seen(1), 200))
    assert [len(bar) for bar in green if bar] == [4], "a quarter of 16 columns"
    green = re.findall(r"\x1b\[32m(━*)\x1b", coloured_line(seen(4), 200))
    assert [len(bar) for bar in green if bar] == [16]
