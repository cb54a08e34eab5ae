"""A live gate that the service refuses or cannot serve is unknown, with its answer as reason."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from harness.errors import GateError, RefusedError
from harness.redact import Redactor
from harness.session import HarnessSession

if TYPE_CHECKING:
    from harness.gates.not_offered import LastAnswer
    from harness.gates.refusals import Refusals


class RefusedGates:
    """Watches set-up, call and teardown of the session's live gates.

    Args:
        session: is told of the first refusal, so that no other gate asks again.
    """

    def __init__(self, session: HarnessSession) -> None:
        self.session = session
        self._refusals: Refusals | None = None
        self._last: LastAnswer | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Set-up opens clients and may make the first requests."""
        return (yield from self._phase(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """The gate itself."""
        return (yield from self._phase(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Clients are closed, which asks the service too."""
        return (yield from self._phase(item))

    def _phase(self, item: pytest.Item) -> Generator[None, Any, Any]:
        gate_id = self.session.gates.tests.get(item.nodeid)
        if gate_id is None or item.get_closest_marker("live") is None:
            return (yield)
        # Imported here: it brings the SDK, which most sessions do not need.
        from harness.answer_log import observed_answers
        from harness.gates.not_offered import LastAnswer, answers_noted, not_offered
        from harness.gates.refusals import Refusals

        last = self._last = self._last or LastAnswer()
        refusals = self._refusals = self._refusals or Refusals(
            Redactor.from_environment(os.environ)
        )
        try:
            with observed_answers(refusals), answers_noted(last), refusals.watching():
                return (yield)
        except Exception as error:
            if said := _refusal(error, refusals.look()):
                self.session.refused = self.session.refused or said
                again = self.session.command(f"-m preflight -k {gate_id}")
                reason = f"not measured, because the service refused: {said}. Later: {again}"
            elif (reason := not_offered(error, last)) is None:
                raise
        pytest.skip(reason)


def _refusal(error: Exception, reason: str) -> str:
    """Return what the service refused with; "" for an error that is the gate's own finding."""
    from harness.service_fault import REFUSALS, fault_of_error

    if isinstance(error, GateError):
        return ""
    if reason:
        return reason
    if isinstance(error, RefusedError):
        return error.found
    fault = fault_of_error(error)
    return fault.message if fault and fault.kind in REFUSALS else ""
