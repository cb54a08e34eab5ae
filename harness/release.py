"""Gives back the service's sessions of a stage that ended without closing them (contract §10)."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping

from harness.health import public_address

_TIMEOUT_S = 10.0
_REASON = b'{"reason": {"type": "interrupted"}, "detail": "the service had no capacity"}'


def release_sessions(environment: Mapping[str, str], sessions: Iterable[str]) -> int:
    """Finish sessions and return how many the service confirmed.

    A session that is not confirmed ends by itself: nobody sends its heartbeat any more.

    Args:
        environment: TINKER_BASE_URL and TINKER_API_KEY.
        sessions: ids, as the service named them.
    """
    address = public_address(environment["TINKER_BASE_URL"])
    headers = {"X-API-Key": environment["TINKER_API_KEY"], "Content-Type": "application/json"}
    named = [urllib.parse.quote(session, safe=":") for session in sessions]
    return sum(_finish(f"{address}/api/v1/sessions/{name}/finish", headers) for name in named)


def _finish(url: str, headers: dict[str, str]) -> bool:
    request = urllib.request.Request(url, data=_REASON, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S):
            return True
    except (urllib.error.URLError, http.client.HTTPException, OSError):
        return False
