"""Whether a recorded proof counts now (design §3.1–3.2).

A gate stands proven when, under the digest of the tree as it is now, it passed in an intact
session whose closing saw the same digest, never failed under that digest, and, if live, passed
less than 24 hours ago. Everything else is unknown with a reason, or fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from harness.gates.binding import Binding, differences
from harness.gates.catalog import GateEntry
from harness.gates.evidence import SessionEvidence
from harness.gates.recorder import measures_ok
from harness.gates.verdict import Outcome

LIVE_EVIDENCE_LIFETIME = timedelta(hours=24)


@dataclass(frozen=True)
class Standing:
    """What is known of one gate now.

    Attributes:
        gate_id: the gate.
        outcome: pass, fail or unknown.
        reason: one clause for the terminal.
        changed: names of what changed since the newest evidence, when it is stale.
        record: the ``gate`` event the standing rests on.
        session: the session that wrote the record.
    """

    gate_id: str
    outcome: Outcome
    reason: str
    changed: tuple[str, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    session: str = ""


@dataclass(frozen=True)
class _Found:
    session: SessionEvidence
    event: Mapping[str, Any]
    digest: str
    closed: bool

    @property
    def outcome(self) -> Outcome:
        """The recorded outcome; a pass whose own measurements contradict it is a fail."""
        outcome = Outcome(self.event["outcome"])
        if outcome is not Outcome.PASS:
            return outcome
        flags = measures_ok(self.event["measures"])
        if not flags:
            return Outcome.UNKNOWN
        return Outcome.PASS if all(flags) else Outcome.FAIL


def standing_of(
    entry: GateEntry, history: Sequence[SessionEvidence], binding: Binding, now: datetime
) -> Standing:
    """Judge one gate from the whole history.

    Args:
        entry: the gate.
        history: every session's evidence, oldest first.
        binding: the tree as it is now.
        now: the time, with a zone.
    """
    key = "live_digest" if entry.live else "offline_digest"
    refused = [
        session.broken
        for session in history
        if session.broken
        and session.header.get(key, "") in ("", binding.digest_for(live=entry.live))
    ]
    if refused:
        # A broken file may have held a fail, so what is left of it cannot be ignored.
        return Standing(entry.gate_id, Outcome.UNKNOWN, f"evidence refused: {refused[-1]}")
    found = list(_records(entry.gate_id, history, key))
    current = [item for item in found if item.digest == binding.digest_for(live=entry.live)]
    if not current:
        return _stale(entry, found, binding, history)
    outcomes = {item.outcome for item in current}
    newest = current[-1]
    if ahead := [item for item in current if _latest(item) > now]:
        by = _latest(ahead[-1]) - now
        reason = f"the clock went back: evidence is {by} later than now"
        return _stand(entry, Outcome.UNKNOWN, reason, ahead[-1])
    if {Outcome.PASS, Outcome.FAIL} <= outcomes:
        reason = "flaky: passed and failed under the same content"
        return _stand(entry, Outcome.UNKNOWN, reason, newest)
    if Outcome.FAIL in outcomes:
        return _stand(entry, Outcome.FAIL, str(newest.event.get("reason", "failed")), newest)
    passed = [item for item in current if item.outcome is Outcome.PASS]
    if not passed:
        reason = str(newest.event.get("reason", "not proven"))
        return _stand(entry, Outcome.UNKNOWN, reason, newest)
    return _judge_pass(entry, passed, now)


def _latest(found: _Found) -> datetime:
    return max(datetime.fromisoformat(event["at"]) for event in found.session.events)


def _judge_pass(entry: GateEntry, passed: list[_Found], now: datetime) -> Standing:
    closed = [item for item in passed if item.closed]
    if not closed:
        reason = "the content was not measured again after the gate: an edit cannot be excluded"
        return _stand(entry, Outcome.UNKNOWN, reason, passed[-1])
    newest = closed[-1]
    age = now - datetime.fromisoformat(newest.event["at"])
    if entry.live and not timedelta(0) <= age < LIVE_EVIDENCE_LIFETIME:
        reason = f"expired: live evidence counts for 24 h, this is {age} old"
        return _stand(entry, Outcome.UNKNOWN, reason, newest)
    return _stand(entry, Outcome.PASS, "proven", newest)


def _stand(entry: GateEntry, outcome: Outcome, reason: str, found: _Found) -> Standing:
    session = str(found.session.header.get("session", ""))
    return Standing(entry.gate_id, outcome, reason, (), found.event, session)


def _records(gate_id: str, history: Sequence[SessionEvidence], key: str) -> Iterator[_Found]:
    for session in history:
        if session.broken:
            continue
        digest = str(session.header.get(key, ""))
        for index, event in enumerate(session.events):
            if event["type"] == "gate" and event["gate"] == gate_id:
                later = session.events[index + 1 :]
                closings = [item[key] for item in later if item["type"] == "closing"]
                closed = bool(closings) and closings[0] == digest
                yield _Found(session, event, digest, closed)


def _stale(
    entry: GateEntry, found: list[_Found], binding: Binding, history: Sequence[SessionEvidence]
) -> Standing:
    if found:
        old = found[-1].session.header["binding"]
        new = binding.to_json()
        if not entry.live:
            old, new = {**old, "service": {}}, {**new, "service": {}}
        changed = tuple(differences(old, new))
        return Standing(entry.gate_id, Outcome.UNKNOWN, "stale", changed)
    broken = [session.broken for session in history if session.broken]
    if broken:
        return Standing(entry.gate_id, Outcome.UNKNOWN, f"evidence refused: {broken[-1]}")
    return Standing(entry.gate_id, Outcome.UNKNOWN, "never run")
