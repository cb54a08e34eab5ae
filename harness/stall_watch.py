"""Notices that a stage makes no progress although the service is healthy.

Progress is what only a working service lets a stage do: steps of an arm, rows of a score, and for
the initial state, which leaves nothing behind before its end, the service's first good answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ServiceError
from harness.evaluation_parts import parts_of

STALL_FACTOR = 20.0
"""How many times the longest measured gap a piece of progress may take before it is a stall."""
STALL_FLOOR_S = 600.0
STALL_START_S = 1800.0
"""Limit while no gap has been measured: loading, sampling and compiling for the first time."""


@dataclass(frozen=True)
class Pace:
    """What a stage's progress is counted in.

    Attributes:
        unit: one piece of it.
        measured: whether the gaps between two pieces say how long the next may take. First answers
            of different endpoints come at no pace, so that their limit is always the first one.
    """

    unit: str
    measured: bool = True


STEPS, ROWS, ANSWERS = Pace("step"), Pace("row"), Pace("answer", measured=False)


class StallWatch:
    """Compares a stage's progress with its limit.

    Args:
        now_s: the clock.
        where: the stage, for the message.
        pace: what is counted.
        done: how many there were before the stage began.
    """

    def __init__(self, now_s: Callable[[], float], where: str, pace: Pace, done: int) -> None:
        self.now_s = now_s
        self.where = where
        self.pace = pace
        self.done = done
        self.longest_s: float | None = None
        self._last_s = now_s()
        self._measuring = False

    @property
    def limit_s(self) -> float:
        """How long nothing may be done, from the longest gap that was measured."""
        if self.longest_s is None:
            return STALL_START_S
        return max(STALL_FLOOR_S, STALL_FACTOR * self.longest_s)

    def poll(self, done: int, *, excused: bool) -> None:
        """Compare progress with the limit.

        Args:
            done: steps, rows or answers by now.
            excused: whether the service refuses for want of capacity, which has its own limits.

        Raises:
            ServiceError: when nothing was done for longer than the limit.
        """
        now_s = self.now_s()
        if done != self.done:
            # The time to the first piece holds the start too, so it measures no gap.
            if self._measuring:
                self.longest_s = max(self.longest_s or 0.0, now_s - self._last_s)
            self.done, self._last_s, self._measuring = done, now_s, self.pace.measured
        elif excused:
            self._last_s, self._measuring = now_s, False
        elif now_s - self._last_s > self.limit_s:
            raise self._stalled(now_s - self._last_s)

    def _stalled(self, waited_s: float) -> ServiceError:
        unit, longest_s = self.pace.unit, self.longest_s
        measured = "none measured" if longest_s is None else f"longest {longest_s:.1f} s"
        return ServiceError(
            "the stage makes no progress although the service is healthy",
            expected=f"a new {unit} within {self.limit_s:.0f} s ({unit}s so far: {measured})",
            found=f"no new {unit} for {waited_s:.0f} s after {self.done} {unit}s",
            where=self.where,
            fix="look at the service's queue, then run the same command: it continues",
        )

    def record(self) -> dict[str, Any]:
        """Return the limit that was in force and the gap behind it, in seconds."""
        return {
            "unit": self.pace.unit,
            "limit_s": self.limit_s,
            "longest_s": self.longest_s,
        }


class RowCounter:
    """Counts the rows that an arm's score has on disk, of all its tries.

    Args:
        run_folder: the run's folder.
        arm_name: the arm, or ``base``.
    """

    def __init__(self, run_folder: Path, arm_name: str) -> None:
        self.run_folder = run_folder
        self.arm_name = arm_name
        self._rows: dict[Path, tuple[int, int]] = {}

    def __call__(self) -> int:
        """Return the number now; a row that is still being written does not count."""
        for path in parts_of(self.run_folder, self.arm_name):
            size = path.stat().st_size
            if self._rows.get(path, (-1, 0))[0] != size:
                self._rows[path] = size, path.read_bytes().count(b"\n")
        return sum(rows for _, rows in self._rows.values())
