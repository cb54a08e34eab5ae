"""The HTTP application: routes, and what surrounds every one of them.

From the outside in: errors become JSON, the gateway's headers and the API key are checked, a
repeated idempotency key gets the first answer.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.web_urldispatcher import UrlMappingMatchInfo

from harness.local_service import (
    checkpoint_routes,
    model_routes,
    sampling_routes,
    session_routes,
    training_routes,
)
from harness.local_service.gateway import check_gateway
from harness.local_service.idempotency import Answer
from harness.local_service.messages import MAX_BODY_BYTES, SERVICE, refusal_answer
from harness.local_service.refusals import RefusalError
from harness.local_service.service import Service

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_OPEN = (session_routes.healthz, checkpoint_routes.download)
"""What needs no key: a health check, and links that carry their own permission."""

_REPEATABLE = ("/api/v1/retrieve_future", "/api/v1/session_heartbeat", "/api/v1/telemetry")
"""POSTs that may run again under one idempotency key; their answers change with time."""


def build_app(service: Service) -> web.Application:
    """Return the application of a service whose engine is running."""
    app = web.Application(
        middlewares=[errors_as_json, pass_gateway, require_key, run_once],
        client_max_size=MAX_BODY_BYTES,
    )
    app[SERVICE] = service
    for routes in (
        session_routes,
        model_routes,
        training_routes,
        sampling_routes,
        checkpoint_routes,
    ):
        app.add_routes(routes.ROUTES)
    _refuse_expectations(app)
    return app


def _refuse_expectations(app: web.Application) -> None:
    """Answer 417 to an Expect header of our own accord: aiohttp fails on bytes outside UTF-8."""
    stock = app.router.resolve

    async def resolve(request: web.Request) -> UrlMappingMatchInfo:
        if request.headers.get("Expect", "100-continue").lower() != "100-continue":
            raise web.HTTPExpectationFailed(text="this expectation is not understood")
        return await stock(request)

    vars(app.router)["resolve"] = resolve


def build_runner(service: Service) -> web.AppRunner:
    """Return what serves the application; a compressed body is never unpacked, only refused."""
    return web.AppRunner(
        build_app(service), access_log=None, shutdown_timeout=1.0, auto_decompress=False
    )


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn whatever goes wrong into ``{"error", "category"}`` with the right status."""
    try:
        return await handler(request)
    except RefusalError as refusal:
        return refusal_answer(refusal)
    except web.HTTPException as error:
        return refusal_answer(_http_refusal(request, error))
    except Exception as error:
        logger.exception("unexpected error in %s %s", request.method, request.path)
        return refusal_answer(
            RefusalError(
                "the embedded service failed on this request",
                status=500,
                found=type(error).__name__,
            )
        )


def _http_refusal(request: web.Request, error: web.HTTPException) -> RefusalError:
    problems = {
        404: "the embedded service does not offer this call",
        405: "the embedded service does not offer this method here",
        413: f"the body is larger than {MAX_BODY_BYTES} bytes",
    }
    return RefusalError(
        problems.get(error.status, error.reason or "the request failed"),
        status=error.status,
        found=f"{request.method} {request.path}"[:200],
    )


@web.middleware
async def pass_gateway(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests that a gateway would not let pass; without one, all pass."""
    check_gateway(request.headers, request.app[SERVICE].settings.gateway)
    return await handler(request)


@web.middleware
async def require_key(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests without the service's key (compared in constant time)."""
    # By the handler that would run, not by how the path is spelled.
    if request.match_info.handler not in _OPEN:
        check_key(request.headers.get("X-API-Key", ""), request.app[SERVICE].settings.api_key)
    return await handler(request)


def check_key(given: str, expected: str) -> None:
    """Raise a 401 RefusalError unless the key is right; neither key appears in the message."""
    if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), expected.encode()):
        raise RefusalError(
            "the API key is missing or wrong",
            status=401,
            expected="the key of this start of the service in the header X-API-Key",
            found="another key" if given else "no key",
            fix="set TINKER_API_KEY to what the service printed or handed over",
        )


@web.middleware
async def run_once(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Run a POST once for each idempotency key."""
    key = request.headers.get("x-idempotency-key")
    if request.method != "POST" or key is None or request.path in _REPEATABLE:
        return await handler(request)
    responses: list[web.StreamResponse] = []

    async def run() -> Answer | None:
        response = await handler(request)
        responses.append(response)
        if isinstance(response, web.Response) and isinstance(response.body, bytes):
            return Answer(response.body, response.content_type)
        return None

    digest = hashlib.sha256(request.path.encode() + b"\n" + await request.read()).hexdigest()
    answer = await request.app[SERVICE].idempotency.once(key, digest, run)
    if responses or answer is None:
        return responses[0]
    return web.Response(body=answer.body, content_type=answer.content_type)
