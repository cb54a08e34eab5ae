"""What every test of this project may rely on."""

from __future__ import annotations

import socket
from typing import Any, NoReturn

import pytest

SERVICE_MARKS = ("live", "full", "slow")


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that are not marked as needing a service may not open a connection."""
    if any(request.node.get_closest_marker(mark) for mark in SERVICE_MARKS):
        return

    def refuse(self: socket.socket, address: Any) -> NoReturn:
        del self
        raise AssertionError(f"an offline test connects to {address!r}; mark it live")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
