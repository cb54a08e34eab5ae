"""The JSON bodies this service takes, field by field, nothing else.

Every model is strict and refuses unknown fields: a misspelt or newer option must fail loudly,
not be ignored. Options of the SDK that are not offered are present with their default as the
only allowed value, so that a stock client passes and a request that needs them is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.digest import parse_json
from harness.errors import DocumentError
from harness.local_service.lora import MAX_RANK
from harness.local_service.refusals import Refusal

_Id = Annotated[str, Field(min_length=1, max_length=256)]
_Number = Annotated[int, Field(ge=0, lt=2**63)]
_SeqId = Annotated[int, Field(ge=1, lt=2**31)]
_Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Metadata = dict[str, Any] | None


class Body(BaseModel):
    """Base of all bodies: strict types, no unknown fields, finite numbers."""

    model_config = ConfigDict(
        strict=True, extra="forbid", allow_inf_nan=False, frozen=True, protected_namespaces=()
    )


BodyT = TypeVar("BodyT", bound=Body)


def parse_body(kind: type[BodyT], data: bytes) -> BodyT:
    """Parse strict JSON into a body.

    Raises:
        Refusal: naming the first field that is wrong and what is allowed there.
    """
    try:
        return kind.model_validate(parse_json(data, where="request body"))
    except DocumentError as error:
        raise Refusal(str(error)) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise Refusal(
            "the request has a field this service does not take",
            expected=first["msg"],
            found=repr(first["input"])[:200],
            where=".".join(map(str, first["loc"])) or "request body",
        ) from error


class CreateSession(Body):
    tags: list[str] = []
    user_metadata: _Metadata = None
    sdk_version: str = ""
    project_id: str | None = None
    display_name: str | None = None
    type: Literal["create_session"] = "create_session"


class Heartbeat(Body):
    session_id: _Id
    type: Literal["session_heartbeat"] = "session_heartbeat"


class FinishReason(Body):
    type: Literal["success", "errored", "interrupted"]


class FinishSession(Body):
    reason: FinishReason
    detail: str | None = None


class Lora(Body):
    rank: Annotated[int, Field(ge=1, le=MAX_RANK)]
    seed: _Seed | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class AdamWConfig(Body):
    type: Literal["adamw"] = "adamw"


class CreateModel(Body):
    session_id: _Id
    model_seq_id: _Number
    base_model: str
    user_metadata: _Metadata = None
    lora_config: Lora
    optimizer_config: AdamWConfig = AdamWConfig()
    type: Literal["create_model"] = "create_model"


class GetInfo(Body):
    model_id: _Id
    type: Literal["get_info"] = "get_info"


class Adam(Body):
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


class OptimStep(Body):
    model_id: _Id
    seq_id: _SeqId
    adam_params: Adam
    type: Literal["optim_step"] = "optim_step"


class SaveWeights(Body):
    model_id: _Id
    path: str
    seq_id: _SeqId
    ttl_seconds: int | None = None
    overwrite: bool = False
    user_metadata: _Metadata = None
    type: Literal["save_weights"] = "save_weights"


class SaveForSampler(Body):
    model_id: _Id
    path: str | None = None
    sampling_session_seq_id: _Number | None = None
    kind: Literal["snapshot"] = "snapshot"
    seq_id: _SeqId
    ttl_seconds: int | None = None
    user_metadata: _Metadata = None
    type: Literal["save_weights_for_sampler"] = "save_weights_for_sampler"


class SaveExternal(Body):
    model_id: _Id
    path: str
    seq_id: _SeqId
    ttl_seconds: int | None = None
    age_encryption_recipients: Annotated[list[str], Field(max_length=0)] | None = None
    type: Literal["save_weights_external"] = "save_weights_external"


class LoadWeights(Body):
    model_id: _Id | None = None
    seq_id: _SeqId | None = None
    session_id: _Id | None = None
    model_seq_id: _Number | None = None
    base_model: str | None = None
    user_metadata: _Metadata = None
    path: str
    optimizer: bool
    optimizer_config: AdamWConfig | None = None
    weights_access_token: None = None
    type: Literal["load_weights"] = "load_weights"


class CreateSamplingSession(Body):
    session_id: _Id
    sampling_session_seq_id: _Number
    base_model: str | None = None
    model_path: str | None = None
    type: Literal["create_sampling_session"] = "create_sampling_session"


class TextChunk(Body):
    tokens: list[int]
    type: Literal["encoded_text"] = "encoded_text"


class Prompt(Body):
    chunks: Annotated[list[TextChunk], Field(max_length=4096)]

    def tokens(self) -> list[int]:
        """All token ids in order."""
        return [token for chunk in self.chunks for token in chunk.tokens]


class Sampling(Body):
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: _Seed | None = None
    stop: str | list[str] | list[int] | None = None
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0


class Sample(Body):
    num_samples: Annotated[int, Field(ge=1, le=1024)] = 1
    prompt: Prompt
    sampling_params: Sampling
    base_model: None = None
    model_path: None = None
    sampling_session_id: _Id
    seq_id: _Number
    prompt_logprobs: bool = False
    topk_prompt_logprobs: Annotated[int, Field(ge=0, le=128)] = 0
    topk_sample_logprobs: Literal[0] = 0
    target_prompt_logprobs: None = None
    prompt_alt_tokens_k: Literal[0] = 0
    prompt_logprobs_last_n: None = None
    record_stability_info: Literal[False] = False
    type: Literal["sample"] = "sample"


class RetrieveFuture(Body):
    request_id: _Id
    allow_metadata_only: bool = False


class WeightsInfo(Body):
    tinker_path: str


class SetTtl(Body):
    ttl_seconds: int | None = None
