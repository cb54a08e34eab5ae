"""Did a rollout come from the prompt it is filed under? (issue 5, part 2)

An answer that belongs to another request is well formed: it grades, it trains, and it is wrong. Two
things give it away. The trainer, which scores the tokens after the right prompt, disagrees with the
log-probabilities that came with them; and an answer given twice carries the same log-probabilities,
bit for bit, to different prompts. Rollouts that failed are counted here too: they are never zeros.

Shape suffixes: ``_D`` datums, ``_T`` tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tinker
import torch

from harness.errors import ArmError
from harness.service_fault import fault_of_error, one_clause

FEWEST_TOKENS = 8
"""Shorter rollouts may share their log-probabilities by chance, as "yes" and a stop token."""


@dataclass(frozen=True)
class GapBounds:
    """How far sampler and trainer may be apart on one rollout, in nats.

    Attributes:
        token: largest |sampling − training| of a token.
        mean: mean of the same over the rollout.
    """

    token: float
    mean: float


EXACT_BOUNDS = GapBounds(token=1e-2, mean=1e-3)
"""Embedded service: honest gaps are 1e-5, rounding of float32."""
SHARED_BOUNDS = GapBounds(token=float("inf"), mean=0.5)
"""Others compute sampler and trainer in bfloat16 with other kernels: single unlikely tokens may be
far off. Their gate allows a mean of 0.02; another prompt's answer is whole nats away."""


def refuse_foreign_rollouts(
    data_D: Sequence[tinker.Datum],
    training_logprobs_D: Sequence[torch.Tensor],
    bounds: GapBounds,
    where: str,
) -> None:
    """Refuse a step in which a rollout belongs to another prompt than its own.

    Args:
        data_D: what was sent, a rollout each.
        training_logprobs_D: what the trainer returned, one value a token.
        bounds: of the service.
        where: arm and step.

    Raises:
        ArmError: naming the rollout.
    """
    seen: dict[bytes, tuple[int, bytes]] = {}
    for index, (datum, trained_T) in enumerate(zip(data_D, training_logprobs_D, strict=True)):
        action_T = datum.loss_fn_inputs["mask"].to_torch().numpy() > 0
        sampled = datum.loss_fn_inputs["logprobs"].to_torch().numpy()[action_T]
        gap = np.abs(sampled.astype(np.float64) - trained_T.numpy().astype(np.float64)[action_T])
        if gap.size and (gap.max() > bounds.token or gap.mean() > bounds.mean):
            raise _foreign(
                f"|sampling - training| up to {bounds.token:g} a token, {bounds.mean:g} on average",
                f"rollout {index}: largest {gap.max():.3g}, mean {gap.mean():.3g} nats",
                where,
            )
        # Targets are one ahead: the first action is predicted after the prompt's last token.
        length = int(np.argmax(action_T)) + 1
        prompt = np.asarray(datum.model_input.to_ints())[:length].tobytes()
        first, first_prompt = seen.setdefault(sampled.tobytes(), (index, prompt))
        if sampled.size >= FEWEST_TOKENS and first_prompt != prompt:
            raise _foreign(
                "log-probabilities of its own for every prompt",
                f"rollouts {first} and {index} have the same, bit for bit, after other prompts",
                where,
            )


def _foreign(expected: str, found: str, where: str) -> ArmError:
    return ArmError(
        "a rollout does not belong to the prompt it was asked for",
        expected=expected,
        found=found,
        where=where,
        fix="pytest -m preflight: the service gives answers to other requests, or sampler and"
        " trainer disagree",
    )


def failure_row(
    error: Exception, arm: str, attempt: int, step: int, item_id: str
) -> dict[str, object]:
    """Return the row of a rollout that failed and why; it has no reward, not a zero one."""
    fault = fault_of_error(error)
    return {
        "arm": arm,
        "attempt": attempt,
        "step": step,
        "item_id": item_id,
        "reason": fault.kind.value if fault else type(error).__name__,
        "error": one_clause(fault.message if fault else f"{type(error).__name__}: {error}"),
    }
