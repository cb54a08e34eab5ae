"""Reading requests and writing answers: what every handler shares.

Bodies are checked for content type before they are read; answers are JSON, also for every
refusal, with ``x-should-retry: false`` so that the SDK does not repeat a user's mistake.
"""

from __future__ import annotations

import json
from typing import Any

from aiohttp import web

from harness.local_service.futures import JSON, PROTOBUF, Future, Result
from harness.local_service.refusals import RefusalError, error_body
from harness.local_service.requests import BodyT, parse_body
from harness.local_service.service import Service

MAX_BODY_BYTES = 64 * 1024 * 1024

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)


async def read_bytes(request: web.Request, content_type: str) -> bytes:
    """Return the request's body.

    Raises:
        RefusalError: 415 for another content type or an encoding, 413 above MAX_BODY_BYTES.
    """
    encoding = request.headers.get("Content-Encoding", "identity")
    if request.content_type != content_type or encoding != "identity":
        raise RefusalError(
            "the body has another content type",
            status=415,
            expected=f"{content_type}, not encoded",
            found=f"{request.content_type}, {encoding}",
            where=request.path,
        )
    return await request.read()


async def read_body(request: web.Request, kind: type[BodyT]) -> BodyT:
    """Read and check a JSON body."""
    return parse_body(kind, await read_bytes(request, JSON))


def json_answer(document: dict[str, Any], status: int = 200) -> web.Response:
    """Return a JSON response."""
    return web.Response(
        body=json.dumps(document, allow_nan=False).encode(), content_type=JSON, status=status
    )


def refusal_answer(refusal: RefusalError) -> web.Response:
    """Return a refused request's response."""
    category = "user" if refusal.status < 500 else "server"
    answer = json_answer(
        error_body(str(refusal), status=refusal.status, category=category), refusal.status
    )
    if refusal.status != 429:
        answer.headers["x-should-retry"] = "false"
    return answer


def future_answer(future: Future, **more: Any) -> web.Response:
    """Return the acceptance of a request: where its result will be."""
    return json_answer({"request_id": future.request_id, **more})


def result_answer(result: Result) -> web.Response:
    """Return a finished request's result."""
    return web.Response(body=result.body, content_type=result.content_type)


__all__ = [
    "JSON",
    "MAX_BODY_BYTES",
    "PROTOBUF",
    "SERVICE",
    "future_answer",
    "json_answer",
    "read_body",
    "read_bytes",
    "refusal_answer",
    "result_answer",
]
