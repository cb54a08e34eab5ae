"""Handlers that sample: sampling sessions, and the rows and answers of one asample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from aiohttp import web
from tinker.proto import tinker_public_pb2 as pb

from harness.digest import sha256_json
from harness.local_service import draw, training
from harness.local_service.engine import SampleJob
from harness.local_service.futures import Result
from harness.local_service.messages import PROTOBUF, SERVICE, future_answer, json_answer, read_body
from harness.local_service.ordered import body_digest
from harness.local_service.refusals import RefusalError
from harness.local_service.sampler import Row, StopRule
from harness.local_service.sampling_requests import CreateSamplingSession, Sample
from harness.local_service.service import Service
from harness.local_service.sessions import Sampler
from harness.local_service.text import Tokenizer
from harness.local_service.training import Snapshot

EMPTY_TOPK_LOGPROB = -99999.0
"""What the protocol puts into a top-k cell that has no token."""

MAX_ROWS_WAITING = 65_536
"""Most rows of all requests together that are not finished."""


async def create_sampling_session(request: web.Request) -> web.Response:
    """POST create_sampling_session: the base model, or a saved checkpoint."""
    service, body = request.app[SERVICE], await read_body(request, CreateSamplingSession)
    session = service.registry.session(body.session_id)
    if body.base_model not in (None, service.base.name):
        raise RefusalError(
            "the base model is not served here",
            expected=service.base.name,
            found=str(body.base_model)[:200],
            where="base_model",
        )
    if body.base_model is None and body.model_path is None:
        raise RefusalError("give base_model or model_path")
    frozen = (
        training.load_snapshot(service.host, body.model_path)
        if body.model_path is not None
        else Snapshot(service.base.sha256)
    )
    sampler = service.registry.add_sampler(
        session.session_id, body.sampling_session_seq_id, frozen, service.base.name, body.model_path
    )
    return json_answer(
        {"sampling_session_id": sampler.sampler_id, "type": "create_sampling_session"}
    )


async def get_sampler(request: web.Request) -> web.Response:
    """GET samplers/{id}."""
    sampler = request.app[SERVICE].registry.sampler(request.match_info["sampler_id"])
    return json_answer(
        {
            "sampler_id": sampler.sampler_id,
            "base_model": sampler.base_model,
            "model_path": sampler.model_path,
            "weights_sha256": sampler.snapshot.sha256,
        }
    )


async def asample(request: web.Request) -> web.Response:
    """POST asample."""
    service, body = request.app[SERVICE], await read_body(request, Sample)
    sampler = service.registry.sampler(body.sampling_session_id)
    digest = body_digest(body)
    future = sampler.ledger.repeated(body.seq_id, digest)
    if future is None:
        _refuse_too_many_rows(service, body.num_samples)
        rows = make_rows(service, sampler, body)
        future = service.futures.create(sampler.session_id)
        sampler.ledger.record(body.seq_id, digest, future)
        service.rows_waiting += len(rows)
        finish = service.finisher(
            future, lambda done: Result(PROTOBUF, encode_sample(done)), rows=len(rows)
        )
        merge = _merge(service, sampler.snapshot)
        service.engine.submit(SampleJob(sampler.snapshot.sha256, merge, rows, finish))
    ids = [f"{future.request_id}:{k}" for k in range(body.num_samples)]
    return future_answer(future, sample_sequence_ids=ids)


def _refuse_too_many_rows(service: Service, rows: int) -> None:
    if service.rows_waiting + rows > MAX_ROWS_WAITING:
        raise RefusalError(
            "too many samples wait to be drawn",
            status=429,
            expected=f"at most {MAX_ROWS_WAITING}",
            found=f"{service.rows_waiting} and {rows} more",
        )


def _merge(service: Service, frozen: Snapshot) -> Callable[[], Any]:
    return lambda: training.merge_snapshot(service.host, frozen)


def make_rows(service: Service, sampler: Sampler, body: Sample) -> list[Row]:
    """Check a request and return its rows, one a sample, each with its own random stream.

    Raises:
        RefusalError: naming the field that is out of range.
    """
    prompt = _checked_prompt(service, body)
    asked = body.sampling_params
    params = draw.DrawParams(asked.temperature, asked.top_k, asked.top_p)
    wrong = draw.allowed_range(params)
    if wrong is not None:
        raise RefusalError(
            "a sampling parameter is out of range", expected=wrong, where="sampling_params"
        )
    stop = stop_rule(asked.stop, service.base.eos_ids, service.tokenizer)
    room = service.base.context_length - len(prompt)
    return [
        Row(
            prompt=prompt,
            max_tokens=asked.max_tokens or room,
            params=params,
            stop=stop,
            stream=draw.UniformStream(key),
            want_prompt=body.prompt_logprobs and k == 0,
            topk_prompt=body.topk_prompt_logprobs if k == 0 else 0,
        )
        for k, key in enumerate(_stream_keys(service, sampler, body, prompt))
    ]


def _checked_prompt(service: Service, body: Sample) -> list[int]:
    prompt, base = body.prompt.tokens(), service.base
    if not prompt or min(prompt) < 0 or max(prompt) >= base.vocab_size:
        raise RefusalError(
            "the prompt must be token ids of this model",
            expected=f"at least one id, each 0 to {base.vocab_size - 1}",
            found=f"{len(prompt)} ids"
            + (f" from {min(prompt)} to {max(prompt)}" if prompt else ""),
            where="prompt",
        )
    wanted = len(prompt) + (body.sampling_params.max_tokens or 1)
    if wanted > base.context_length:
        raise RefusalError(
            "prompt and max_tokens together exceed the context",
            expected=f"at most {base.context_length} tokens",
            found=f"{len(prompt)} + {body.sampling_params.max_tokens or 1}",
            where="sampling_params.max_tokens",
        )
    if body.topk_prompt_logprobs > base.vocab_size:
        raise RefusalError(
            "topk_prompt_logprobs exceeds the vocabulary", where="topk_prompt_logprobs"
        )
    return prompt


def _stream_keys(
    service: Service, sampler: Sampler, body: Sample, prompt: list[int]
) -> list[bytes]:
    """Return one generator key a sample (see `draw`)."""
    seed = body.sampling_params.seed
    if seed is not None:
        return [draw.seeded_key(seed, k) for k in range(body.num_samples)]
    asked = {"prompt": prompt, "params": body.sampling_params.model_dump(mode="json")}
    occurrence = sampler.occurrence(sha256_json(asked))
    return [
        draw.unseeded_key(service.settings.seed, sampler.snapshot.sha256, asked, occurrence, k)
        for k in range(body.num_samples)
    ]


def stop_rule(
    stop: str | list[str] | list[int] | None, eos_ids: frozenset[int], tokenizer: Tokenizer
) -> StopRule:
    """Turn the request's ``stop`` into a rule: None is the model's own end, [] is no stop at all.

    Raises:
        RefusalError: for an empty stop string.
    """
    if stop is None:
        return StopRule(eos_ids)
    given = [stop] if isinstance(stop, str) else stop
    ids = frozenset(item for item in given if isinstance(item, int))
    strings = tuple(item for item in given if isinstance(item, str))
    if "" in strings:
        raise RefusalError("a stop string must not be empty", where="sampling_params.stop")
    return StopRule(ids, strings, tokenizer.require() if strings else str)


def encode_sample(rows: list[Row]) -> bytes:
    """Serialise finished rows; prompt scores come from the first one."""
    response = pb.SampleResponse(sequences=[_encode_row(row) for row in rows])
    first = rows[0]
    if first.prompt_logprobs is not None:
        response.prompt_logprobs = first.prompt_logprobs.numpy().astype(np.float32).tobytes()
    if first.prompt_topk is not None:
        response.topk_prompt_logprobs.CopyFrom(_encode_topk(first, first.prompt_topk))
    return response.SerializeToString()


def _encode_row(row: Row) -> pb.SampledSequence:
    return pb.SampledSequence(
        stop_reason=pb.STOP_REASON_STOP if row.stopped else pb.STOP_REASON_LENGTH,
        tokens=np.asarray(row.tokens, dtype=np.int32).tobytes(),
        logprobs=np.asarray(row.logprobs, dtype=np.float32).tobytes(),
    )


def _encode_topk(row: Row, top: tuple[torch.Tensor, torch.Tensor]) -> pb.TopkLogprobs:
    ids, values = top
    k = row.topk_prompt
    empty_ids = np.zeros((1, k), dtype=np.int32)
    empty_values = np.full((1, k), EMPTY_TOPK_LOGPROB, dtype=np.float32)
    all_ids = np.concatenate([empty_ids, ids.numpy().astype(np.int32)])
    all_values = np.concatenate([empty_values, values.numpy().astype(np.float32)])
    return pb.TopkLogprobs(
        token_ids=all_ids.tobytes(), logprobs=all_values.tobytes(), k=k, length=len(row.prompt)
    )


ROUTES = [
    web.post("/api/v1/create_sampling_session", create_sampling_session),
    web.get("/api/v1/samplers/{sampler_id}", get_sampler),
    web.post("/api/v1/asample", asample),
]
