"""A stage that failed says why in one line, and a bill ends the first stage at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from test_capacity import HandClock

from harness.answer_log import LOG_VARIABLE
from harness.capacity import CapacityExhaustedError
from harness.errors import HarnessError, ServiceError
from harness.result import ResultDocument, publish, read_result
from harness.stage import run_stage
from harness.stage_failure import cause_of
from harness.stall_watch import ANSWERS
from harness.store import append_jsonl
from harness.supervision import Environment, Supervision

TRACE = """
Traceback (most recent call last):
  File "a.py", line 3, in loaded
    raise KeyError("lora_rank")
KeyError: 'lora_rank'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 9, in main
    raise tinker.UnknownError("a first line\\nand more")
tinker._exceptions.UnknownError: a first line
and more
Unclosed client session
""".splitlines()
SERVICE = {"TINKER_BASE_URL": "http://127.0.0.1:9", "TINKER_API_KEY": "the-key-of-this-test"}
OWN = "ArmError: the loop ended early | expected: 3 steps | found: 2 steps | where: arm gs1"


@pytest.mark.parametrize(
    ("exit_code", "lines", "cause"),
    [
        (1, TRACE, "tinker._exceptions.UnknownError: a first line"),
        (
            1,
            ["noise: 1", OWN, "sys:1: ResourceWarning: unclosed"],
            "ArmError: the loop ended early",
        ),
        (1, ["one", "it broke: no weights", ""], "it broke: no weights"),
        (1, ["AssertionError"], "AssertionError"),
        (1, ["    ValueError: indented, inside a quoted log", "last"], "last"),
        (70, [], "it said nothing"),
        (-9, ["step 7"], "ended by SIGKILL"),
        (-11, [OWN], "ended by SIGSEGV"),
        (-200, [], "ended by signal 200"),
    ],
)
def test_one_line_says_why_a_stage_ended(exit_code: int, lines: list[str], cause: str) -> None:
    found = cause_of(exit_code, lines)
    assert found == cause, f"{found!r}, not {cause!r}"


def nothing() -> None:
    """What there is to follow of a stage without steps."""


Run = Callable[[Environment, Path, Callable[[], None]], float]


def supervised(folder: Path, hand: HandClock, run: Run, health: str | None = None) -> None:
    """Run a first stage whose service gives this sign of life."""
    path, log = folder / "result.json", folder / "logs" / "initial-seed0-01.log"
    log.parent.mkdir()
    publish(path, ResultDocument.start("small: begun."))
    watched = Supervision(
        path, "small", 0, "pytest -m full", [].append, hand.clock(), lambda _: health
    )
    watched.stage("initial state", SERVICE, lambda: log, lambda: nothing, run, pace=ANSWERS)


def summary(folder: Path) -> str:
    return read_result(folder / "result.json").summary


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise KeyError('lora_rank')", "KeyError: 'lora_rank'"),
        (f"import sys; sys.stderr.write({OWN!r}); sys.exit(1)", "ArmError: the loop ended early"),
        ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL"),
    ],
)
def test_the_summary_names_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, says: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "made_up_stage.py").write_text(code)

    def run(environment: Environment, log: Path, poll: Callable[[], None]) -> float:
        arguments = ["run", "gs1"]
        return run_stage(
            "made_up_stage", arguments, environment=environment, log_path=log, on_poll=poll
        )

    with pytest.raises(HarnessError):
        supervised(tmp_path, HandClock(), run)
    wanted = f"stopped in initial state, the stage made_up_stage gs1 failed: {says}. Continue with"
    assert wanted in summary(tmp_path), f"{wanted!r} is not in {summary(tmp_path)!r}"


def asks_on(hand: HandClock, fault: str, at_s: float) -> Run:
    """Stand for a process whose SDK keeps asking for an hour after an answer of this kind."""

    def run(environment: Environment, log: Path, poll: Callable[[], None]) -> float:
        del log
        answers, said = Path(environment[LOG_VARIABLE]), False
        while hand.at_s < 3600.0:
            if not said and hand.at_s >= at_s:
                about = {"endpoint": "create_model", "message": "402 create_model: pay first"}
                append_jsonl(answers, {**about, "fault": fault})
                said = True
            poll()
            hand.at_s += 0.25
        return hand.at_s

    return run


@pytest.mark.parametrize(
    ("fault", "says"), [("billing", "billing to be settled"), ("gone", "lost the session")]
)
def test_a_bill_while_the_initial_state_is_made_ends_it_at_once(
    tmp_path: Path, fault: str, says: str
) -> None:
    hand = HandClock()
    with pytest.raises(ServiceError, match=says):
        supervised(tmp_path, hand, asks_on(hand, fault, at_s=5.0))
    assert hand.at_s <= 6.0, f"noticed at {hand.at_s} s; the service said it at 5 s"
    assert summary(tmp_path).startswith("small: stopped in initial state, the service ")
    assert read_result(tmp_path / "result.json").status == "running"


def test_without_capacity_for_the_initial_state_the_run_ends_after_ten_minutes(
    tmp_path: Path,
) -> None:
    hand = HandClock()
    with pytest.raises(CapacityExhaustedError):
        supervised(tmp_path, hand, asks_on(hand, "capacity", at_s=0.0))
    assert 600.0 <= hand.at_s <= 601.0, f"given up at {hand.at_s} s, not at 600 s"
    document = read_result(tmp_path / "result.json").to_json()
    assert (document["status"], document["outcome_reason"]) == ("failed", "incomplete_execution")
    assert document["capacity_block"]["comparison_steps_completed"] == 0


def test_a_dead_service_is_noticed_while_the_initial_state_is_made(tmp_path: Path) -> None:
    hand = HandClock()
    with pytest.raises(ServiceError, match="4 failures in a row"):
        supervised(tmp_path, hand, asks_on(hand, "billing", at_s=4000.0), "URLError: refused")
    assert hand.at_s <= 10.0, f"noticed after {hand.at_s} s; the SDK alone needs 300 s"
