"""Handlers that act on a model: create, load, forward, backward, optimizer step, save.

A request that is refused here (400) gives its sequence number back: later requests of the model
do not wait for it. A mistake that only shows when the request runs is reported by its future.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from harness.digest import parse_json, sha256_json
from harness.errors import DocumentError
from harness.local_service import requests, training, wire
from harness.local_service.checkpoints import check_ttl, make_ref
from harness.local_service.futures import Future, Result
from harness.local_service.http import (
    JSON,
    PROTOBUF,
    SERVICE,
    future_answer,
    json_answer,
    read_body,
    read_bytes,
)
from harness.local_service.optimizer import AdamParams, check_params
from harness.local_service.refusals import Refusal
from harness.local_service.requests import Body, BodyT, parse_body
from harness.local_service.service import Service, json_result
from harness.local_service.sessions import Model
from harness.local_service.training import TrainingState


def body_digest(body: Body) -> str:
    """Digest of a body's meaning, the same for every spelling of the same request."""
    return sha256_json(body.model_dump(mode="json"))


async def _ordered(
    request: web.Request, kind: type[BodyT], submit: Callable[[Service, BodyT], Future]
) -> web.Response:
    """Read a JSON request of a model's sequence and submit it."""
    service, data = request.app[SERVICE], await read_bytes(request, JSON)
    try:
        return future_answer(submit(service, parse_body(kind, data)))
    except Refusal as refusal:
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


def _new_model(
    service: Service, session_id: str, number: int, body: Body, make: Callable[[Model], Future]
) -> web.Response:
    """Register a model and queue its creation; a repetition gets the same future."""
    session, digest = service.registry.session(session_id), body_digest(body)
    future = session.models.repeated(number, digest)
    if future is None:
        future = make(service.registry.add_model(session_id, number))
        session.models.record(number, digest, future)
    return future_answer(future, model_id=f"{session_id}:train:{number}")


async def create_model(request: web.Request) -> web.Response:
    """POST create_model."""
    service, body = request.app[SERVICE], await read_body(request, requests.CreateModel)
    _check_base(service, body.base_model)
    config = training.adapter_config(body.lora_config)

    def make(model: Model) -> Future:
        return service.create_with(
            model,
            lambda: _recorded(service, model, training.create(service.host, config), body),
            lambda _: json_result({"model_id": model.model_id, "type": "create_model"}),
        )

    return _new_model(service, body.session_id, body.model_seq_id, body, make)


def _check_base(service: Service, name: str) -> None:
    if name != service.base.name:
        raise Refusal(
            "the base model is not served here",
            expected=service.base.name,
            found=name[:200],
            where="base_model",
            fix="ask get_server_capabilities for the models there are",
        )


def _recorded(
    service: Service,
    model: Model,
    state: TrainingState,
    body: requests.CreateModel | requests.LoadWeights,
) -> TrainingState:
    """Write a new training run's record, on the engine's thread."""
    document = {
        "training_run_id": model.model_id,
        "base_model": service.base.name,
        "base_model_sha256": service.base.sha256,
        "dtype": service.base.dtype_name,
        "lora": state.adapter.config.as_json(),
        "loaded_from": body.path if isinstance(body, requests.LoadWeights) else None,
        "optimizer_restored": isinstance(body, requests.LoadWeights) and body.optimizer,
        "user_metadata": body.user_metadata,
        "created": datetime.now(UTC).isoformat(),
    }
    service.store.write_run(model.model_id, document)
    return state


async def load_weights(request: web.Request) -> web.Response:
    """POST load_weights: a new model from a checkpoint, or (legacy) into a fresh one."""
    service, data = request.app[SERVICE], await read_bytes(request, JSON)
    body = parse_body(requests.LoadWeights, data)
    if body.base_model is not None:
        _check_base(service, body.base_model)
    if body.optimizer and body.optimizer_config is not None:
        raise Refusal("optimizer_config cannot be given when the optimizer is restored")
    new = (body.session_id, body.model_seq_id)
    old = (body.model_id, body.seq_id)
    if None not in new and old == (None, None):
        return _load_new(service, body, str(body.session_id), int(body.model_seq_id or 0))
    if None not in old and new == (None, None):
        return await _ordered(request, requests.LoadWeights, _load_into)
    raise Refusal("give either session_id and model_seq_id, or model_id and seq_id")


def _load_new(
    service: Service, body: requests.LoadWeights, session_id: str, number: int
) -> web.Response:
    def make(model: Model) -> Future:
        def read() -> TrainingState:
            state = training.load(service.host, body.path, with_optimizer=body.optimizer)
            return _recorded(service, model, state, body)

        return service.create_with(model, read, lambda _: _loaded(body, model.model_id))

    return _new_model(service, session_id, number, body, make)


def _loaded(body: requests.LoadWeights, model_id: str) -> Result:
    return json_result({"path": body.path, "model_id": model_id, "type": "load_weights"})


def _load_into(service: Service, body: requests.LoadWeights) -> Future:
    model = service.registry.model(str(body.model_id))

    def run(state: TrainingState) -> None:
        model.state = training.load_into(
            service.host, state, body.path, with_optimizer=body.optimizer
        )

    return service.submit_ordered(
        model.model_id,
        int(body.seq_id or 0),
        body_digest(body),
        run,
        lambda _: _loaded(body, model.model_id),
    )


async def get_info(request: web.Request) -> web.Response:
    """POST get_info."""
    service, body = request.app[SERVICE], await read_body(request, requests.GetInfo)
    model = service.registry.model(body.model_id)
    base, config = service.base, model.require_state().adapter.config
    return json_answer(
        {
            "type": "get_info",
            "model_id": model.model_id,
            "model_data": {"arch": "qwen3", "model_name": base.name, "tokenizer_id": base.name},
            "is_lora": True,
            "lora_rank": config.rank,
            "model_name": base.name,
            "optimizer_config": {"type": "adamw"},
            "lora": config.as_json(),
            "dtype": base.dtype_name,
            "model_sha256": base.sha256,
        }
    )


async def forward_backward(request: web.Request) -> web.Response:
    """POST forward_backward (protobuf), forward_only included."""
    service = request.app[SERVICE]
    message = wire.parse_pass(await read_bytes(request, PROTOBUF))
    service.registry.model(message.model_id)
    try:
        if message.seq_id < 1:
            raise Refusal("seq_id starts at 1", found=str(message.seq_id), where="seq_id")
        body = wire.decode_pass(message, service.limits)
    except Refusal:
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
    return await _ordered(request, requests.OptimStep, _optim_step)


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
    return await _ordered(request, requests.SaveWeights, _save("weights"))


async def save_weights_external(request: web.Request) -> web.Response:
    """POST save_weights_external (unencrypted only)."""
    return await _ordered(request, requests.SaveExternal, _save("external_weights"))


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
    return await _ordered(request, requests.SaveForSampler, _save_for_sampler)


def _save_for_sampler(service: Service, body: requests.SaveForSampler) -> Future:
    number = body.sampling_session_seq_id
    if (body.path is None) == (number is None):
        raise Refusal("give exactly one of path and sampling_session_seq_id")
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
    web.post("/api/v1/create_model", create_model),
    web.post("/api/v1/load_weights", load_weights),
    web.post("/api/v1/get_info", get_info),
    web.post("/api/v1/forward_backward", forward_backward),
    web.post("/api/v1/optim_step", optim_step),
    web.post("/api/v1/save_weights", save_weights),
    web.post("/api/v1/save_weights_for_sampler", save_weights_for_sampler),
    web.post("/api/v1/save_weights_external", save_weights_external),
]
