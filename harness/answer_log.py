"""Inside a stage's process: what the service answered, written down as it arrives.

The SDK's retries stay as they are; this only looks. One line an event, for the process that watches
the stage (:mod:`harness.stage_watch`): a refusal by endpoint (at most one a second), the first good
answer of an endpoint and the first after a refusal, and every session that was opened.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx

from harness.digest import parse_json
from harness.errors import DocumentError, StoreError
from harness.redact import Redactor
from harness.sdk_clients import each_new_client
from harness.service_fault import Fault, kind_of_answer, one_clause
from harness.store import append_jsonl

LOG_VARIABLE = "HARNESS_ANSWER_LOG"
"""Names the file, in the environment of a stage's process."""

_OWN_BUSINESS = frozenset({"telemetry", "session_heartbeat", "healthz", "client"})
"""Endpoints of the SDK's housekeeping: their refusals stop no work."""
_PREFIX = "/api/v1/"
_LEAST_GAP_S = 1.0
NO_ANSWER = "no answer yet"


class SeesAnswers(Protocol):
    """Whatever is told of every answer, on a thread of the SDK."""

    def answer(self, path: str, status: int, text: str) -> None:
        """Note one HTTP answer; must not raise."""


def work_endpoint(path: str, *, opening: bool = False) -> str | None:
    """Return the endpoint of a request's path; None for the SDK's housekeeping.

    Args:
        path: the request's path.
        opening: whether a client is being opened: it waits for its configuration, which is
            housekeeping only when it is asked for again later.
    """
    endpoint = path.removeprefix(_PREFIX).partition("/")[0]
    needed = opening and endpoint == "client"
    work = path.startswith(_PREFIX) and (needed or endpoint not in _OWN_BUSINESS)
    return endpoint if work else None


class AnswerLog:
    """Writes one stage's events.

    Args:
        path: the file, appended to.
        redactor: keeps secrets out of what a service says.
        clock: seconds, for the pace of lines.
    """

    def __init__(
        self, path: Path, redactor: Redactor, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = path
        self.redactor = redactor
        self.clock = clock
        self.failure: StoreError | None = None
        self.last_answer = NO_ANSWER
        self._written_s: dict[str, float] = {}
        self._refused: dict[str, bool] = {}
        self._lock = threading.Lock()

    def answer(self, path: str, status: int, text: str) -> None:
        """Note one HTTP answer.

        Args:
            path: the request's path.
            status: the HTTP status.
            text: the body where the status is an error, and of create_session.
        """
        endpoint = work_endpoint(path)
        if endpoint is None:
            return
        kind = kind_of_answer(status, text)
        with self._lock:
            self.last_answer = f"{endpoint} answered {status}"
            if kind is not None:
                said = one_clause(self.redactor.redact(f"{status} {endpoint}: {text}"))
                self._refusal(endpoint, {"endpoint": endpoint, "fault": kind, "message": said})
            elif status < 400 and self._refused.get(endpoint, True):
                self._refused[endpoint] = False
                self._write({"endpoint": endpoint, "answered": True})
            if endpoint == "create_session" and status < 400:
                self._session(text)

    def ended(self, fault: Fault) -> None:
        """Note the fault that ended the stage."""
        with self._lock:
            said = one_clause(self.redactor.redact(fault.message))
            self._write({"endpoint": "stage", "fault": fault.kind, "message": said})

    def _refusal(self, endpoint: str, row: dict[str, Any]) -> None:
        now_s = self.clock()
        key = f"{endpoint} {row['fault']}"
        if now_s - self._written_s.get(key, -_LEAST_GAP_S) >= _LEAST_GAP_S:
            self._written_s[key] = now_s
            self._refused[endpoint] = True
            self._write(row)

    def _session(self, text: str) -> None:
        try:
            session_id = parse_json(text.encode(), where="create_session")["session_id"]
        except (DocumentError, KeyError, TypeError):
            # What is wrong with such an answer is for the SDK to say, which reads it next.
            return
        self._write({"session": str(session_id)})

    def _write(self, row: dict[str, Any]) -> None:
        try:
            append_jsonl(self.path, row)
        except StoreError as error:
            # Raised into the SDK it would be retried as a lost connection; the stage's end says it.
            self.failure = error


@contextmanager
def observed_answers(log: SeesAnswers) -> Iterator[None]:
    """Let every SDK client that is made in the block report its answers to ``log``."""

    async def look(response: httpx.Response) -> None:
        path = response.request.url.path
        readable = response.status_code >= 400 or path == f"{_PREFIX}create_session"
        text = (await response.aread()).decode("utf-8", "replace") if readable else ""
        log.answer(path, response.status_code, text)

    with looked_at(look):
        yield


@contextmanager
def looked_at(look: Callable[[httpx.Response], Awaitable[None]]) -> Iterator[None]:
    """Let every SDK client that is made in the block show its answers before it reads them."""

    def meet(client: Any) -> None:
        hooks = client._client.event_hooks
        client._client.event_hooks = {**hooks, "response": [*hooks["response"], look]}

    with each_new_client(meet):
        yield
