"""How things are measured: two pieces of work in turns, medians, memory, and how cost grows.

A ratio is the median of the ratios of neighbours (A B A B …): what else the machine does hits both
halves of a pair alike.
"""

from __future__ import annotations

import gc
import math
import resource
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Work = Callable[[], Any]


@dataclass(frozen=True)
class Sample:
    """Seconds of one call: by the wall's clock, and of processor time.

    Processor time is this process's and that of the processes it started and saw end in the call;
    a service that goes on is not in it.
    """

    wall_s: float
    cpu_s: float


def timed(work: Work) -> Sample:
    """Call ``work`` once and return its times; garbage of earlier calls is gone before."""
    gc.collect()
    wall_s, cpu_s = time.perf_counter(), _cpu_s()
    work()
    return Sample(time.perf_counter() - wall_s, _cpu_s() - cpu_s)


def _cpu_s() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


@dataclass(frozen=True)
class Pairs:
    """Samples of ours and of what it is compared with, taken in turns."""

    ours: tuple[Sample, ...]
    bare: tuple[Sample, ...]

    def ratios(self, clock: str) -> list[float]:
        """Return ours / bare of each pair; ``clock`` is ``wall_s`` or ``cpu_s``."""
        pairs = zip(self.ours, self.bare, strict=True)
        return [getattr(ours, clock) / getattr(bare, clock) for ours, bare in pairs]

    def facts(self) -> dict[str, Any]:
        """Return both medians and both ratios, with the least and largest of the pairs."""
        found: dict[str, Any] = {"pairs": len(self.ours)}
        for clock in ("wall_s", "cpu_s"):
            ratios = self.ratios(clock)
            found[clock] = {
                "ours": statistics.median(getattr(sample, clock) for sample in self.ours),
                "bare": statistics.median(getattr(sample, clock) for sample in self.bare),
                "ratio": statistics.median(ratios),
                "ratio_least": min(ratios),
                "ratio_largest": max(ratios),
            }
        return found


def in_turns(ours: Work, bare: Work, pairs: int) -> Pairs:
    """Call both once unmeasured, then in turns, ``pairs`` times each."""
    ours()
    bare()
    taken = [(timed(ours), timed(bare)) for _ in range(pairs)]
    return Pairs(tuple(pair[0] for pair in taken), tuple(pair[1] for pair in taken))


def peak_bytes(work: Work) -> int:
    """Return the most memory that Python and numpy held during a call, beyond that before it."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return b of the least-squares fit ``log cost = a + b · log size``."""
    x = [math.log(size) for size in sizes]
    y = [math.log(cost) for cost in costs]
    return statistics.linear_regression(x, y).slope
