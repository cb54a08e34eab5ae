"""Gives back the service's sessions that a stage opened (contract §10).

The stock loop of cookbook 0.5 closes none of its own (tinker-notes §0), and a stage that failed
closes none either, so the process that ran the stage finishes what the stage's log of answers
names. Finishing a session twice is no error.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from harness.health import public_address
from harness.proxy_headers import dressed
from harness.stage import LineFollower

_TIMEOUT_S = 10.0
Reason = Literal["success", "errored", "interrupted"]
"""How a session ended, in the protocol's words."""


def release_sessions(
    environment: Mapping[str, str], sessions: Iterable[str], reason: Reason, detail: str
) -> int:
    """Finish sessions and return how many the service confirmed.

    A session that is not confirmed ends by itself: nobody sends its heartbeat any more.

    Args:
        environment: TINKER_BASE_URL and TINKER_API_KEY.
        sessions: ids, as the service named them.
        reason: how they ended.
        detail: why, in a few words.
    """
    address = public_address(environment["TINKER_BASE_URL"])
    headers = {"X-API-Key": environment["TINKER_API_KEY"], "Content-Type": "application/json"}
    named = [urllib.parse.quote(session, safe=":") for session in sessions]
    body = json.dumps({"reason": {"type": reason}, "detail": detail}).encode()
    return sum(_finish(f"{address}/api/v1/sessions/{name}/finish", headers, body) for name in named)


def sessions_named(logs: Path) -> list[str]:
    """Return every session that the stages of a run opened, from their logs of answers.

    Args:
        logs: the run's folder of logs; a line that a kill cut off is left out.
    """
    followers = [LineFollower(path) for path in sorted(logs.glob("*.answers.jsonl"))]
    rows = [row for follower in followers for row in follower.new_rows()]
    return [str(row["session"]) for row in rows if "session" in row]


def _finish(url: str, headers: dict[str, str], body: bytes) -> bool:
    request = dressed(urllib.request.Request(url, data=body, headers=headers, method="POST"))
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S):
            return True
    except (urllib.error.URLError, http.client.HTTPException, OSError):
        return False
