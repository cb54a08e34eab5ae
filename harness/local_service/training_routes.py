"""Handlers that train and save: forward, backward, optimizer step, checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from aiohttp import web

from harness.local_service import requests, training, wire
from harness.local_service.checkpoints import check_ttl, make_ref
from harness.local_service.futures import Future, Result
from harness.local_service.messages import PROTOBUF, SERVICE, future_answer, read_bytes
from harness.local_service.optimizer import AdamParams, check_params
from harness.local_service.ordered import body_digest, ordered, reject
from harness.local_service.refusals import RefusalError
from harness.local_service.service import Service, json_result


async def forward_backward(request: web.Request) -> web.Response:
    """POST forward_backward (protobuf), forward_only included."""
    service = request.app[SERVICE]
    message = wire.parse_pass(await read_bytes(request, PROTOBUF))
    service.registry.model(message.model_id)
    try:
        if message.seq_id < 1:
            raise RefusalError("seq_id starts at 1", found=str(message.seq_id), where="seq_id")
        body = wire.decode_pass(message, service.limits)
    except RefusalError:
        reject(service, message.model_id, message.seq_id)
        raise
    digest = hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest()
    future = service.submit_ordered(
        message.model_id,
        message.seq_id,
        digest,
        lambda state: training.run_pass(service.host, state, body),
        lambda result: Result(PROTOBUF, wire.encode_pass(result)),
    )
    return future_answer(future)


async def optim_step(request: web.Request) -> web.Response:
    """POST optim_step."""
    return await ordered(request, requests.OptimStep, _optim_step)


def _optim_step(service: Service, body: requests.OptimStep) -> Future:
    params = check_params(AdamParams(**body.adam_params.model_dump()))
    return service.submit_ordered(
        body.model_id,
        body.seq_id,
        body_digest(body),
        lambda state: training.optim_step(state, params),
        lambda metrics: json_result({"metrics": metrics}),
    )


async def save_weights(request: web.Request) -> web.Response:
    """POST save_weights."""
    return await ordered(request, requests.SaveWeights, _save("weights"))


async def save_weights_external(request: web.Request) -> web.Response:
    """POST save_weights_external (unencrypted only)."""
    return await ordered(request, requests.SaveExternal, _save("external_weights"))


def _save(kind: str) -> Callable[[Service, Any], Future]:
    """Return the submission of a save into ``kind``."""

    def submit(service: Service, body: Any) -> Future:
        ref = make_ref(body.model_id, kind, body.path)
        check_ttl(body.ttl_seconds)
        labels = body.model_dump(include={"user_metadata", "ttl_seconds"})
        overwrite = getattr(body, "overwrite", False)
        return service.submit_ordered(
            body.model_id,
            body.seq_id,
            body_digest(body),
            lambda state: training.save(service.host, state, ref, labels, overwrite=overwrite),
            json_result,
        )

    return submit


async def save_weights_for_sampler(request: web.Request) -> web.Response:
    """POST save_weights_for_sampler: named, or an ephemeral sampling session."""
    return await ordered(request, requests.SaveForSampler, _save_for_sampler)


def _save_for_sampler(service: Service, body: requests.SaveForSampler) -> Future:
    number = body.sampling_session_seq_id
    if (body.path is None) == (number is None):
        raise RefusalError("give exactly one of path and sampling_session_seq_id")
    if body.path is not None:
        return _save("sampler_weights")(service, body)
    session_id = service.registry.model(body.model_id).session_id

    def encode(frozen: training.Snapshot) -> Result:
        sampler = service.registry.add_sampler(
            session_id, int(number or 0), frozen, service.base.name, None
        )
        return json_result(
            {"sampling_session_id": sampler.sampler_id, "type": "save_weights_for_sampler"}
        )

    return service.submit_ordered(
        body.model_id, body.seq_id, body_digest(body), training.snapshot, encode
    )


ROUTES = [
    web.post("/api/v1/forward_backward", forward_backward),
    web.post("/api/v1/optim_step", optim_step),
    web.post("/api/v1/save_weights", save_weights),
    web.post("/api/v1/save_weights_for_sampler", save_weights_for_sampler),
    web.post("/api/v1/save_weights_external", save_weights_external),
]
