"""What a service does not offer is unknown: neither a pass, nor a fail, nor a traceback.

An error of a live gate becomes a sentence with route and answer when the service refused a request
for good, gave a future that failed, or answered without what is measured with. Whatever was
measured and missed its rule stays a fail, and so does every defect of our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
import numpy as np
import numpy.typing as npt
import tinker

from harness.answer_log import NO_ANSWER, looked_at
from harness.errors import GateError, NotOfferedError
from harness.service_fault import (
    REAL_STATUS,
    FaultKind,
    ServiceFaultError,
    causes_of,
    fault_of_error,
    route_of,
    unusable_answer,
)

BEGINNING = "not offered: "
_LOCKED_OUT = frozenset({401, 403})
"""Answers to a wrong key: they say nothing of what is offered."""
_FOR_GOOD = 501
_AS = 404
"""How the SDK is handed a 501: it would ask again for minutes, for a future's result for ever."""
_HOUSEKEEPING = ("/telemetry", "/session_heartbeat", "/client/config", "/client/dynamic_config")


class LastAnswer:
    """Remembers the last answer of the service, for errors that do not say what they are about.

    Attributes:
        text: route and status.
    """

    def __init__(self) -> None:
        self.text = NO_ANSWER


@contextmanager
def answers_noted(last: LastAnswer) -> Iterator[None]:
    """Let every SDK client that is made in the block note its answers."""

    async def look(response: httpx.Response) -> None:
        if response.request.url.path.endswith(_HOUSEKEEPING):
            return
        last.text = f"{route_of(response.request)} answered {response.status_code}"
        if response.status_code == _FOR_GOOD:
            response.extensions[REAL_STATUS] = _FOR_GOOD
            response.status_code = _AS

    with looked_at(look):
        yield


def not_offered(error: BaseException, last: LastAnswer) -> str | None:
    """Return what the service does not offer, with route and answer; None for any other error.

    Args:
        error: what ended a phase of a live gate.
        last: the answer before it.
    """
    if isinstance(error, GateError) or not isinstance(error, Exception):
        return None
    for part in causes_of(error):
        if isinstance(part, NotOfferedError):
            return f"{BEGINNING}{part}"
        if isinstance(part, ServiceFaultError):
            return f"{BEGINNING}{part.found}" if part.kind is FaultKind.FAULTY else None
        if isinstance(part, tinker.APIStatusError) and part.status_code in _LOCKED_OUT:
            return None
    fault = fault_of_error(error) or unusable_answer(error, last.text)
    if fault is None or fault.kind is not FaultKind.FAULTY:
        return None
    named = "/api/v1/" in fault.message
    return f"{BEGINNING}{fault.message}" + ("" if named else f" (after {last.text})")


def lacks(route: str, what: str) -> NotOfferedError:
    """Return the error for an answer without what is measured with."""
    return NotOfferedError(f"{route} answered without {what}")


def metric_of(output: tinker.ForwardBackwardOutput, name: str) -> float:
    """Return a metric of a pass.

    Raises:
        NotOfferedError: when the service reports none of that name.
    """
    if name not in output.metrics:
        given = ", ".join(sorted(output.metrics)) or "none"
        raise lacks("forward_backward", f"the metric {name} (metrics: {given})")
    return output.metrics[name]


def target_logprobs(
    output: tinker.ForwardBackwardOutput, sizes_D: Sequence[int]
) -> list[npt.NDArray[np.float64]]:
    """Return each datum's log-probabilities, its last ``size`` ones, float64.

    Args:
        output: of a pass over as many datums as there are sizes.
        sizes_D: how many of its last tokens are wanted of each datum.

    Raises:
        NotOfferedError: when an output, or a token's log-probability, is missing.
    """
    given = len(output.loss_fn_outputs)
    if given != len(sizes_D):
        raise lacks("forward_backward", f"one output a datum: {given} for {len(sizes_D)}")
    found: list[npt.NDArray[np.float64]] = []
    for one, size in zip(output.loss_fn_outputs, sizes_D, strict=True):
        if "logprobs" not in one:
            raise lacks("forward_backward", f"logprobs (outputs: {', '.join(sorted(one))})")
        values_T = one["logprobs"].to_numpy().astype(np.float64).reshape(-1)
        if len(values_T) < size:
            raise lacks("forward_backward", f"logprobs of {size} targets: {len(values_T)} given")
        found.append(values_T[-size:] if size else values_T[:0])
    return found


def drawn_logprobs(sequence: tinker.SampledSequence) -> list[float]:
    """Return the log-probabilities that came with a completion's tokens.

    Raises:
        NotOfferedError: when there is not one for each token.
    """
    given = list(sequence.logprobs or [])
    if len(given) != len(sequence.tokens):
        raise lacks("asample", f"a log-probability a token: {len(given)}/{len(sequence.tokens)}")
    return given
