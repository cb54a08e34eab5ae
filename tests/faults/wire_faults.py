"""What may go wrong between the SDK and a service, each as a fault of the proxy."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from harness.fault_proxy import Fault, Passing


async def hang(passing: Passing) -> web.StreamResponse:
    """Take the request and never answer."""
    del passing
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def slow(delay_s: float) -> Fault:
    """Answer rightly, but late."""

    async def fault(passing: Passing) -> web.StreamResponse:
        answer = await passing.forward()
        await asyncio.sleep(delay_s)
        return answer

    return fault


async def reset_before_answer(passing: Passing) -> web.StreamResponse:
    """Let the service do the work, then drop the connection without a word."""
    answer = await passing.forward()
    drop(passing)
    return answer


async def reset_mid_body(passing: Passing) -> web.StreamResponse:
    """Drop the connection in the middle of the answer."""
    whole = await passing.forward()
    content = bytes(whole.body) if isinstance(whole.body, bytes) else b""
    answer = web.StreamResponse(status=whole.status, headers=whole.headers)
    answer.content_length = len(content)
    await answer.prepare(passing.request)
    await answer.write(content[: len(content) // 2])
    drop(passing)
    return answer


def drop(passing: Passing) -> None:
    """Reset the connection."""
    if passing.request.transport is not None:
        passing.request.transport.abort()


def truncated(share: float) -> Fault:
    """Cut the end off protobuf answers, with a length that says nothing of it."""

    async def fault(passing: Passing) -> web.StreamResponse:
        whole = await passing.forward()
        if "protobuf" not in whole.headers.get("Content-Type", ""):
            return whole
        content = bytes(whole.body) if isinstance(whole.body, bytes) else b""
        cut = content[: int(len(content) * share)]
        return web.Response(status=whole.status, body=cut, headers=whole.headers)

    return fault


async def unknown_request_id(passing: Passing) -> web.StreamResponse:
    """Promise the result under an id that nobody has."""
    whole = await passing.forward()
    body: dict[str, Any] = json.loads(bytes(whole.body)) if isinstance(whole.body, bytes) else {}
    return web.json_response({**body, "request_id": "nobody-asked-this"}, status=whole.status)


class AnswerOfAnother:
    """Give every sampling call the first one's result: the wrong answer, well formed."""

    def __init__(self) -> None:
        self.first: web.Response | None = None

    async def __call__(self, passing: Passing) -> web.StreamResponse:
        whole = await passing.forward()
        sampled = passing.request.headers.get("X-Tinker-Request-Type") == "Sample"
        if not sampled or "protobuf" not in whole.headers.get("Content-Type", ""):
            return whole
        if self.first is None:
            self.first = whole
        first = self.first
        return web.Response(status=first.status, body=first.body, headers=first.headers)


async def asked_twice(passing: Passing) -> web.StreamResponse:
    """Hand the request over twice, as a retry does whose first answer got lost."""
    await passing.forward()
    return await passing.forward()
