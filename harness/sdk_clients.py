"""The one place where the SDK's HTTP clients are met as they are made.

Several parts of a process want that (a gateway's headers, answers that are noted), each for a
while of its own. They share one stand-in for the constructor, so their blocks may end in any
order: a stand-in each would put back what another had replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_met_by: list[Callable[[Any], None]] = []
_guard = threading.Lock()
_original: list[Callable[..., None]] = []
"""The SDK's own constructor while the stand-in is there; else empty."""


@contextmanager
def each_new_client(meet: Callable[[Any], None]) -> Iterator[None]:
    """Call ``meet`` with every SDK client that is made in the block, on the thread that makes it.

    Args:
        meet: takes the new client; ``client._client`` is its ``httpx.AsyncClient``.
    """
    # Imported here: sessions that contact no service need no SDK.
    from tinker._base_client import AsyncAPIClient

    with _guard:
        if not _met_by:
            _original.append(AsyncAPIClient.__init__)
            # setattr, because the stand-in takes any arguments and only looks at what was made.
            setattr(AsyncAPIClient, "__init__", _make)  # noqa: B010
        _met_by.append(meet)
    try:
        yield
    finally:
        with _guard:
            _met_by.remove(meet)
            if not _met_by:
                setattr(AsyncAPIClient, "__init__", _original.pop())  # noqa: B010


def _make(client: Any, *args: Any, **kwargs: Any) -> None:
    with _guard:
        original, meeting = _original[0], tuple(_met_by)
    original(client, *args, **kwargs)
    for meet in meeting:
        meet(client)
