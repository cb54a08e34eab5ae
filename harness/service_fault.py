"""What an answer or an error of the service means for a run: wait, stop at once, or give up.

The SDK retries on its own and hides much of it: 402 for an hour, 429 on sampling and 5xx on results
for ever (tinker-notes §4). So answers are judged where they arrive (:mod:`harness.answer_log`) and
errors where a stage ends. Pure functions, but for the secrets they leave out; contract §10.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import httpx
import tinker
from google.protobuf.message import DecodeError
from tinker.lib.retryable_exception import RetryableException

from harness.errors import RefusedError, ServiceError
from harness.secrets_out import without_secrets

MOST_CHARACTERS = 200
REAL_STATUS = "harness_status"
"""Extension of a response whose status was handed to the SDK as another one."""
_RESULTS = "POST /api/v1/retrieve_future"
_SPEAKERS = frozenset({"tinker", "tinker_cookbook", "harness", "tests"})
_CAPACITY_WORDS = re.compile(r"capacity[ _-]+exhausted", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?]+(?=\s|$)")


class FaultKind(StrEnum):
    """Why the service did not do what was asked."""

    CAPACITY = "capacity"
    BILLING = "billing"
    GONE = "gone"
    UNREACHABLE = "unreachable"
    FAULTY = "faulty"


EXIT_CODES = {
    FaultKind.UNREACHABLE: 69,
    FaultKind.CAPACITY: 75,
    FaultKind.FAULTY: 76,
    FaultKind.GONE: 76,
    FaultKind.BILLING: 77,
}
"""How a stage's process ends, after sysexits.h: 75 is a temporary failure, to be tried again."""

REFUSALS = frozenset({FaultKind.CAPACITY, FaultKind.BILLING})
"""Answers that say nothing of what was asked."""

_STATUS_KINDS = {
    402: FaultKind.BILLING,
    410: FaultKind.GONE,
    429: FaultKind.CAPACITY,
    501: FaultKind.FAULTY,
    503: FaultKind.CAPACITY,
}
_PROBLEMS = {
    FaultKind.CAPACITY: "the service has no capacity for this run",
    FaultKind.BILLING: "the service asks for billing to be settled (402)",
    FaultKind.GONE: "the service lost the session, model or request (410)",
    FaultKind.UNREACHABLE: "the service cannot be reached",
    FaultKind.FAULTY: "the service answered with an error",
}
_FIXES = {
    FaultKind.CAPACITY: "nothing: it is asked again; or come back later",
    FaultKind.BILLING: "settle the account, then run the same command again",
    FaultKind.GONE: "run the same command again: it continues from what is durable",
    FaultKind.UNREACHABLE: "start the service, or correct TINKER_BASE_URL, and run it again",
    FaultKind.FAULTY: "read the stage's log in the run's folder, then run the same command again",
}


class ServiceFaultError(ServiceError):
    """A judged fault of the service.

    Attributes:
        kind: what it means.
    """

    def __init__(self, kind: FaultKind, message: str, where: str) -> None:
        self.kind = kind
        super().__init__(
            _PROBLEMS[kind],
            expected="an answer to the request",
            found=message,
            where=where,
            fix=_FIXES[kind],
        )


class RefusedFaultError(ServiceFaultError, RefusedError):
    """A judged fault of the service that says nothing of what was asked."""


@dataclass(frozen=True)
class Fault:
    """A judged answer or error.

    Attributes:
        kind: what it means.
        message: what the service or the SDK said, one short clause.
    """

    kind: FaultKind
    message: str

    def error(self, where: str) -> ServiceFaultError:
        """Return the error that says so."""
        made = RefusedFaultError if self.kind in REFUSALS else ServiceFaultError
        return made(self.kind, self.message, where)


def kind_of_answer(status: int, text: str) -> FaultKind | None:
    """Judge an HTTP answer; None for success and for what is left to the SDK's own retries.

    Args:
        status: the HTTP status.
        text: the body of an answer that is an error.
    """
    if status in _STATUS_KINDS:
        return _STATUS_KINDS[status]
    if status >= 400 and _CAPACITY_WORDS.search(text):
        return FaultKind.CAPACITY
    return None


def fault_of_error(error: BaseException) -> Fault | None:
    """Judge the error that ended a stage; None when the service is not what failed."""
    for part in causes_of(error):
        if kind := _kind_of_exception(part):
            return Fault(kind, one_clause(_told(part)))
    return None


def unusable_answer(error: Exception, last_answer: str) -> Fault | None:
    """Judge an error that the SDK raised while it read an answer; None for any other.

    The SDK takes a service of its own generation for granted: a field that is missing ends in an
    assertion, a KeyError or a ValueError of its own code.

    Args:
        error: what ended the work.
        last_answer: route and status of the answer before it: with several requests under way
            it need not be the one that could not be read, so it is only said to come before.
    """
    if not any(_raised_by_sdk(part) for part in causes_of(error)):
        return None
    said = " ".join(str(error).split()) or "no message"
    return Fault(
        FaultKind.FAULTY,
        one_clause(f"after {last_answer}, unusable to the SDK: {type(error).__name__}: {said}"),
    )


def _raised_by_sdk(error: BaseException) -> bool:
    """Return whether the innermost frame of the SDK or of its callers is the SDK's."""
    named = [
        str(frame.f_globals.get("__name__", "")).partition(".")[0]
        for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    ours = [name for name in named if name in _SPEAKERS]
    return bool(ours) and ours[-1] == "tinker"


def _told(error: BaseException) -> str:
    """Return what an error says, with the route of the answer where it knows one."""
    name = type(error).__name__
    if isinstance(error, tinker.APIStatusError):
        status = error.response.extensions.get(REAL_STATUS, error.status_code)
        return f"{name}: {route_of(error.request)} answered {status}: {error}"
    if isinstance(error, tinker.RequestFailedError):
        # The SDK reads the results of all futures from one route and raises this for no other
        # answer; the last answer of the log may be another request's.
        return f"{name}: {_RESULTS} said of {error.request_id}: {error.message}"
    return f"{name}: {error}"


def route_of(request: httpx.Request) -> str:
    """Return the method and path of a request, with what a future's result is of."""
    asked = request.headers.get("X-Tinker-Request-Type")
    return f"{request.method} {request.url.path}{f' ({asked})' if asked else ''}"


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, what it was raised from, and the members of groups."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from causes_of(member)
        error = error.__cause__


def _kind_of_exception(error: BaseException) -> FaultKind | None:
    if isinstance(error, tinker.APIStatusError):
        return kind_of_answer(error.status_code, str(error)) or FaultKind.FAULTY
    if isinstance(error, tinker.RequestFailedError):
        exhausted = _CAPACITY_WORDS.search(str(error))
        return FaultKind.CAPACITY if exhausted else FaultKind.FAULTY
    if isinstance(error, tinker.APIConnectionError | httpx.TransportError):
        return FaultKind.UNREACHABLE
    if isinstance(error, RetryableException):
        return FaultKind.GONE
    if isinstance(error, tinker.TinkerError | DecodeError):
        return FaultKind.FAULTY
    return None


def one_clause(text: str) -> str:
    """Return text as one plain clause: one line, no secret or sentence end, cut to a length."""
    # Secrets first: of one that is cut in two, no later look would recognise the part that stays.
    line = " ".join(re.sub(r"[\x00-\x1f\x7f]+", " ", without_secrets(text)).split())
    line = line[:MOST_CHARACTERS]
    return _SENTENCE_END.sub(";", line).rstrip("; ")
