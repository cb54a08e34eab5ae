"""What the service does with datums, done in float64 on the small policy (contract §4).

:class:`LocalTraining` takes the place of the SDK's training client in the stock ``train_step``, so
everything up to the wire is the stock loop's own code, mask removal included.

Shape suffixes: ``_D`` datums, ``_T`` tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tinker
import torch

from harness.errors import GateError
from harness.gates.parity_policy import Policy, flat
from harness.local_service import losses


@dataclass(frozen=True, eq=False)
class LossAndGradient:
    """One way's result, with what was sent to get it.

    Attributes:
        loss: float64, summed over tokens and datums.
        gradient: of every parameter, float64, one flat vector.
        datums: what was differentiated: the wire's datums, or the reference's turns.
    """

    loss: float
    gradient: torch.Tensor
    datums: Sequence[Any]


def wire_loss(policy: Policy, data_D: Sequence[tinker.Datum]) -> torch.Tensor:
    """Return the importance-sampling loss of datums as they are on the wire, differentiable.

    The formula is the embedded service's own; the wire has no mask, and none is used.
    """
    sequences_D = [
        (datum.model_input.to_ints(), datum.loss_fn_inputs["target_tokens"].tolist())
        for datum in data_D
    ]
    terms = [
        losses.token_losses(
            "importance_sampling",
            logprobs_T,
            {
                name: datum.loss_fn_inputs[name].to_torch().double()
                for name in ("logprobs", "advantages")
            },
            {},
        ).sum()
        for logprobs_T, datum in zip(policy.logprobs_D(sequences_D), data_D, strict=True)
    ]
    return torch.stack(terms).sum()


class LocalTraining:
    """Takes the place of the service's training client in the stock ``train_step``.

    Args:
        policy: the model that is differentiated; it never moves.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.results: list[LossAndGradient] = []

    async def forward_backward_async(
        self, data: list[tinker.Datum], loss_fn: str, loss_fn_config: Any = None
    ) -> _Done:
        """Differentiate the loss of the datums as they were sent."""
        if loss_fn != "importance_sampling" or loss_fn_config is not None:
            raise GateError(
                "parity is defined for one loss",
                expected="importance_sampling without options",
                found=f"{loss_fn} {loss_fn_config}",
            )
        loss = wire_loss(self.policy, data)
        gradient = flat(self.policy.gradient([loss]))
        self.results.append(LossAndGradient(float(loss.detach()), gradient, data))
        return _Done(
            tinker.ForwardBackwardOutput(
                loss_fn_output_type="TensorData", loss_fn_outputs=[], metrics={}
            )
        )

    async def optim_step_async(self, params: tinker.AdamParams) -> _Done:  # noqa: ARG002
        """Accept the step; what is compared is the gradient it would have used."""
        return _Done(tinker.OptimStepResponse())


@dataclass(frozen=True)
class _Done:
    """A future whose result is there."""

    result: Any

    async def result_async(self) -> Any:
        return self.result
