"""Watches a running stage from outside: is the service alive, does it refuse, is there progress?

Polled a few times a second by the process that runs the stage; raising ends the stage. Time comes
from a clock that is given, so every limit is tested without waiting. A dead service is noticed in
seconds (the SDK needs five minutes), a bill or a lost session at once (the SDK pauses an hour).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.capacity import CapacityError, CapacityState
from harness.errors import ServiceError
from harness.service_fault import Fault, FaultKind
from harness.stage import LineFollower
from harness.stall_watch import Pace, StallWatch

HEALTH_INTERVAL_S = 2.0
HEALTH_FAILURES = 4
"""Failures in a row that mean the service is gone: about eight seconds of refused connections."""
AskHealth = Callable[[], str | None]
"""Returns None for a sign of life, else what happened instead."""


@dataclass(frozen=True)
class Clock:
    """Where time comes from, and how it passes."""

    now_s: Callable[[], float] = time.monotonic
    utc: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep


class HealthWatch:
    """Asks the service for a sign of life every two seconds.

    Args:
        ask: one question with a short limit.
        clock: time.
        where: the stage, for the message.
    """

    def __init__(self, ask: AskHealth, clock: Clock, where: str) -> None:
        self.ask = ask
        self.clock = clock
        self.where = where
        self.asked = 0
        self.failed = 0
        self._in_a_row = 0
        self._next_s = clock.now_s() + HEALTH_INTERVAL_S

    def poll(self) -> None:
        """Ask if it is time.

        Raises:
            ServiceError: when the service did not answer several times in a row.
        """
        if self.clock.now_s() < self._next_s:
            return
        failure = self.ask()
        self._next_s = self.clock.now_s() + HEALTH_INTERVAL_S
        self.asked += 1
        self.failed += failure is not None
        self._in_a_row = self._in_a_row + 1 if failure else 0
        if failure and self._in_a_row >= HEALTH_FAILURES:
            raise ServiceError(
                "the training service stopped answering while a stage ran",
                expected="a sign of life (healthz)",
                found=f"{self._in_a_row} failures in a row, the last: {failure}",
                where=self.where,
                fix="start the service again, then run the same command: it continues",
            )


class StageWatch:
    """Everything that is watched while one stage's process runs.

    Args:
        where: the stage and its arm.
        answers: file that the stage writes what the service answered to.
        health: the service's sign of life.
        capacity: what is refused, over all stages of the run.
        count_steps: returns the run's steps.
        clock: time.
        pace: what the stage's progress is; None: it cannot stall.
        count_own: returns the stage's own progress; None: the service's first good answers.
    """

    def __init__(
        self,
        where: str,
        answers: Path,
        health: AskHealth,
        capacity: CapacityState,
        count_steps: Callable[[], int],
        clock: Clock,
        *,
        pace: Pace | None,
        count_own: Callable[[], int] | None = None,
    ) -> None:
        self.where = where
        self.clock = clock
        self.capacity = capacity
        self.count_steps = count_steps
        self.sessions: list[str] = []
        self.health = HealthWatch(health, clock, where)
        self.answered = 0
        self.count_own = count_own or (lambda: self.answered)
        self.stall = pace and StallWatch(clock.now_s, where, pace, self.count_own())
        self._answers = LineFollower(answers)

    def poll(self) -> None:
        """Look at everything once.

        Raises:
            CapacityError: when the run was refused for as long as it may be.
            ServiceError: when the stage should stop for another reason.
        """
        with self.capacity.lock:
            for row in self._answers.new_rows():
                self._answer(row)
            steps = self.count_steps()
            if steps != self.capacity.steps:
                self.capacity.progressed(steps)
            refusal = self.capacity.refusal
            if refusal and self.capacity.is_hopeless(self.clock.now_s()):
                raise CapacityError("the service keeps refusing", found=refusal.message)
        if self.stall is not None:
            self.stall.poll(self.count_own(), excused=refusal is not None)
        self.health.poll()

    def all_sessions(self) -> list[str]:
        """Return every session the stage opened, those of lines not yet looked at included."""
        for row in self._answers.new_rows():
            if "session" in row:
                self.sessions.append(row["session"])
        return self.sessions

    def _answer(self, row: Mapping[str, Any]) -> None:
        if "session" in row:
            self.sessions.append(row["session"])
        elif "answered" in row:
            self.answered += 1
            self.capacity.answered(row["endpoint"])
        else:
            self._fault(row["endpoint"], Fault(FaultKind(row["fault"]), row["message"]))

    def _fault(self, endpoint: str, fault: Fault) -> None:
        if fault.kind is FaultKind.CAPACITY:
            self.capacity.refused(endpoint, fault.message, self.clock.now_s())
            if endpoint == "stage":
                raise CapacityError("the stage ended for want of capacity", found=fault.message)
        else:
            raise fault.error(self.where)

    def record(self) -> dict[str, Any]:
        """Return the limits that were in force and what was seen, for the run's folder."""
        return {
            "stage": self.where,
            "health": {
                "interval_s": HEALTH_INTERVAL_S,
                "failures_allowed": HEALTH_FAILURES - 1,
                "asked": self.health.asked,
                "failed": self.health.failed,
            },
            "stall": self.stall and self.stall.record(),
        }
