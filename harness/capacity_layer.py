"""Tries a piece of work again while the service has no capacity for it (contract §10).

The rules are in :mod:`harness.capacity`; here is what they need of the world: time, the person who
is told, and the sessions that are given back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from harness.capacity import CapacityError, CapacityExhaustedError, CapacityState, Refusal
from harness.stage_watch import Clock

T = TypeVar("T")


@dataclass(frozen=True)
class Waiting:
    """What a person is told while nothing can be done.

    Attributes:
        message: what the service says.
        since: when the refusal began.
        until: when the service is asked again; None while the SDK keeps asking.
        give_up: when the run ends without an answer.
    """

    message: str
    since: datetime
    until: datetime | None
    give_up: datetime

    def sentence(self) -> str:
        """Return one sentence, with times in UTC."""
        again = f"at {self.until:%H:%M:%S}" if self.until else "by the SDK all along"
        return (
            f"waiting since {self.since:%H:%M:%S} UTC for the service's capacity ({self.message}),"
            f" asked again {again}, given up at {self.give_up:%H:%M:%S}."
        )


def refused_inside(refusal: Refusal, clock: Clock) -> Waiting:
    """Return what is said of a refusal inside a stage that still runs."""
    now_s, now = clock.now_s(), clock.utc()
    return Waiting(
        refusal.message,
        since=now - timedelta(seconds=now_s - refusal.since_s),
        until=None,
        give_up=now + timedelta(seconds=refusal.until_s - now_s),
    )


class CapacityLayer:
    """Runs pieces of a run's work, waiting where the service has no capacity.

    Args:
        state: what is refused, over the whole run.
        clock: time.
        say: told of every wait before it begins.
    """

    def __init__(self, state: CapacityState, clock: Clock, say: Callable[[Waiting], None]) -> None:
        self.state = state
        self.clock = clock
        self.say = say

    def run(self, attempt: Callable[[], T]) -> T:
        """Return what the attempt returns, making it again after a wait as often as it takes.

        Args:
            attempt: raises :class:`CapacityError` when it was refused.

        Raises:
            CapacityExhaustedError: when the run was refused for as long as it may be.
        """
        while True:
            try:
                value = attempt()
            except CapacityError as error:
                self._wait(error)
            else:
                with self.state.lock:
                    self.state.progressed(self.state.steps)
                return value

    def _wait(self, error: CapacityError) -> None:
        with self.state.lock:
            wait_s = self._announced_wait_s(error)
        self.clock.sleep(wait_s)

    def _announced_wait_s(self, error: CapacityError) -> float:
        now_s = self.clock.now_s()
        if self.state.refusal is None:
            self.state.refused("stage", error.found, now_s)
        refusal = self.state.refusal
        if refusal is None or self.state.is_hopeless(now_s):
            waited_s = now_s - refusal.since_s if refusal else 0.0
            raise CapacityExhaustedError(error.found, self.state.steps, waited_s) from error
        wait_s = self.state.next_wait_s(now_s)
        said = refused_inside(refusal, self.clock)
        self.say(replace(said, until=self.clock.utc() + timedelta(seconds=wait_s)))
        return wait_s
