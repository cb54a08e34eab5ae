"""The append-only record of gates: one JSONL file a session, one digest-chained line an event.

Line types, in the order a session writes them:

- ``session``: id, spec, full binding and its digests, git state;
- ``gate_start``: a gate began (a crash after it leaves the gate unknown);
- ``gate``: outcome, reason, measurements with their rules, notes, phases;
- ``closing``: the binding measured again; only gates followed by a closing with the same digest
  count, so an edit during the session proves nothing.

Each line carries the digest of the line before it and its own, so a hand-edited, removed or
reordered line is noticed. A torn last line (a crash while writing) is dropped and reported.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.digest import parse_json, sha256_json
from harness.durable import stored
from harness.errors import DocumentError, StoreError
from harness.gates.binding import Binding
from harness.reading import MAX_ROWS_BYTES, read_regular
from harness.record_version import version_refusal
from harness.records_out import clean_json


def utc_now() -> str:
    """Return the time in UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class EvidenceWriter:
    """Appends one session's events; every line is on disk before the next thing happens."""

    def __init__(
        self, folder: Path, spec_name: str, binding: Binding, git: Mapping[str, Any]
    ) -> None:
        self.session = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:8]}"
        self.path = folder / f"{self.session}.jsonl"
        self._previous = ""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._stream = self.path.open("x", encoding="utf-8")
        except OSError as error:
            raise StoreError(
                "gate evidence cannot be written",
                expected="a writable folder",
                found=str(error.strerror),
                where=folder.name,
                fix="choose another folder with --artifacts DIR",
            ) from error
        self._append(
            {
                "type": "session",
                "version": 1,
                "session": self.session,
                "spec": spec_name,
                "binding": binding.to_json(),
                "offline_digest": binding.offline_digest(),
                "live_digest": binding.digest(),
                "git": dict(git),
            }
        )

    def gate_started(self, gate_id: str) -> None:
        """Record that a gate's test began."""
        self._append({"type": "gate_start", "gate": gate_id})

    def gate_finished(self, gate_id: str, record: Mapping[str, Any]) -> None:
        """Record a gate's outcome with its measurements."""
        self._append({"type": "gate", "gate": gate_id, **record})

    def closing(self, binding: Binding) -> None:
        """Record the binding measured after the gates above."""
        self._append(
            {
                "type": "closing",
                "offline_digest": binding.offline_digest(),
                "live_digest": binding.digest(),
            }
        )

    def close(self) -> None:
        """Close the file; nothing may be appended afterwards."""
        self._stream.close()

    def _append(self, event: dict[str, Any]) -> None:
        body = clean_json({**event, "at": utc_now(), "previous": self._previous}, self.path.name)
        self._previous = sha256_json(body)
        line = json.dumps({**body, "line_sha256": self._previous}, allow_nan=False)
        with stored(self.path):
            self._stream.write(line + "\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())


@dataclass(frozen=True)
class SessionEvidence:
    """One evidence file as read back.

    Attributes:
        name: the file's name.
        events: intact events in order.
        torn: the last line was cut by a crash.
        broken: why the chain does not hold or its version cannot be read (empty: it holds and
            can be); then nothing in the file counts.
    """

    name: str
    events: tuple[dict[str, Any], ...]
    torn: bool = False
    broken: str = ""

    @property
    def header(self) -> dict[str, Any]:
        """The session line."""
        return self.events[0] if self.events else {}


@dataclass
class _Chain:
    previous: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)


def read_session(path: Path) -> SessionEvidence:
    """Read one evidence file, checking every line's digest and the chain between lines."""
    try:
        raw_lines = read_regular(path, max_bytes=MAX_ROWS_BYTES).split(b"\n")
    except StoreError as error:
        return SessionEvidence(path.name, (), broken=str(error))
    torn = raw_lines[-1] != b""
    chain = _Chain()
    for number, raw in enumerate(raw_lines[:-1], start=1):
        fault = _link(chain, raw, f"{path.name} line {number}")
        if fault:
            return SessionEvidence(path.name, tuple(chain.events), torn, fault)
    if chain.events:
        refusal = version_refusal(
            chain.events[0], "gate evidence", where=f"{path.name} line 1", error=StoreError
        )
        if refusal is not None:
            return SessionEvidence(path.name, tuple(chain.events), torn, str(refusal))
    return SessionEvidence(path.name, tuple(chain.events), torn)


def _link(chain: _Chain, raw: bytes, where: str) -> str:
    try:
        event = parse_json(raw, where=where)
    except DocumentError as error:
        return str(error)
    if not isinstance(event, dict):
        return f"{where}: not an object"
    claimed = event.pop("line_sha256", None)
    if event.get("previous") != chain.previous:
        return f"{where}: a line before it was removed, added or moved"
    if claimed != sha256_json(event):
        return f"{where}: the line was edited after it was written"
    chain.previous = claimed
    chain.events.append(event)
    return ""


def read_history(folder: Path) -> list[SessionEvidence]:
    """Read every session's evidence under ``folder``, oldest first."""
    if not folder.is_dir():
        return []
    return [read_session(path) for path in sorted(folder.glob("*.jsonl"))]
