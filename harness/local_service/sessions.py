"""Sessions, and the models and samplers that belong to them.

Everything a client makes lives in its session and is released when the session is finished;
checkpoints on disk stay. Ids are ``<session>:train:<n>`` and ``<session>:sample:<n>``: the SDK
works out a model's id by this rule before the server tells it.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from harness.local_service.ordering import Ledger, SequenceQueue
from harness.local_service.refusals import RefusalError
from harness.local_service.training import Snapshot, TrainingState


@dataclass
class Model:
    """A training client's model; ``state`` is there once its creation or load has run."""

    model_id: str
    session_id: str
    queue: SequenceQueue
    state: TrainingState | None = None
    requests_started: int = 0
    last_request: datetime = field(default_factory=lambda: datetime.now(UTC))

    def require_state(self) -> TrainingState:
        """Return the adapter and optimizer.

        Raises:
            RefusalError: 404 if creating or loading the model failed.
        """
        if self.state is None:
            raise RefusalError(
                "the model does not exist: its creation or load failed",
                status=404,
                found=self.model_id,
            )
        return self.state


@dataclass
class Sampler:
    """A sampling session: one snapshot, the requests made of it, and how often each was made."""

    sampler_id: str
    session_id: str
    base_model: str
    model_path: str | None
    snapshot: Snapshot
    ledger: Ledger
    asked: Counter[str] = field(default_factory=Counter)

    def occurrence(self, request_digest: str) -> int:
        """Return how many equal requests came before this one, and count it."""
        self.asked[request_digest] += 1
        return self.asked[request_digest] - 1


@dataclass
class Session:
    """One client session."""

    session_id: str
    user_metadata: dict[str, Any] | None
    display_name: str | None
    models: Ledger
    samplers: Ledger


MAX_OPEN = 4096
"""Most sessions, models and samplers, each, that are open at once."""


class SessionRegistry:
    """All sessions, models and samplers; used on the event loop's thread only."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.models: dict[str, Model] = {}
        self.samplers: dict[str, Sampler] = {}
        self._finished: set[str] = set()

    def create(self, user_metadata: dict[str, Any] | None, display_name: str | None) -> Session:
        """Open a session under a new random id."""
        _refuse_too_many("sessions", self.sessions)
        session_id = f"session-{secrets.token_hex(8)}"
        session = Session(
            session_id,
            user_metadata,
            display_name,
            models=Ledger(f"models of {session_id}"),
            samplers=Ledger(f"samplers of {session_id}"),
        )
        self.sessions[session_id] = session
        return session

    def session(self, session_id: str) -> Session:
        """Return an open session.

        Raises:
            RefusalError: 410 if it was finished, 404 if there never was one.
        """
        found = self.sessions.get(session_id)
        if found is None:
            raise self._missing("session", session_id, session_id)
        return found

    def model(self, model_id: str) -> Model:
        """Return a model of an open session, or refuse with 404 or 410."""
        found = self.models.get(model_id)
        if found is None:
            raise self._missing("model", model_id, model_id.split(":")[0])
        return found

    def sampler(self, sampler_id: str) -> Sampler:
        """Return a sampler of an open session, or refuse with 404 or 410."""
        found = self.samplers.get(sampler_id)
        if found is None:
            raise self._missing("sampling session", sampler_id, sampler_id.split(":")[0])
        return found

    def _missing(self, what: str, name: str, session_id: str) -> RefusalError:
        if session_id in self._finished:
            return RefusalError(
                f"the {what}'s session is finished",
                status=410,
                found=name[:200],
                fix="open a new one",
            )
        return RefusalError(f"there is no such {what}", status=404, found=name[:200])

    def add_model(self, session_id: str, number: int) -> Model:
        """Register a model that is about to be created or loaded."""
        _refuse_too_many("models", self.models)
        model_id = f"{session_id}:train:{number}"
        model = Model(model_id, session_id, SequenceQueue(model_id))
        self.models[model_id] = model
        return model

    def add_sampler(
        self,
        session_id: str,
        number: int,
        snapshot: Snapshot,
        base_model: str,
        model_path: str | None,
    ) -> Sampler:
        """Register a sampling session.

        Raises:
            RefusalError: 409 if the number is taken.
        """
        _refuse_too_many("samplers", self.samplers)
        sampler_id = f"{session_id}:sample:{number}"
        if sampler_id in self.samplers:
            raise RefusalError(
                "another sampling session has this number", status=409, found=sampler_id
            )
        ledger = Ledger(sampler_id)
        sampler = Sampler(sampler_id, session_id, base_model, model_path, snapshot, ledger)
        self.samplers[sampler_id] = sampler
        return sampler

    def finish(self, session_id: str) -> None:
        """Close a session and release its models and samplers."""
        del self.sessions[self.session(session_id).session_id]
        self._finished.add(session_id)
        for table in (self.models, self.samplers):
            for key in [k for k, v in table.items() if v.session_id == session_id]:
                del table[key]

    def is_finished(self, session_id: str) -> bool:
        """Whether a session of this id was open and has been finished."""
        return session_id in self._finished


def _refuse_too_many(what: str, table: Mapping[str, object]) -> None:
    if len(table) >= MAX_OPEN:
        raise RefusalError(
            f"too many {what} are open",
            status=429,
            expected=f"at most {MAX_OPEN}",
            fix="finish sessions that are no longer used",
        )
