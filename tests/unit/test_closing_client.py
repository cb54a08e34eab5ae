"""An SDK client's end hides no error of its block, and no failed end of a block without one."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import tinker

from harness.closing_client import ClosingClient
from harness.gates.not_offered import LastAnswer, not_offered

REQUEST = httpx.Request("POST", "http://127.0.0.1:9/api/v1/sessions/s/finish")
BROKEN = tinker.InternalServerError(
    "finishing failed", response=httpx.Response(500, request=REQUEST), body=None
)
MISSING = tinker.NotFoundError(
    "no such route", response=httpx.Response(404, request=REQUEST), body=None
)


def client(monkeypatch: pytest.MonkeyPatch, failure: tinker.TinkerError) -> ClosingClient:
    """Return a client whose session cannot be finished."""

    def exit_(*_: Any) -> None:
        raise failure

    monkeypatch.setattr(tinker.ServiceClient, "__init__", lambda _: None)
    monkeypatch.setattr(tinker.ServiceClient, "__enter__", lambda self: self)
    monkeypatch.setattr(tinker.ServiceClient, "__exit__", exit_)
    return ClosingClient()


@pytest.mark.parametrize("failure", [BROKEN, MISSING])
def test_the_error_of_the_block_goes_on(
    monkeypatch: pytest.MonkeyPatch, failure: tinker.TinkerError
) -> None:
    with pytest.raises(KeyError, match="a defect of ours") as raised, client(monkeypatch, failure):
        raise KeyError("a defect of ours")
    told = not_offered(raised.value, LastAnswer())
    assert told is None, f"our own defect is told as the service's: {told}"
    notes = getattr(raised.value, "__notes__", [])
    assert bool(notes) is (failure is BROKEN), f"what finishing ended with: {notes}"


def test_a_block_that_ended_well_ends_with_what_finishing_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with client(monkeypatch, MISSING):
        pass
    with pytest.raises(tinker.InternalServerError), client(monkeypatch, BROKEN):
        pass
