"""The service's state, and the way from an accepted request to its future.

Handlers run on the event loop, jobs on the engine's thread; a job's outcome comes back to the
loop before anything shared is touched, so only the engine needs to know about threads.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.local_service.base_model import BaseModel
from harness.local_service.checkpoints import CheckpointStore
from harness.local_service.downloads import Downloads
from harness.local_service.engine import Engine, Job, Outcome
from harness.local_service.futures import JSON, Future, FutureStore, Result
from harness.local_service.idempotency import Idempotency
from harness.local_service.refusals import RefusalError, error_body
from harness.local_service.sessions import Model, SessionRegistry
from harness.local_service.text import Tokenizer
from harness.local_service.training import TrainingHost, TrainingState
from harness.local_service.wire import Limits

logger = logging.getLogger(__name__)

Encode = Callable[[Any], Result]


@dataclass(frozen=True)
class Settings:
    """What a service is started with.

    ``seed`` feeds the draws of requests without one; ``gateway`` are headers that every request
    must carry.
    """

    data_dir: Path
    api_key: str
    seed: int
    gateway: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Service:
    """One running service."""

    settings: Settings
    base: BaseModel
    registry: SessionRegistry = field(default_factory=SessionRegistry)
    futures: FutureStore = field(default_factory=FutureStore)
    downloads: Downloads = field(default_factory=Downloads)
    idempotency: Idempotency = field(default_factory=Idempotency)
    rows_waiting: int = 0

    def __post_init__(self) -> None:
        self.engine = Engine(self.base.threads)
        self.store = CheckpointStore(self.settings.data_dir)
        self.host = TrainingHost(self.base, self.store)
        self.tokenizer = Tokenizer(self.base.folder)

    @property
    def limits(self) -> Limits:
        """Bounds of token ids and sequence lengths."""
        return Limits(self.base.vocab_size, self.base.context_length)

    def accept(self, session_id: str, run: Callable[[], Any], encode: Encode) -> Future:
        """Queue a job at once and return its future."""
        future = self.futures.create(session_id)
        self.engine.submit(Job(run, self.finisher(future, encode)))
        return future

    def finisher(
        self, future: Future, encode: Encode, *, rows: int = 0
    ) -> Callable[[Outcome], None]:
        """Return the callback that turns an outcome into a future's result, on the event loop.

        ``rows`` is how many sampling rows wait until then.
        """
        loop = asyncio.get_running_loop()

        def resolve(outcome: Outcome) -> None:
            self.rows_waiting -= rows
            future.resolve(result_of(outcome, encode))

        return lambda outcome: _call_on(loop, resolve, outcome)

    def submit_ordered(
        self,
        model_id: str,
        seq_id: int,
        digest: str,
        run: Callable[[TrainingState], Any],
        encode: Encode,
    ) -> Future:
        """Queue a model's request under its number; a repetition gets the first one's future.

        Raises:
            RefusalError: 404 or 410 for the model, 409 for a number that another request has.
        """
        model = self.registry.model(model_id)
        earlier = model.queue.ledger.repeated(seq_id, digest)
        if earlier is not None:
            return earlier
        model.last_request = datetime.now(UTC)
        future = self.futures.create(model.session_id)
        job = Job(lambda: run(model.require_state()), self.finisher(future, encode))
        model.queue.submit(seq_id, digest, future, lambda: self.engine.submit(job))
        return future

    def create_with(
        self, model: Model, make: Callable[[], TrainingState], encode: Encode
    ) -> Future:
        """Queue the job that gives a model its adapter and optimizer."""

        def run() -> None:
            model.state = make()

        return self.accept(model.session_id, run, encode)

    def finish_session(self, session_id: str) -> None:
        """End a session: release adapters, samplers and results."""
        self.registry.finish(session_id)
        self.futures.forget_session(session_id)


def _call_on(
    loop: asyncio.AbstractEventLoop, resolve: Callable[[Outcome], None], outcome: Outcome
) -> None:
    # When the service is stopping the loop may be gone, and with it everyone who waits.
    if not loop.is_closed():
        loop.call_soon_threadsafe(resolve, outcome)


def json_result(document: dict[str, Any]) -> Result:
    """Return a JSON answer."""
    return Result(JSON, json.dumps(document, allow_nan=False).encode())


def result_of(outcome: Outcome, encode: Encode) -> Result:
    """Encode an outcome; a refusal, also one of ``encode``, becomes the SDK's error object.

    So does a defect: a future that nothing resolves would be asked for without end.
    """
    if not isinstance(outcome, RefusalError):
        try:
            return encode(outcome)
        except RefusalError as refusal:
            outcome = refusal
        except Exception as error:
            logger.exception("a result could not be encoded")
            outcome = RefusalError(
                "the embedded service failed on this request",
                status=500,
                found=type(error).__name__,
            )
    category = "user" if outcome.status < 500 else "server"
    return json_result(error_body(str(outcome), status=outcome.status, category=category))
