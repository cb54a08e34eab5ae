"""Headers that a service's gateway demands, on every request of this process to that service.

The SDK's own clients carry them through one hook at its HTTP client, because the stock loop makes
``ServiceClient`` and ``RestClient`` objects of its own that take no headers (tinker-notes §4). The
few requests of our own are dressed by :func:`dressed`. A header goes to the address it is for and
nowhere else: not along a redirect to another host, not to the storage behind a signed link.
"""

from __future__ import annotations

import os
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harness.sdk_clients import each_new_client
from harness.service_profiles import BASE_URL_VARIABLE, PROFILE_VARIABLE, profile_named

Origin = tuple[str, str | None, int | None]
_DEFAULT_PORTS = {"http": 80, "https": 443}
_sent: dict[Origin, dict[str, str]] = {}
"""What is sent to which service, by this process, now."""


def origin_of(url: str) -> Origin:
    """Return scheme, host and port of an address."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)


@contextmanager
def headers_sent(base_url: str, headers: Mapping[str, str]) -> Iterator[None]:
    """Send headers with every request to an address, from every SDK client made in the block.

    Args:
        base_url: the service.
        headers: header → value; nothing changes when there are none.
    """
    if not headers:
        yield
        return
    origin = origin_of(base_url)
    before = _sent.get(origin)
    _sent[origin] = dict(headers)
    try:
        with each_new_client(_dress):
            yield
    finally:
        if before is None:
            del _sent[origin]
        else:
            _sent[origin] = before


@contextmanager
def stage_headers(environ: Mapping[str, str]) -> Iterator[None]:
    """In a stage's process: send what the profile demands that the environment names, if any.

    Raises:
        UsageError: for a profile that is none, or whose variables are not set.
    """
    name = environ.get(PROFILE_VARIABLE)
    headers = profile_named(name).header_values(environ) if name else {}
    with headers_sent(environ.get(BASE_URL_VARIABLE, ""), headers):
        yield


@contextmanager
def also_at(stand_in: str, base_url: str) -> Iterator[None]:
    """Treat an address on this machine that passes requests on to the service as the service.

    Args:
        stand_in: address of what stands before the service.
        base_url: the service.
    """
    with headers_sent(stand_in, _sent.get(origin_of(base_url), {})):
        yield


def dressed(request: urllib.request.Request) -> urllib.request.Request:
    """Return a request of our own with what its address demands; a redirect does not take it on."""
    for header, value in _sent.get(origin_of(request.full_url), {}).items():
        request.add_unredirected_header(header, value)
    return request


def _dress(client: Any) -> None:
    origin = origin_of(str(client.base_url))
    # Kept by the client: one that outlives the block still speaks to the same service.
    headers = dict(_sent.get(origin, {}))

    async def add(request: Any) -> None:
        if origin_of(str(request.url)) == origin:
            request.headers.update(headers)

    hooks = client._client.event_hooks
    client._client.event_hooks = {**hooks, "request": [*hooks["request"], add]}


def environment_of(name: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that a stage's process needs for a profile's headers.

    Raises:
        UsageError: naming the variables that are not set.
    """
    values = os.environ if environ is None else environ
    profile = profile_named(name)
    if not profile.headers:
        return {}
    profile.header_values(values)
    return {PROFILE_VARIABLE: name, **{n: values[n] for n in profile.headers.values()}}
