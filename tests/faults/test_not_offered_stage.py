"""What a stage's process finds not offered reaches the gate that runs it, with route and answer."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from aiohttp import web

from harness.errors import HarnessError
from harness.fault_proxy import FaultProxy, Passing, Rule, status
from harness.gates.not_offered import LastAnswer, not_offered
from tests.faults.small_experiment import ARM, SmallRun


async def without_sequence_ids(passing: Passing) -> web.StreamResponse:
    """Answer a sampling request as a service of an older generation does."""
    whole = await passing.forward()
    body = json.loads(whole.body) if isinstance(whole.body, bytes) else {}
    return web.json_response({k: v for k, v in body.items() if k != "sample_sequence_ids"})


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (lambda: Rule("asample", status(404, "no sampling here")), "asample answered 404"),
        (lambda: Rule("asample", status(501, "no sampling here")), "501 asample"),
        (lambda: Rule("optim_step", status(400, "no such rule")), "optim_step answered 400"),
        (lambda: Rule("asample", without_sequence_ids), "sample_sequence_ids"),
    ],
)
def test_a_stage_that_meets_it_names_route_and_answer(
    rule: Callable[[], Rule], says: str, small_run: SmallRun, proxy: FaultProxy
) -> None:
    proxy.rules = [rule()]
    with pytest.raises(HarnessError) as stop:
        small_run.experiment().train(ARM)
    reason = not_offered(stop.value, LastAnswer())
    assert reason is not None, f"taken for something else: {stop.value}"
    assert reason.startswith("not offered: "), reason
    assert says in reason, f"expected {says!r}, found {reason!r}"
