"""Forward and backward passes of one adapter over a list of datums.

Datums are ordered by (length, content), cut into micro-batches under a token budget, padded on
the right and run through the network without a mask: attention is causal, so padding after a
sequence cannot reach it. The order depends on the datums alone, so the accumulated gradient has
the same bits however the request listed them, and ``loss:sum`` is an exactly rounded sum.

Legend: `_D` datums of a micro-batch, `_DT` padded tokens, `_T` their real tokens end to end.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from harness.local_service import losses
from harness.local_service.base_model import BaseModel
from harness.local_service.lora import Adapter, AdapterSwitch
from harness.local_service.refusals import RefusalError

TOKENS_PER_MICRO_BATCH = 8192
LOGITS_PER_MICRO_BATCH = 16_000_000


@dataclass(frozen=True)
class Datum:
    """One training sequence: ``tokens`` predict ``targets`` position by position (no shift).

    ``inputs`` holds the loss's own tensors, float32 (N,), as they came over the wire.
    """

    tokens: np.ndarray
    targets: np.ndarray
    inputs: Mapping[str, np.ndarray]

    def content_key(self) -> tuple[int, bytes]:
        """A sort key that depends on the datum only."""
        hasher = hashlib.sha256(self.tokens.tobytes() + self.targets.tobytes())
        for name in sorted(self.inputs):
            hasher.update(self.inputs[name].tobytes())
        return len(self.tokens), hasher.digest()


@dataclass(frozen=True)
class PassResult:
    """Log-probabilities of each datum's targets (in request order) and the pass's metrics."""

    logprobs: list[np.ndarray]
    metrics: dict[str, float]


class Trainer:
    """Runs passes on the shared network; the engine's thread is its only caller."""

    def __init__(self, base: BaseModel, switch: AdapterSwitch) -> None:
        self.base = base
        self.switch = switch

    def run(
        self,
        adapter: Adapter,
        data_D: Sequence[Datum],
        loss_fn: str,
        config: Mapping[str, float],
        *,
        backward: bool,
    ) -> PassResult:
        """Compute losses and log-probabilities; with ``backward`` add the gradient to the adapter.

        Raises:
            RefusalError: if a loss is not finite; the gradient is then as it was before.
        """
        kept = adapter.grad.clone()
        order = sorted(range(len(data_D)), key=lambda i: data_D[i].content_key())
        logprobs: dict[int, np.ndarray] = {}
        sums: dict[int, float] = {}
        self.switch.active = adapter
        try:
            for batch in micro_batches(order, data_D, self.base.vocab_size):
                self._pass(batch, data_D, (loss_fn, config), backward, logprobs, sums)
        except RefusalError:
            adapter.grad.copy_(kept)
            raise
        finally:
            self.switch.active = None
        tokens = float(sum(len(datum.targets) for datum in data_D))
        return PassResult(
            [logprobs[i] for i in range(len(data_D))],
            {"loss:sum": math.fsum(sums.values()), "tokens:sum": tokens},
        )

    def _pass(
        self,
        batch: list[int],
        data_D: Sequence[Datum],
        loss: tuple[str, Mapping[str, float]],
        backward: bool,
        logprobs: dict[int, np.ndarray],
        sums: dict[int, float],
    ) -> None:
        chosen = [data_D[i] for i in batch]
        lengths = [len(datum.tokens) for datum in chosen]
        with torch.set_grad_enabled(backward):
            logprobs_T = target_logprobs(self.base.network, chosen)
            loss_T = losses.token_losses(loss[0], logprobs_T, joined_inputs(chosen), loss[1])
        per_datum = [float(part.sum()) for part in loss_T.detach().split(lengths)]
        check_finite(batch, per_datum)
        if backward:
            loss_T.sum().backward()
        for i, part, total in zip(
            batch, logprobs_T.detach().split(lengths), per_datum, strict=True
        ):
            logprobs[i] = part.to(torch.float32).numpy().copy()
            sums[i] = total


def micro_batches(
    order: Sequence[int], data_D: Sequence[Datum], vocab_size: int
) -> list[list[int]]:
    """Cut datums, given shortest first, so that a padded batch stays within the token budget."""
    budget = max(1, min(TOKENS_PER_MICRO_BATCH, LOGITS_PER_MICRO_BATCH // vocab_size))
    batches: list[list[int]] = []
    for i in order:
        length = len(data_D[i].tokens)
        if batches and (len(batches[-1]) + 1) * length <= budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def target_logprobs(network: Any, data_D: Sequence[Datum]) -> torch.Tensor:
    """Return log p(target | tokens so far) for every position, datums end to end (T,)."""
    longest = max(len(datum.tokens) for datum in data_D)
    tokens_DT = torch.zeros(len(data_D), longest, dtype=torch.long)
    mask_DT = torch.zeros(len(data_D), longest, dtype=torch.bool)
    for row, datum in enumerate(data_D):
        tokens_DT[row, : len(datum.tokens)] = torch.from_numpy(datum.tokens)
        mask_DT[row, : len(datum.tokens)] = True
    logits_DTV = network(input_ids=tokens_DT, use_cache=False).logits
    targets_T = torch.from_numpy(np.concatenate([datum.targets for datum in data_D]))
    logits_TV = logits_DTV[mask_DT]
    return logits_TV.log_softmax(-1).gather(1, targets_T[:, None])[:, 0]


def joined_inputs(data_D: Sequence[Datum]) -> dict[str, torch.Tensor]:
    """Return each loss input of the batch end to end, float64 (T,)."""
    return {
        name: torch.from_numpy(np.concatenate([datum.inputs[name] for datum in data_D])).double()
        for name in data_D[0].inputs
    }


def check_finite(batch: Sequence[int], per_datum: Sequence[float]) -> None:
    """Refuse a pass whose loss overflowed, before its gradient can poison the adapter.

    Raises:
        RefusalError: naming the first datum (by its place in the request).
    """
    for i, total in zip(batch, per_datum, strict=True):
        if not math.isfinite(total):
            raise RefusalError(
                "the loss is not finite",
                expected="a finite sum of token losses",
                found=str(total),
                where=f"data[{i}]",
                fix="check logprobs: exp(trainer - given) overflows beyond a difference of 709",
            )
