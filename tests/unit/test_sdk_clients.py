"""Who meets the SDK's clients as they are made: nobody is forgotten, whichever block ends first."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from tinker._base_client import AsyncAPIClient

from harness.answer_log import looked_at
from harness.proxy_headers import headers_sent
from harness.sdk_clients import each_new_client


@pytest.fixture(autouse=True)
def bare_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client be made of nothing: it is met, and never asked for anything."""
    monkeypatch.setattr(AsyncAPIClient, "__init__", lambda _: None)


make: Any = AsyncAPIClient


def test_blocks_end_in_any_order() -> None:
    own = AsyncAPIClient.__init__
    met: dict[str, list[object]] = {"first": [], "second": [], "third": []}
    first, second, third = (each_new_client(found.append) for found in met.values())
    first.__enter__()
    second.__enter__()
    make()
    first.__exit__(None, None, None)
    third.__enter__()
    make()
    second.__exit__(None, None, None)
    make()
    third.__exit__(None, None, None)
    make()
    counts = {name: len(found) for name, found in met.items()}
    assert counts == {"first": 1, "second": 2, "third": 2}, counts
    assert AsyncAPIClient.__init__ is own, "the SDK's own constructor is not back"


def test_a_gateways_headers_outlive_the_look_they_began_in(monkeypatch: pytest.MonkeyPatch) -> None:
    dressed: list[object] = []
    monkeypatch.setattr("harness.proxy_headers._dress", dressed.append)

    async def look(_: object) -> None:
        raise AssertionError("nothing is asked for")

    with ExitStack() as session:
        with looked_at(look):
            session.enter_context(headers_sent("http://127.0.0.1:9", {"Modal-Key": "k"}))
        make()
    assert len(dressed) == 1, f"{len(dressed)} clients carry the headers, expected 1"
