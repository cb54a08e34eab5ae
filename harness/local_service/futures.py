"""Futures: a request is accepted at once and its result is fetched by a long poll.

A result is kept until its session ends or the store is full, so that a repeated poll, or a
repeated submission of the same request, gets the same answer again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from harness.local_service.refusals import RefusalError

LONG_POLL_S = 20.0
"""Below the SDK's read timeout of 45 s."""

MAX_KEPT = 50_000

PROTOBUF = "application/x-protobuf"
JSON = "application/json"


@dataclass(frozen=True)
class Result:
    """A finished request's answer: body bytes and their content type."""

    content_type: str
    body: bytes


@dataclass
class Future:
    """A request that was accepted; ``result`` appears once it has run."""

    request_id: str
    session_id: str
    done: asyncio.Event = field(default_factory=asyncio.Event)
    result: Result | None = None
    fetched: bool = False

    def resolve(self, result: Result) -> None:
        """Set the result, once; runs on the event loop's thread."""
        if self.result is None:
            self.result = result
            self.done.set()


class FutureStore:
    """All futures by request id."""

    def __init__(self) -> None:
        self._futures: OrderedDict[str, Future] = OrderedDict()

    def create(self, session_id: str) -> Future:
        """Return a new, unresolved future."""
        self._make_room()
        future = Future(f"req-{secrets.token_hex(12)}", session_id)
        self._futures[future.request_id] = future
        return future

    def _make_room(self) -> None:
        if len(self._futures) < MAX_KEPT:
            return
        old = next((key for key, value in self._futures.items() if value.fetched), None)
        if old is None:
            raise RefusalError(
                "too many results wait to be fetched", status=429, expected=f"at most {MAX_KEPT}"
            )
        del self._futures[old]

    def get(self, request_id: str) -> Future:
        """Return a future.

        Raises:
            RefusalError: 404 if it is unknown, or its session ended.
        """
        future = self._futures.get(request_id)
        if future is None:
            raise RefusalError(
                "there is no such request, or its session has ended",
                status=404,
                found=request_id[:100],
                where="request_id",
            )
        return future

    async def wait(self, future: Future, timeout_s: float = LONG_POLL_S) -> Result | None:
        """Wait for a result; None when it is still running after ``timeout_s``."""
        try:
            await asyncio.wait_for(future.done.wait(), timeout_s)
        except TimeoutError:
            return None
        future.fetched = True
        return future.result

    def forget_session(self, session_id: str) -> None:
        """Drop every result of a session."""
        for key in [k for k, v in self._futures.items() if v.session_id == session_id]:
            del self._futures[key]
