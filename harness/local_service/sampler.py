"""Continuous batching: rows of any number of requests, on one set of weights, decoded together.

A row is one sequence being sampled. Rows join whenever they arrive and leave when they finish;
nothing about a row's result depends on its neighbours (`draw.py`, `decoder.py`).

Log-probabilities returned with tokens are those of the model itself (temperature 1, whole
vocabulary), whatever temperature, top_k or top_p chose the token. The SDK describes a returned
log-probability as "the model's logprob", and the importance ratio of the losses needs that one.

Legend: `_R` rows, `_P` distinct prompts, `_S` prompt positions, `_V` vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from harness.local_service import decoder, draw
from harness.local_service.decoder import DecoderWeights
from harness.local_service.kv_cache import KvCache

MAX_ROWS = 256
"""Rows decoded at once; more wait. Bounds the cache's memory."""

PREFILL_TOKENS = 16_384


@dataclass(frozen=True)
class StopRule:
    """When a sequence ends early: on one of ``ids``, or once ``strings`` occur in its text.

    ``decode`` turns token ids into text; it is only called when there are strings.
    """

    ids: frozenset[int]
    strings: tuple[str, ...] = ()
    decode: Callable[[list[int]], str] = field(default=lambda _ids: "")

    def ends(self, tokens: list[int]) -> bool:
        """Whether the sequence stops after its last token (which is kept)."""
        if tokens[-1] in self.ids:
            return True
        return bool(self.strings) and any(s in self.decode(tokens) for s in self.strings)


@dataclass
class Row:
    """One sequence: its prompt, how it is drawn, and what came out so far."""

    prompt: list[int]
    max_tokens: int
    params: draw.DrawParams
    stop: StopRule
    stream: draw.UniformStream
    want_prompt: bool = False
    topk_prompt: int = 0
    done: Callable[[], None] = field(default=lambda: None)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stopped: bool = False
    prompt_logprobs: torch.Tensor | None = None
    prompt_topk: tuple[torch.Tensor, torch.Tensor] | None = None

    def accept(self, token: int, logprob: float) -> bool:
        """Append one token; return whether the sequence is finished."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.stopped = self.stop.ends(self.tokens)
        return self.stopped or len(self.tokens) >= self.max_tokens


class SamplingBatch:
    """All rows that wait for, or are being decoded with, one snapshot's weights."""

    def __init__(self, weights: DecoderWeights) -> None:
        self.weights = weights
        self.waiting: deque[Row] = deque()
        self.rows: list[Row] = []
        self.cache = KvCache(len(weights.layers), weights.kv_heads, weights.head_size)

    @property
    def busy(self) -> bool:
        """Whether any row is unfinished."""
        return bool(self.waiting or self.rows)

    def advance(self) -> None:
        """Let waiting rows join, then give every row one more token."""
        if self.waiting and len(self.rows) < MAX_ROWS:
            self._join(self._next_joiners())
        elif self.rows:
            self._step()

    def _next_joiners(self) -> list[Row]:
        joiners: list[Row] = []
        longest = 0
        while self.waiting and len(self.rows) + len(joiners) < MAX_ROWS:
            longest = max(longest, len(self.waiting[0].prompt))
            if joiners and longest * (len(joiners) + 1) > PREFILL_TOKENS:
                break
            joiners.append(self.waiting.popleft())
        return joiners

    def _join(self, joiners: list[Row]) -> None:
        longest = max(len(row.prompt) for row in joiners)
        # The rollouts of a group share their prompt: it is run once.
        places = {prompt: p for p, prompt in enumerate({tuple(row.prompt): 0 for row in joiners})}
        place_R = torch.tensor([places[tuple(row.prompt)] for row in joiners])
        tokens_PS = torch.zeros(len(places), longest, dtype=torch.long)
        for prompt, p in places.items():
            tokens_PS[p, : len(prompt)] = torch.tensor(prompt)
        hidden_P, filled_P = decoder.prefill(self.weights, tokens_PS)
        hidden = hidden_P[place_R]
        for r, row in enumerate(joiners):
            if row.want_prompt or row.topk_prompt:
                score_prompt(self.weights, hidden[r], row)
        first = len(self.rows)
        self.cache.reserve(first + len(joiners), longest + 1)
        self.cache.put(first, [(keys[place_R], values[place_R]) for keys, values in filled_P])
        self.rows.extend(joiners)
        last = torch.tensor([len(row.prompt) - 1 for row in joiners])
        self._draw(first, decoder.logits(self.weights, hidden[torch.arange(len(joiners)), last]))

    def _step(self) -> None:
        tokens_R = torch.tensor([row.tokens[-1] for row in self.rows])
        position_R = torch.tensor([len(row.prompt) + len(row.tokens) - 1 for row in self.rows])
        self.cache.reserve(len(self.rows), int(position_R.max()) + 1)
        self._draw(0, decoder.decode_step(self.weights, self.cache, tokens_R, position_R))

    def _draw(self, first: int, logits_RV: torch.Tensor) -> None:
        """Give rows first… one token each, and let the finished ones leave."""
        rows = self.rows[first:]
        tokens_R = draw.draw_tokens(
            logits_RV, [row.params for row in rows], [row.stream for row in rows]
        )
        logprobs_R = token_logprobs(logits_RV, tokens_R)
        pairs = zip(rows, tokens_R.tolist(), logprobs_R.tolist(), strict=True)
        finished = [first + r for r, (row, *drawn) in enumerate(pairs) if row.accept(*drawn)]
        for slot in reversed(finished):
            self._leave(slot)

    def _leave(self, slot: int) -> None:
        row, last = self.rows[slot], len(self.rows) - 1
        if slot != last:
            self.cache.move(last, slot)
            self.rows[slot] = self.rows[last]
        self.rows.pop()
        row.done()


def token_logprobs(logits_RV: torch.Tensor, tokens_R: torch.Tensor) -> torch.Tensor:
    """Return log p(token) of the untempered distribution; (R, V), (R,) -> (R,)."""
    return logits_RV.gather(1, tokens_R[:, None])[:, 0] - logits_RV.logsumexp(-1)


def score_prompt(weights: DecoderWeights, hidden_SH: torch.Tensor, row: Row) -> None:
    """Fill in a row's prompt log-probabilities: position 0 has no context and is NaN."""
    size = len(row.prompt)
    logprobs_SV = decoder.logits(weights, hidden_SH[: size - 1]).log_softmax(-1)
    targets = torch.tensor(row.prompt[1:], dtype=torch.long)
    if row.want_prompt:
        scored = logprobs_SV.gather(1, targets[:, None])[:, 0]
        row.prompt_logprobs = torch.cat(
            [torch.full((1,), float("nan"), dtype=scored.dtype), scored]
        )
    if row.topk_prompt:
        top = logprobs_SV.topk(row.topk_prompt)
        row.prompt_topk = (top.indices, top.values)
