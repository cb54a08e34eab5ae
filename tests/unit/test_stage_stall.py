"""A stage that hangs on a healthy service is ended, by what its own progress is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from test_capacity import HandClock

from harness.errors import ServiceError
from harness.result import ResultDocument, publish, read_result
from harness.stage_runner import PACES
from harness.stall_watch import RowCounter
from harness.store import append_jsonl
from harness.supervision import Supervision

SERVICE = {"TINKER_BASE_URL": "http://127.0.0.1:9", "TINKER_API_KEY": "the-key-of-this-test"}
Process = Callable[[Callable[[], None]], None]


class Stages:
    """A run's stages under supervision: what their processes do is done by hand."""

    def __init__(self, folder: Path) -> None:
        self.hand = HandClock()
        self.folder = folder
        publish(folder / "result.json", ResultDocument.start("small: begun."))
        self.supervision = Supervision(
            folder / "result.json",
            "small",
            0,
            "pytest -m full",
            [].append,
            self.hand.clock(),
            lambda _: None,
        )

    def run(self, module: str, arm: str | None, during: Process) -> None:
        """Run a stage's process, which is ``during``; it is given what polls."""

        def process(environment: object, log: Path, poll: Callable[[], None]) -> float:
            del environment, log
            during(poll)
            return 0.0

        log = self.folder / "logs" / "stage.log"
        self.supervision.stage(
            "a stage",
            SERVICE,
            lambda: log,
            lambda: lambda: None,
            process,
            pace=PACES[module],
            arm_name=arm,
        )


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    return Stages(tmp_path)


def test_a_score_stalls_by_its_own_rows_of_all_its_tries(stages: Stages) -> None:
    parts = stages.folder / "predictions" / "parts"
    parts.mkdir(parents=True)
    append_jsonl(parts / "gs1-01.jsonl", {"item_id": "a"})
    hand = stages.hand

    def score(poll: Callable[[], None]) -> None:
        for item in range(3):
            append_jsonl(parts / "gs1-02.jsonl", {"item_id": str(item)})
            hand.at_s += 50.0
            poll()
        # Rows of another arm are no progress of this one.
        for item in range(11):
            append_jsonl(parts / "grpo-01.jsonl", {"item_id": str(item)})
            hand.at_s += 100.0
            poll()

    with pytest.raises(ServiceError, match=r"no new row for 1100 s after 4 rows") as stall:
        stages.run("harness.evaluate", "gs1", score)
    assert "within 1000 s" in stall.value.expected, "20 times the longest gap of 50 s"
    summary = read_result(stages.folder / "result.json").summary
    assert summary.startswith("small: stopped in a stage, the stage makes no progress"), summary


@pytest.mark.parametrize("module", sorted(PACES))
def test_every_stage_that_hangs_on_a_healthy_service_is_ended(stages: Stages, module: str) -> None:
    def hang(poll: Callable[[], None]) -> None:
        for _ in range(4000):
            stages.hand.at_s += 1.0
            poll()

    arm = None if module == "harness.initial_state" else "gs1"
    with pytest.raises(ServiceError, match="no progress although the service is healthy"):
        stages.run(module, arm, hang)
    assert stages.hand.at_s == 1801.0, f"noticed after {stages.hand.at_s} s"


def test_a_row_that_is_being_written_does_not_count(tmp_path: Path) -> None:
    parts = tmp_path / "predictions" / "parts"
    parts.mkdir(parents=True)
    count = RowCounter(tmp_path, "gs1")
    assert count() == 0
    (parts / "gs1-01.jsonl").write_bytes(b'{"item_id": "a"}\n{"item_id"')
    assert count() == 1
    (parts / "gs1-02.jsonl").write_bytes(b'{"item_id": "b"}\n{"item_id": "c"}\n')
    assert count() == 3
