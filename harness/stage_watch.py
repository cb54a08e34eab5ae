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

HEALTH_INTERVAL_S = 2.0
HEALTH_FAILURES = 4
"""Failures in a row that mean the service is gone: about eight seconds of refused connections."""
STALL_FACTOR = 20.0
"""How many times the longest measured step a step may take before it counts as stalled."""
STALL_FLOOR_S = 600.0
STALL_START_S = 1800.0
"""Limit while no step has been measured: loading, sampling and compiling for the first time."""

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


class StallWatch:
    """Notices that no step ends although the service is healthy.

    Args:
        clock: time.
        where: the stage, for the message.
        steps: steps done before the stage began.
    """

    def __init__(self, clock: Clock, where: str, steps: int) -> None:
        self.clock = clock
        self.where = where
        self.steps = steps
        self.longest_step_s: float | None = None
        self._last_s = clock.now_s()
        self._measuring = False

    @property
    def limit_s(self) -> float:
        """How long no step may end, from the longest step that was measured."""
        if self.longest_step_s is None:
            return STALL_START_S
        return max(STALL_FLOOR_S, STALL_FACTOR * self.longest_step_s)

    def poll(self, steps: int, *, excused: bool) -> None:
        """Compare progress with the limit.

        Args:
            steps: steps done by now.
            excused: whether the service refuses for want of capacity, which has its own limits.

        Raises:
            ServiceError: when no step ended for longer than the limit.
        """
        now_s = self.clock.now_s()
        if steps != self.steps:
            # The time to the first step holds the start too, so it measures no step.
            if self._measuring:
                self.longest_step_s = max(self.longest_step_s or 0.0, now_s - self._last_s)
            self.steps, self._last_s, self._measuring = steps, now_s, True
        elif excused:
            self._last_s, self._measuring = now_s, False
        elif now_s - self._last_s > self.limit_s:
            longest = self.longest_step_s
            measured = "none measured" if longest is None else f"longest {longest:.1f} s"
            raise ServiceError(
                "the stage makes no progress although the service is healthy",
                expected=f"a step within {self.limit_s:.0f} s (steps so far: {measured})",
                found=f"no new step for {now_s - self._last_s:.0f} s after {steps} steps",
                where=self.where,
                fix="look at the service's queue, then run the same command: it continues",
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
        trains: whether the stage makes steps; only then can it stall.
        count_own: returns the stage's own steps, where others train beside it.
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
        trains: bool,
        count_own: Callable[[], int] | None = None,
    ) -> None:
        self.where = where
        self.clock = clock
        self.capacity = capacity
        self.count_steps = count_steps
        self.sessions: list[str] = []
        self.health = HealthWatch(health, clock, where)
        self.count_own = count_own or count_steps
        self.stall = StallWatch(clock, where, self.count_own()) if trains else None
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
            "stall": self.stall
            and {
                "limit_s": self.stall.limit_s,
                "longest_step_s": self.stall.longest_step_s,
            },
        }
