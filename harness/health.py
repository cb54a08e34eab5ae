"""A short question to the service before the SDK is used.

The only requests of our own: the SDK needs five minutes to notice that nobody answers
(tinker-notes §4), and it drops fields of an answer that it does not know.
"""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from harness.digest import parse_json
from harness.errors import ServiceError
from harness.proxy_headers import dressed

_HEALTH_TIMEOUT_S = 10.0
_SIGN_OF_LIFE_TIMEOUT_S = 3.0
_NOBODY_BEHIND = frozenset({502, 504})
"""What a gateway answers when the service behind it is gone."""
_NOT_LET_IN = frozenset({401, 403})


def public_address(base_url: str) -> str:
    """Return the address without what may be secret in it: user, password, query, fragment.

    Raises:
        ServiceError: for a text that is no address, which stays out of the message: a key may
            have been pasted there.
    """
    try:
        parts = urllib.parse.urlsplit(base_url)
    except ValueError:
        raise _no_address() from None
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def require_address(base_url: str) -> str:
    """Return the public form of an address that can be asked: a scheme of the web and a host.

    Raises:
        ServiceError: as for :func:`public_address`.
    """
    address = public_address(base_url)
    if not re.match(r"https?://[^/]", address):
        raise _no_address()
    return address


def _no_address() -> ServiceError:
    return ServiceError(
        "TINKER_BASE_URL is no address",
        expected="http://HOST:PORT or https://HOST",
        found="a text that is none",
        where="environment",
        fix="correct TINKER_BASE_URL",
    )


def require_health(base_url: str) -> None:
    """Ask the service for a sign of life, once.

    Raises:
        ServiceError: when nobody answers in ten seconds.
    """
    get_json(base_url, "healthz", api_key=None)


def missing_sign_of_life(base_url: str) -> str | None:
    """Return None when something answers within three seconds, else what happened instead.

    An error status is an answer too, such as 503 for want of capacity; only what a gateway says
    in place of a dead service is not.
    """
    url = f"{public_address(base_url)}/api/v1/healthz"
    try:
        request = dressed(urllib.request.Request(url))
        with urllib.request.urlopen(request, timeout=_SIGN_OF_LIFE_TIMEOUT_S):
            return None
    except urllib.error.HTTPError as error:
        return f"status {error.code} of a gateway" if error.code in _NOBODY_BEHIND else None
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        return f"{type(error).__name__}: {getattr(error, 'reason', error)}"


def get_json(base_url: str, path: str, api_key: str | None) -> dict[str, Any]:
    """GET one JSON object of the service's API.

    Raises:
        ServiceError: naming the address, without credentials, and what went wrong.
    """
    address = require_address(base_url)
    url = f"{address}/api/v1/{path}"
    key = {"X-API-Key": api_key} if api_key else {}
    request = dressed(urllib.request.Request(url, headers=key))
    try:
        with urllib.request.urlopen(request, timeout=_HEALTH_TIMEOUT_S) as response:
            body = parse_json(response.read(), where=path)
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise ServiceError(
            "the training service does not answer",
            expected=f"an answer in {_HEALTH_TIMEOUT_S:.0f} s",
            found=f"{type(error).__name__}: {getattr(error, 'reason', error)}",
            where=f"{address} {path}",
            fix=_fix_for(error),
        ) from error
    if not isinstance(body, dict):
        raise ServiceError(
            "the service's answer is not an object",
            expected="a JSON object",
            found=type(body).__name__,
            where=f"{address} {path}",
            fix="correct TINKER_BASE_URL: another program answers there",
        )
    return body


def _fix_for(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError) and error.code in _NOT_LET_IN:
        return "correct the service's key and tokens: --service NAME says which variables it needs"
    return "start the service, or correct TINKER_BASE_URL"
