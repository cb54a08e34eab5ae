"""Submitting a model's JSON request under its sequence number.

A request that is refused at once (400) gives its number back: later requests of the model do not
wait for it. A mistake that only shows when the request runs is reported by its future.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from harness.digest import parse_json, sha256_json
from harness.errors import DocumentError
from harness.local_service.futures import JSON, Future
from harness.local_service.messages import SERVICE, future_answer, read_bytes
from harness.local_service.refusals import RefusalError
from harness.local_service.requests import Body, BodyT, parse_body
from harness.local_service.service import Service


def body_digest(body: Body) -> str:
    """Digest of a body's meaning, the same for every spelling of the same request."""
    return sha256_json(body.model_dump(mode="json"))


async def ordered(
    request: web.Request, kind: type[BodyT], submit: Callable[[Service, BodyT], Future]
) -> web.Response:
    """Read a JSON request of a model's sequence and submit it."""
    service, data = request.app[SERVICE], await read_bytes(request, JSON)
    try:
        return future_answer(submit(service, parse_body(kind, data)))
    except RefusalError as refusal:
        if refusal.status == 400:
            _give_back(service, data)
        raise


def _give_back(service: Service, data: bytes) -> None:
    try:
        raw = parse_json(data, where="request body")
    except DocumentError:
        return
    if isinstance(raw, dict) and isinstance(raw.get("seq_id"), int):
        reject(service, str(raw.get("model_id")), raw["seq_id"])


def reject(service: Service, model_id: str, seq_id: int) -> None:
    """Tell a model's queue that the request with this number was refused."""
    model = service.registry.models.get(model_id)
    if model is not None:
        model.queue.reject(seq_id)
