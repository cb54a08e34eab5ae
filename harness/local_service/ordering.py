"""Requests run in seq_id order, and never twice.

The SDK numbers a model's requests 1, 2, 3 … and may send them out of order (it submits the first
chunk of a batch last) or more than once (when a reply was lost). A queue holds early arrivals
back, answers a repetition with the first one's future, and refuses a second, different request
under a number that was used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.local_service.futures import Future
from harness.local_service.refusals import RefusalError

MAX_HELD = 4096
"""Requests of one model that may wait for an earlier number."""


@dataclass(frozen=True)
class Accepted:
    """A request under its number: the digest of its body and its future."""

    digest: str
    future: Future


class Ledger:
    """Requests of one scope by key, so that a repetition is recognised."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self._accepted: dict[int, Accepted] = {}

    def repeated(self, number: int, digest: str) -> Future | None:
        """Return the future of the same request sent before, if any.

        Raises:
            RefusalError: 409 if another request already has this number.
        """
        earlier = self._accepted.get(number)
        if earlier is None:
            return None
        if earlier.digest != digest:
            raise RefusalError(
                "another request already has this sequence number",
                status=409,
                found=f"seq_id {number}",
                where=self.scope,
                fix="number requests 1, 2, 3 … and resend only identical ones",
            )
        return earlier.future

    def record(self, number: int, digest: str, future: Future) -> None:
        """Remember a request."""
        self._accepted[number] = Accepted(digest, future)


class SequenceQueue:
    """One model's requests: started strictly by number, from 1."""

    def __init__(self, scope: str) -> None:
        self.ledger = Ledger(scope)
        self.next_number = 1
        self._held: dict[int, Callable[[], None]] = {}
        self._rejected: set[int] = set()

    def submit(self, number: int, digest: str, future: Future, start: Callable[[], None]) -> None:
        """Accept a request; call ``start`` once every lower number has been started.

        Raises:
            RefusalError: 409 if the number has passed (refused, and a later one ran), 429 if
                too many requests wait.
        """
        if number < self.next_number:
            raise RefusalError(
                "this sequence number has passed",
                status=409,
                expected=f"{self.next_number} or higher",
                found=str(number),
                where=self.ledger.scope,
            )
        if len(self._held) >= MAX_HELD:
            raise RefusalError("too many requests wait for an earlier one", status=429)
        self.ledger.record(number, digest, future)
        self._rejected.discard(number)
        self._held[number] = start
        self._run_ready()

    def reject(self, number: int) -> None:
        """Note that the request with this number was refused, so that later ones need not wait."""
        in_reach = self.next_number <= number < self.next_number + MAX_HELD
        if in_reach and number not in self._held:
            self._rejected.add(number)
            self._run_ready()

    def _run_ready(self) -> None:
        while True:
            if self.next_number in self._held:
                start = self._held.pop(self.next_number)
                self.next_number += 1
                start()
            elif self.next_number in self._rejected and self._has_later():
                self._rejected.discard(self.next_number)
                self.next_number += 1
            else:
                return

    def _has_later(self) -> bool:
        """Whether a later request waits: until then a refused one may be sent again, corrected."""
        return any(number > self.next_number for number in self._held)
