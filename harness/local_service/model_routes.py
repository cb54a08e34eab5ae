"""Handlers that bring a model into being, new or from a checkpoint, and describe it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from aiohttp import web

from harness.local_service import requests, training
from harness.local_service.futures import Future, Result
from harness.local_service.messages import (
    JSON,
    SERVICE,
    future_answer,
    json_answer,
    read_body,
    read_bytes,
)
from harness.local_service.ordered import body_digest, ordered
from harness.local_service.refusals import RefusalError
from harness.local_service.requests import Body, parse_body
from harness.local_service.service import Service, json_result
from harness.local_service.sessions import Model
from harness.local_service.training import TrainingState


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
        raise RefusalError(
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
        raise RefusalError("optimizer_config cannot be given when the optimizer is restored")
    new = (body.session_id, body.model_seq_id)
    old = (body.model_id, body.seq_id)
    if None not in new and old == (None, None):
        return _load_new(service, body, str(body.session_id), int(body.model_seq_id or 0))
    if None not in old and new == (None, None):
        return await ordered(request, requests.LoadWeights, _load_into)
    raise RefusalError("give either session_id and model_seq_id, or model_id and seq_id")


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
            "model_data": {
                "arch": base.network.config.model_type,
                "model_name": base.name,
                "tokenizer_id": base.name,
            },
            "is_lora": True,
            "lora_rank": config.rank,
            "model_name": base.name,
            "optimizer_config": {"type": "adamw"},
            "lora": config.as_json(),
            "dtype": base.dtype_name,
            "model_sha256": base.sha256,
        }
    )


ROUTES = [
    web.post("/api/v1/create_model", create_model),
    web.post("/api/v1/load_weights", load_weights),
    web.post("/api/v1/get_info", get_info),
]
