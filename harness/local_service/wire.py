"""Protobuf bodies of the protocol <-> numpy arrays.

The messages are the SDK's own (``tinker.proto.tinker_public_pb2``), so that both ends share one
definition. Everything is checked here: what leaves this module is finite, of one length per
datum, inside the vocabulary and the context.

Legend: `_D` datums, `_T` target positions of one datum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from tinker.proto import tinker_public_pb2 as pb

from harness.local_service import losses
from harness.local_service.refusals import RefusalError
from harness.local_service.trainer import Datum, PassResult

MAX_DATUMS = 4096

_NUMPY = {pb.DTYPE_FLOAT32: np.float32, pb.DTYPE_INT64: np.int64, pb.DTYPE_INT32: np.int32}


@dataclass(frozen=True)
class Limits:
    """Bounds a request must keep: token ids below vocab_size, sequences up to context_length."""

    vocab_size: int
    context_length: int


@dataclass(frozen=True)
class PassRequest:
    """A forward or forward_backward request, checked."""

    data: list[Datum]
    loss_fn: str
    config: dict[str, float]
    forward_only: bool


def parse_pass(body: bytes) -> pb.ForwardBackwardRequest:
    """Parse the protobuf body.

    Raises:
        RefusalError: if it is not a ForwardBackwardRequest.
    """
    message = pb.ForwardBackwardRequest()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise RefusalError(
            "the body is not a protobuf ForwardBackwardRequest", found=str(error)[:200]
        ) from error
    return message


def decode_pass(message: pb.ForwardBackwardRequest, limits: Limits) -> PassRequest:
    """Turn a parsed request into arrays, checking every field.

    Raises:
        RefusalError: naming the first field that is not acceptable.
    """
    loss = losses.find_loss(message.loss_fn)
    config = losses.loss_config(message.loss_fn, _config_numbers(message))
    if not 1 <= len(message.data) <= MAX_DATUMS:
        raise RefusalError(
            "the number of datums is out of range",
            expected=f"1 to {MAX_DATUMS}",
            found=str(len(message.data)),
            where="data",
        )
    data = [
        _decode_datum(datum, loss.inputs, limits, f"data[{i}]")
        for i, datum in enumerate(message.data)
    ]
    return PassRequest(data, message.loss_fn, config, message.forward_only)


def _config_numbers(message: pb.ForwardBackwardRequest) -> dict[str, float]:
    numbers = {key: float(value) for key, value in message.loss_fn_config.items()}
    for key, value in message.loss_fn_config_v2.items():
        if value.WhichOneof("value") != "number":
            raise RefusalError(
                "a loss option must be a number",
                found=repr(value.text),
                where=f"loss_fn_config.{key}",
            )
        numbers[key] = float(value.number)
    return numbers


def _decode_datum(datum: Any, wanted: frozenset[str], limits: Limits, where: str) -> Datum:
    tokens = _decode_tokens(datum.model_input, where)
    given, needed = set(datum.loss_fn_inputs), wanted | {"target_tokens"}
    if given != needed:
        raise RefusalError(
            "the datum does not carry exactly the inputs of its loss",
            expected=", ".join(sorted(needed)),
            found=", ".join(sorted(given)) or "none",
            where=f"{where}.loss_fn_inputs",
        )
    arrays = {
        name: decode_tensor(tensor, f"{where}.loss_fn_inputs.{name}")
        for name, tensor in datum.loss_fn_inputs.items()
    }
    _check_lengths(tokens, arrays, limits, where)
    targets = _check_ids(arrays.pop("target_tokens"), limits, f"{where}.target_tokens")
    _check_ids(tokens, limits, f"{where}.model_input")
    inputs = {
        name: _check_floats(value, f"{where}.{name}") for name, value in sorted(arrays.items())
    }
    return Datum(tokens, targets, inputs)


def _decode_tokens(chunks: Sequence[Any], where: str) -> np.ndarray:
    parts: list[np.ndarray] = []
    for chunk in chunks:
        if not chunk.HasField("encoded_text") or len(chunk.encoded_text.tokens) % 4:
            raise RefusalError(
                "only text chunks of int32 token ids are taken",
                found=str(chunk)[:80],
                where=f"{where}.model_input",
            )
        parts.append(np.frombuffer(chunk.encoded_text.tokens, dtype="<i4"))
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


def decode_tensor(tensor: pb.Tensor, where: str) -> np.ndarray:
    """Return a dense one-dimensional tensor as an array.

    Raises:
        RefusalError: for sparse tensors, another rank or dtype, or bytes that do not fit.
    """
    dtype = _NUMPY.get(tensor.dtype)
    if tensor.WhichOneof("encoding") != "dense" or dtype is None:
        raise RefusalError(
            "the tensor is not dense float32, int64 or int32", found=str(tensor.dtype), where=where
        )
    if len(tensor.dense) % np.dtype(dtype).itemsize:
        raise RefusalError("the tensor's bytes do not fit its dtype", where=where)
    values = np.frombuffer(tensor.dense, dtype=dtype)
    if list(tensor.shape) not in ([], [len(values)]):
        raise RefusalError(
            "the tensor must have one dimension",
            expected=f"shape [{len(values)}]",
            found=str(list(tensor.shape)),
            where=where,
        )
    return values


def _check_lengths(
    tokens: np.ndarray, arrays: Mapping[str, np.ndarray], limits: Limits, where: str
) -> None:
    if not 1 <= len(tokens) <= limits.context_length:
        raise RefusalError(
            "the sequence does not fit the context",
            expected=f"1 to {limits.context_length} tokens",
            found=str(len(tokens)),
            where=f"{where}.model_input",
        )
    for name, values in arrays.items():
        if len(values) != len(tokens):
            raise RefusalError(
                "a loss input must have one value for each input token",
                expected=str(len(tokens)),
                found=str(len(values)),
                where=f"{where}.loss_fn_inputs.{name}",
            )


def _check_ids(values: np.ndarray, limits: Limits, where: str) -> np.ndarray:
    if values.dtype.kind != "i" or values.min() < 0 or values.max() >= limits.vocab_size:
        raise RefusalError(
            "token ids must be integers inside the vocabulary",
            expected=f"0 to {limits.vocab_size - 1}",
            found=f"{values.dtype} from {values.min()} to {values.max()}",
            where=where,
        )
    return values.astype(np.int64)


def _check_floats(values: np.ndarray, where: str) -> np.ndarray:
    if values.dtype != np.float32 or not np.isfinite(values).all():
        raise RefusalError(
            "a loss input must be finite float32 numbers",
            found=f"{values.dtype}, {int((~np.isfinite(values)).sum())} not finite",
            where=where,
        )
    return values


def encode_pass(result: PassResult) -> bytes:
    """Serialise log-probabilities (float32, one array a datum) and metrics."""
    offsets = np.cumsum([0] + [part.nbytes for part in result.logprobs], dtype=np.int64)
    record = pb.ArrayRecord(type_tag="LogprobsOutput", num_datums=len(result.logprobs))
    record.fields["logprobs"].CopyFrom(
        pb.BatchedTensor(
            data=b"".join(part.tobytes() for part in result.logprobs),
            offsets=offsets.tobytes(),
            dtype=pb.DTYPE_FLOAT32,
        )
    )
    output = pb.ForwardBackwardOutput(
        loss_fn_output_type="LogprobsOutput", loss_fn_outputs=[record], metrics=result.metrics
    )
    return output.SerializeToString()
