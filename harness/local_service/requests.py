"""The JSON bodies this service takes, field by field, nothing else.

Every model is strict and refuses unknown fields: a misspelt or newer option must fail loudly,
not be ignored. Options of the SDK that are not offered are present with their default as the
only allowed value, so that a stock client passes and a request that needs them is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from harness.digest import canonical_json, parse_json
from harness.errors import DocumentError
from harness.local_service.lora import MAX_RANK
from harness.local_service.refusals import RefusalError

Id = Annotated[str, Field(min_length=1, max_length=256)]
Number = Annotated[int, Field(ge=0, lt=2**63)]
_SeqId = Annotated[int, Field(ge=1, lt=2**31)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Text = Annotated[str, Field(max_length=4096)]

MAX_METADATA_BYTES = 64 * 1024
"""Largest user_metadata: it stays in memory as long as its session or model."""


def _small(metadata: dict[str, Any] | None) -> dict[str, Any] | None:
    size = len(canonical_json(metadata))
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"at most {MAX_METADATA_BYTES} bytes as JSON, found {size}")
    return metadata


_Metadata = Annotated[dict[str, Any] | None, AfterValidator(_small)]


class Body(BaseModel):
    """Base of all bodies: strict types, no unknown fields, finite numbers."""

    model_config = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False, frozen=True, protected_namespaces=()
    )


BodyT = TypeVar("BodyT", bound=Body)


def parse_body(kind: type[BodyT], data: bytes) -> BodyT:
    """Parse strict JSON into a body.

    Raises:
        RefusalError: naming the first field that is wrong and what is allowed there.
    """
    try:
        return kind.model_validate(parse_json(data, where="request body"))
    except DocumentError as error:
        raise RefusalError(str(error)) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "request body"
        raise RefusalError(
            "the request has a field this service does not take",
            expected=first["msg"],
            found=_shown(first["input"], where),
            where=where,
        ) from error


def _shown(value: Any, where: str) -> str:
    """Return a refused value for the message; an access token is not repeated."""
    return "a value (not shown)" if "token" in where.rsplit(".", 1)[-1] else repr(value)[:200]


class CreateSession(Body):
    """POST create_session."""

    tags: Annotated[list[Text], Field(max_length=64)] = []
    user_metadata: _Metadata = None
    sdk_version: Text = ""
    project_id: Text | None = None
    display_name: Text | None = None
    type: Literal["create_session"] = "create_session"


class Heartbeat(Body):
    """POST session_heartbeat."""

    session_id: Id
    type: Literal["session_heartbeat"] = "session_heartbeat"


class FinishReason(Body):
    """How the client says its session ended."""

    type: Literal["success", "errored", "interrupted"]


class FinishSession(Body):
    """POST sessions/{id}/finish."""

    reason: FinishReason
    detail: Text | None = None


class Lora(Body):
    """Shape and seed of a new adapter."""

    rank: Annotated[int, Field(ge=1, le=MAX_RANK)]
    seed: Seed | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class AdamWConfig(Body):
    """The only optimizer there is."""

    type: Literal["adamw"] = "adamw"


class CreateModel(Body):
    """POST create_model."""

    session_id: Id
    model_seq_id: Number
    base_model: Text
    user_metadata: _Metadata = None
    lora_config: Lora
    optimizer_config: AdamWConfig = AdamWConfig()
    type: Literal["create_model"] = "create_model"


class GetInfo(Body):
    """POST get_info."""

    model_id: Id
    type: Literal["get_info"] = "get_info"


class Adam(Body):
    """One AdamW step's hyperparameters, with the SDK's defaults."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


class OptimStep(Body):
    """POST optim_step."""

    model_id: Id
    seq_id: _SeqId
    adam_params: Adam
    type: Literal["optim_step"] = "optim_step"


class SaveWeights(Body):
    """POST save_weights."""

    model_id: Id
    path: Text
    seq_id: _SeqId
    ttl_seconds: int | None = None
    overwrite: bool = False
    user_metadata: _Metadata = None
    type: Literal["save_weights"] = "save_weights"


class SaveForSampler(Body):
    """POST save_weights_for_sampler: ``path`` for a checkpoint, the number for a session."""

    model_id: Id
    path: Text | None = None
    sampling_session_seq_id: Number | None = None
    kind: Literal["snapshot"] = "snapshot"
    seq_id: _SeqId
    ttl_seconds: int | None = None
    user_metadata: _Metadata = None
    type: Literal["save_weights_for_sampler"] = "save_weights_for_sampler"


class SaveExternal(Body):
    """POST save_weights_external; encryption is not offered."""

    model_id: Id
    path: Text
    seq_id: _SeqId
    ttl_seconds: int | None = None
    age_encryption_recipients: Annotated[list[str], Field(max_length=0)] | None = None
    type: Literal["save_weights_external"] = "save_weights_external"


class LoadWeights(Body):
    """POST load_weights: by session and number (new model), or by model and seq_id."""

    model_id: Id | None = None
    seq_id: _SeqId | None = None
    session_id: Id | None = None
    model_seq_id: Number | None = None
    base_model: Text | None = None
    user_metadata: _Metadata = None
    path: Text
    optimizer: bool
    optimizer_config: AdamWConfig | None = None
    weights_access_token: None = None
    type: Literal["load_weights"] = "load_weights"


class RetrieveFuture(Body):
    """POST retrieve_future."""

    request_id: Id
    allow_metadata_only: bool = False


class WeightsInfo(Body):
    """POST weights_info."""

    tinker_path: Text


class SetTtl(Body):
    """PUT a checkpoint's ttl; null removes the expiry."""

    ttl_seconds: int | None = None
