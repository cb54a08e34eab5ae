"""One idempotency key, one execution.

The SDK sends ``x-idempotency-key`` with every POST and repeats it when it resends. The first
request under a key runs; later ones wait for it and get the same answer. Refused requests are not
kept, so that a corrected one may follow.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from harness.local_service.refusals import RefusalError

MAX_KEYS = 50_000


@dataclass(frozen=True)
class Answer:
    """A successful reply: its body and content type."""

    body: bytes
    content_type: str


class Idempotency:
    """Answers by idempotency key, the oldest dropped first."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, tuple[str, asyncio.Future[Answer | None]]] = OrderedDict()

    async def once(
        self, key: str, digest: str, run: Callable[[], Awaitable[Answer | None]]
    ) -> Answer | None:
        """Run a request once per key; None means that it was refused and may be sent again.

        Args:
            key: the client's idempotency key.
            digest: of path and body.
            run: carries the request out.

        Raises:
            RefusalError: 409 if the key was used for another request.
        """
        if key in self._seen:
            earlier_digest, pending = self._seen[key]
            if earlier_digest != digest:
                raise RefusalError(
                    "the idempotency key belongs to another request", status=409, found=key[:100]
                )
            answer = await asyncio.shield(pending)
            if answer is not None:
                return answer
        return await self._first(key, digest, run)

    async def _first(
        self, key: str, digest: str, run: Callable[[], Awaitable[Answer | None]]
    ) -> Answer | None:
        pending: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._seen[key] = (digest, pending)
        if len(self._seen) > MAX_KEYS:
            self._seen.popitem(last=False)
        answer: Answer | None = None
        try:
            answer = await run()
        finally:
            pending.set_result(answer)
            if answer is None:
                self._seen.pop(key, None)
        return answer
