"""When a service without capacity is asked again, and when a run gives up (contract §10).

Pure: time comes in as numbers. The SDK's own retries stay as they are; this is the layer above.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass

from harness.errors import RefusedError, ServiceError

FIRST_WAIT_S = 60.0
JITTER = 0.1
"""Largest share by which a wait is shorter or longer, so that runs do not come back together."""
LIMIT_BEFORE_STEPS_S = 600.0
LIMIT_AFTER_STEPS_S = 1800.0


class CapacityError(RefusedError):
    """The service refuses for want of capacity; it may be asked again later."""


class CapacityExhaustedError(RefusedError):
    """The service refused for as long as a run may wait.

    Attributes:
        refusal: what the service said, for ``capacity_block.error``.
        steps: comparison steps that were done by then.
    """

    def __init__(self, refusal: str, steps: int, waited_s: float) -> None:
        self.refusal = refusal
        self.steps = steps
        limit = "30" if steps else "10"
        super().__init__(
            "the service had no capacity for as long as a run may wait",
            expected=f"an answer within {limit} minutes, with {steps} comparison steps done",
            found=f"{refusal}, for {waited_s / 60:.1f} minutes",
            where="the training service",
            fix="come back when the service has room: --fresh starts a new run",
        )


def limit_s(steps: int) -> float:
    """Return how long a run may be refused, by the comparison steps it has done."""
    return LIMIT_AFTER_STEPS_S if steps else LIMIT_BEFORE_STEPS_S


def wait_s(number: int, seed: int) -> float:
    """Return the wait before try ``number`` + 1: 1, 2, 4 … minutes, give or take the jitter.

    Args:
        number: how often was waited before in this refusal, from 0.
        seed: the run's; the same one gives the same waits.
    """
    share = random.Random(f"capacity wait {seed} {number}").uniform(-JITTER, JITTER)
    return FIRST_WAIT_S * 2.0**number * (1.0 + share)


@dataclass(frozen=True)
class Refusal:
    """An unbroken time of being refused.

    Attributes:
        since_s: when it began.
        message: what the service said last.
        steps: comparison steps done when it began.
    """

    since_s: float
    message: str
    steps: int

    @property
    def until_s(self) -> float:
        """When the run gives up."""
        return self.since_s + limit_s(self.steps)


class CapacityState:
    """What is refused now and since when; an answer of each refused endpoint or a step ends it.

    Args:
        seed: of the jitter.

    Attributes:
        lock: held by whoever looks and then changes; trainings at once share one state.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.lock = threading.RLock()
        self.refusal: Refusal | None = None
        self.waits = 0
        self.steps = 0
        self._endpoints: set[str] = set()

    def refused(self, endpoint: str, message: str, now_s: float) -> None:
        """Note a refusal."""
        self._endpoints.add(endpoint)
        since_s = now_s if self.refusal is None else self.refusal.since_s
        self.refusal = Refusal(since_s, message, self.steps)

    def answered(self, endpoint: str) -> None:
        """Note that an endpoint does its work; the refusal is over when all of them do."""
        self._endpoints.discard(endpoint)
        if not self._endpoints:
            self._over()

    def progressed(self, steps: int) -> None:
        """Note that work got done: comparison steps, or a whole stage."""
        self.steps = steps
        self._over()

    def is_hopeless(self, now_s: float) -> bool:
        """Return whether the run has been refused for as long as it may be."""
        return self.refusal is not None and now_s >= self.refusal.until_s

    def next_wait_s(self, now_s: float) -> float:
        """Return how long to wait now, and count it; never beyond the limit.

        Raises:
            ServiceError: when nothing is refused.
        """
        if self.refusal is None:
            raise ServiceError("nothing is refused, so there is nothing to wait for")
        planned_s = wait_s(self.waits, self.seed)
        self.waits += 1
        return min(planned_s, max(0.0, self.refusal.until_s - now_s))

    def _over(self) -> None:
        self._endpoints.clear()
        self.refusal = None
        self.waits = 0
