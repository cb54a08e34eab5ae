"""A pytest plugin for sessions whose subject is not the gates: every required one stands."""

from __future__ import annotations

import pytest

from harness.gates.standing import Standing
from harness.gates.verdict import Outcome


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let the session find every gate proven, without evidence of any."""
    # Not before: pytest wants to be the first to import a plugin.
    from harness.plugin import SESSION

    session = config.stash[SESSION]
    standing = {gate: Standing(gate, Outcome.PASS, "not its subject") for gate in session.required}
    vars(session)["standings"] = lambda: standing
