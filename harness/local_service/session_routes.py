"""Handlers for sessions, capabilities, client configuration and polling."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from harness.local_service import requests
from harness.local_service.lora import LORA_ALPHA, MAX_RANK
from harness.local_service.losses import LOSSES
from harness.local_service.messages import (
    SERVICE,
    json_answer,
    read_body,
    refusal_answer,
    result_answer,
)
from harness.local_service.refusals import RefusalError
from harness.local_service.service import Service

PROTOCOL = "tinker-0.38"


def identity(service: Service) -> dict[str, Any]:
    """Return what the service says about itself; a run records it."""
    base = service.base
    return {
        "embedded": True,
        "protocol": PROTOCOL,
        "base_model": base.name,
        "model_sha256": base.sha256,
        "dtype": base.dtype_name,
        "lora_alpha": LORA_ALPHA,
        "max_lora_rank": MAX_RANK,
        "losses": sorted(LOSSES),
        "optimizers": ["adamw"],
        "seed": service.settings.seed,
    }


async def healthz(_request: web.Request) -> web.Response:
    """GET healthz."""
    return json_answer({"status": "ok"})


async def capabilities(request: web.Request) -> web.Response:
    """GET get_server_capabilities; the SDK reads supported_models and ignores the rest."""
    service = request.app[SERVICE]
    model = {
        "model_name": service.base.name,
        "max_context_length": service.base.context_length,
        "trainable": True,
        "sampleable": True,
        "embedded": True,
        "model_sha256": service.base.sha256,
        "dtype": service.base.dtype_name,
        "lora_alpha": LORA_ALPHA,
    }
    return json_answer({"supported_models": [model], **identity(service)})


async def client_config(_request: web.Request) -> web.Response:
    """POST client/config and client/dynamic_config: every flag at the SDK's default."""
    return json_answer({})


async def telemetry(_request: web.Request) -> web.Response:
    """POST telemetry: accepted and dropped; it may hold request headers."""
    return json_answer({"status": "accepted"})


async def create_session(request: web.Request) -> web.Response:
    """POST create_session."""
    body = await read_body(request, requests.CreateSession)
    session = request.app[SERVICE].registry.create(body.user_metadata, body.display_name)
    return json_answer({"session_id": session.session_id, "type": "create_session"})


async def heartbeat(request: web.Request) -> web.Response:
    """POST session_heartbeat: 410 once the session is finished."""
    body = await read_body(request, requests.Heartbeat)
    request.app[SERVICE].registry.session(body.session_id)
    return json_answer({"type": "session_heartbeat"})


async def finish_session(request: web.Request) -> web.Response:
    """POST sessions/{id}/finish; finishing twice is no error."""
    await read_body(request, requests.FinishSession)
    service, session_id = request.app[SERVICE], request.match_info["session_id"]
    if not service.registry.is_finished(session_id):
        service.finish_session(session_id)
    return json_answer({})


async def get_session(request: web.Request) -> web.Response:
    """GET sessions/{id}."""
    registry = request.app[SERVICE].registry
    session = registry.session(request.match_info["session_id"])
    owned = session.session_id
    return json_answer(
        {
            "training_run_ids": [k for k, v in registry.models.items() if v.session_id == owned],
            "sampler_ids": [k for k, v in registry.samplers.items() if v.session_id == owned],
            "user_metadata": session.user_metadata,
            "display_name": session.display_name,
        }
    )


async def list_sessions(request: web.Request) -> web.Response:
    """GET sessions: the open ones."""
    return json_answer({"sessions": sorted(request.app[SERVICE].registry.sessions)})


async def retrieve_future(request: web.Request) -> web.Response:
    """POST retrieve_future: a long poll; 408 with try_again while the request runs."""
    body = await read_body(request, requests.RetrieveFuture)
    futures = request.app[SERVICE].futures
    result = await futures.wait(futures.get(body.request_id))
    if result is None:
        waiting = {"type": "try_again", "request_id": body.request_id, "queue_state": "active"}
        return json_answer(waiting, status=408)
    return result_answer(result)


async def not_offered(request: web.Request) -> web.Response:
    """Any other path."""
    return refusal_answer(
        RefusalError(
            "the embedded service does not offer this call",
            status=404,
            found=f"{request.method} {request.path}"[:200],
        )
    )


ROUTES = [
    web.get("/api/v1/healthz", healthz),
    web.get("/api/v1/get_server_capabilities", capabilities),
    web.post("/api/v1/client/config", client_config),
    web.post("/api/v1/client/dynamic_config", client_config),
    web.post("/api/v1/telemetry", telemetry),
    web.post("/api/v1/create_session", create_session),
    web.post("/api/v1/session_heartbeat", heartbeat),
    web.post("/api/v1/sessions/{session_id}/finish", finish_session),
    web.get("/api/v1/sessions/{session_id}", get_session),
    web.get("/api/v1/sessions", list_sessions),
    web.post("/api/v1/retrieve_future", retrieve_future),
]
