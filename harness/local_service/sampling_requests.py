"""The JSON bodies of sampling, as strict as the others (`requests.py`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.local_service.requests import Body, Id, Number, Seed, Text

MAX_STOPS = 64
_StopText = Annotated[str, Field(max_length=256)]


class CreateSamplingSession(Body):
    """POST create_sampling_session."""

    session_id: Id
    sampling_session_seq_id: Number
    base_model: Text | None = None
    model_path: Text | None = None
    type: Literal["create_sampling_session"] = "create_sampling_session"


class TextChunk(Body):
    """Token ids."""

    tokens: list[int]
    type: Literal["encoded_text"] = "encoded_text"


class Prompt(Body):
    """A prompt of text chunks only."""

    chunks: Annotated[list[TextChunk], Field(max_length=4096)]

    def tokens(self) -> list[int]:
        """All token ids in order."""
        return [token for chunk in self.chunks for token in chunk.tokens]


class Sampling(Body):
    """Sampling parameters; see `draw` and `sampler` for their meaning."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: Seed | None = None
    stop: (
        _StopText
        | Annotated[list[_StopText], Field(max_length=MAX_STOPS)]
        | Annotated[list[int], Field(max_length=MAX_STOPS)]
        | None
    ) = None
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0


class Sample(Body):
    """POST asample."""

    num_samples: Annotated[int, Field(ge=1, le=1024)] = 1
    prompt: Prompt
    sampling_params: Sampling
    base_model: None = None
    model_path: None = None
    sampling_session_id: Id
    seq_id: Number
    prompt_logprobs: bool = False
    topk_prompt_logprobs: Annotated[int, Field(ge=0, le=128)] = 0
    topk_sample_logprobs: Literal[0] = 0
    target_prompt_logprobs: None = None
    prompt_alt_tokens_k: Literal[0] = 0
    prompt_logprobs_last_n: None = None
    record_stability_info: Literal[False] = False
    type: Literal["sample"] = "sample"
