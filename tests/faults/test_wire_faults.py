"""Every fault between SDK and service: the run ends complete and equal, or it stops and says why.

A run that stopped is continued by the same command once the fault is gone, and must then equal the
run that was never disturbed. Only the want of capacity ends a run (contract §10).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from harness.capacity import CapacityExhaustedError
from harness.errors import HarnessError, ServiceError
from harness.fault_proxy import FaultProxy, Rule, status
from tests.faults import wire_faults as wire
from tests.faults.conftest import Undisturbed
from tests.faults.fault_summary import STOPPED, SURVIVED
from tests.faults.small_experiment import ARM, SmallRun

Rules = Callable[[], list[Rule]]
SAMPLE, TRAIN = "Sample", "ForwardBackward"
STALL_S, DEAD_S, BILL_S = 60.0, 60.0, 30.0


class Stop(NamedTuple):
    """A fault that stops a run: its rules, words of the error, the supervision's pace, a limit."""

    rules: Rules
    says: str
    pace: float = 1.0
    within_s: float = 30.0


SURVIVES: dict[str, Rules] = {
    "429 on sampling": lambda: [Rule("asample", status(429), times=3)],
    "503 on an optimizer step": lambda: [Rule("optim_step", status(503), times=2)],
    "500 on a training pass": lambda: [Rule("forward_backward", status(500), times=2)],
    "slow answers": lambda: [Rule("retrieve_future", wire.slow(0.3))],
    "connection reset after the work": lambda: [
        Rule("asample", wire.reset_before_answer, times=2),
        Rule("forward_backward", wire.reset_before_answer, times=1),
        Rule("optim_step", wire.reset_before_answer, times=1),
    ],
    "connection reset mid-body": lambda: [
        Rule("retrieve_future", wire.reset_mid_body, times=2, after=3)
    ],
    "every request twice": lambda: [
        Rule(name, wire.asked_twice) for name in ("asample", "forward_backward", "optim_step")
    ],
}
STOPS: dict[str, Stop] = {
    "402 billing": Stop(lambda: [Rule("forward_backward", status(402))], "billing"),
    "410 gone": Stop(lambda: [Rule("retrieve_future", status(410), after=5)], "lost the session"),
    "request id of nobody": Stop(
        lambda: [Rule("asample", wire.unknown_request_id, times=1)], "answered with an error"
    ),
    "truncated sample": Stop(
        lambda: [Rule("retrieve_future", wire.truncated(0.9), request_type=SAMPLE)],
        "answered with an error",
    ),
    "truncated training pass": Stop(
        lambda: [Rule("retrieve_future", wire.truncated(0.5), request_type=TRAIN)],
        "answered with an error",
    ),
    "empty training pass": Stop(
        lambda: [Rule("retrieve_future", wire.truncated(0.0), request_type=TRAIN)],
        "does not report the loss",
    ),
    "answer of another request": Stop(
        lambda: [Rule("retrieve_future", wire.AnswerOfAnother())],
        "does not belong to the prompt",
    ),
    "a step that never ends": Stop(
        lambda: [Rule("optim_step", wire.hang)], "no progress", pace=400.0, within_s=STALL_S
    ),
}
SLOW_STOPS: dict[str, Stop] = {
    "hang of everything": Stop(
        lambda: [Rule("*", wire.hang, after=14)], "stopped answering", within_s=DEAD_S
    ),
    **{
        f"{request_type} cut to {share:.0%}": Stop(
            lambda share=share, request_type=request_type: [
                Rule("retrieve_future", wire.truncated(share), request_type=request_type)
            ],
            "",
        )
        for request_type in (SAMPLE, TRAIN)
        for share in (0.05, 0.25, 0.75, 0.99)
    },
}


def recorded(request: pytest.FixtureRequest, name: str, **about: Any) -> None:
    """Hand one fault to the closing table."""
    request.node.user_properties.append(("fault", {"name": name, "lost": False, **about}))


@pytest.mark.parametrize("name", list(SURVIVES))
def test_a_passing_fault_changes_nothing(
    name: str,
    small_run: SmallRun,
    proxy: FaultProxy,
    undisturbed: Undisturbed,
    request: pytest.FixtureRequest,
) -> None:
    proxy.rules = SURVIVES[name]()
    started_s = time.monotonic()
    small_run.experiment().train(ARM)
    hits = [rule.hits for rule in proxy.rules]
    seconds = time.monotonic() - started_s
    recorded(request, name, hits=sum(hits), outcome=SURVIVED, seconds=seconds, says="equal")
    assert all(hits), f"a fault was never injected: {hits}"
    found = small_run.records()
    assert found == undisturbed.records, f"other numbers after {name}: {found.steps}"


@pytest.mark.parametrize(
    "name",
    [*STOPS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_STOPS)],
)
def test_a_lasting_fault_stops_the_run_and_the_same_command_continues_it(
    name: str,
    small_run: SmallRun,
    proxy: FaultProxy,
    undisturbed: Undisturbed,
    request: pytest.FixtureRequest,
) -> None:
    fault = {**STOPS, **SLOW_STOPS}[name]
    proxy.rules = fault.rules()
    started_s = time.monotonic()
    with pytest.raises(HarnessError) as stop:
        small_run.experiment(fault.pace).train(ARM)
    seconds = time.monotonic() - started_s
    hits = [rule.hits for rule in proxy.rules]
    about = {"hits": sum(hits), "seconds": seconds, "says": stop.value.problem}
    recorded(request, name, outcome=STOPPED, **about)
    assert all(hits), f"a fault was never injected: {hits}"
    assert fault.says in str(stop.value), f"{name} is not named: {stop.value}"
    assert seconds <= fault.within_s, f"noticed after {seconds:.1f} s, not {fault.within_s} s"
    result = small_run.result()
    assert result.status == "running", f"a run that may continue is {result.status}"
    assert result.summary.startswith(f"small: stopped in arm {ARM}, "), result.summary
    assert "Continue with: pytest -m full --spec small.json" in result.summary
    proxy.rules = []
    small_run.experiment().train(ARM)
    assert small_run.said[-3].endswith("continued"), small_run.said
    assert small_run.records() == undisturbed.records, f"other numbers after {name}"


def test_a_bill_while_the_initial_state_is_made_stops_the_run_at_once(
    unstarted_run: SmallRun,
    proxy: FaultProxy,
    undisturbed: Undisturbed,
    request: pytest.FixtureRequest,
) -> None:
    proxy.rules = [Rule("create_model", status(402))]
    started_s = time.monotonic()
    with pytest.raises(ServiceError, match="billing") as stop:
        unstarted_run.experiment().train(ARM)
    seconds, hits = time.monotonic() - started_s, proxy.rules[0].hits
    about = {"hits": hits, "seconds": seconds, "says": stop.value.problem}
    recorded(request, "402 on the initial state", outcome=STOPPED, **about)
    assert seconds <= BILL_S, f"noticed after {seconds:.1f} s; the SDK alone pauses for 3600 s"
    summary = unstarted_run.result().summary
    assert summary.startswith("small: stopped in initial state, the service asks for billing")
    proxy.rules = []
    unstarted_run.experiment().train(ARM)
    assert unstarted_run.records() == undisturbed.records, "other numbers after the bill was paid"


@pytest.mark.parametrize(
    ("name", "after", "pace"),
    [("no capacity from the start", 0, 240.0), ("no capacity after a step", 4, 480.0)],
)
def test_a_service_without_capacity_ends_the_run_as_the_contract_says(
    name: str,
    after: int,
    pace: float,
    small_run: SmallRun,
    proxy: FaultProxy,
    request: pytest.FixtureRequest,
) -> None:
    proxy.rules = [Rule("asample", status(429, "capacity exhausted"), after=after)]
    started_s = time.monotonic()
    with pytest.raises(CapacityExhaustedError):
        small_run.experiment(pace).train(ARM)
    seconds, hits = time.monotonic() - started_s, proxy.rules[0].hits
    says = small_run.result().summary
    recorded(request, name, hits=hits, outcome=STOPPED, seconds=seconds, says=says)
    found = small_run.result().to_json()
    assert (found["status"], found["verdict"]) == ("failed", "inconclusive")
    assert found["outcome_reason"] == "incomplete_execution"
    block = found["capacity_block"]
    assert "capacity exhausted" in block["error"]
    assert block["comparison_steps_completed"] == (1 if after else 0)
    assert block["released_clients"] == 1, "the arm's session was not given back"
    assert any("waiting since" in line for line in small_run.said), "nobody was told"


def test_capacity_that_comes_back_is_waited_for(
    small_run: SmallRun,
    proxy: FaultProxy,
    undisturbed: Undisturbed,
    request: pytest.FixtureRequest,
) -> None:
    exhausted = status(400, "capacity exhausted")
    proxy.rules = [Rule("save_weights_for_sampler", exhausted, times=2)]
    started_s = time.monotonic()
    small_run.experiment().train(ARM)
    seconds = time.monotonic() - started_s
    about = {"hits": proxy.rules[0].hits, "seconds": seconds, "says": "equal, after two waits"}
    recorded(request, "no capacity for a while", outcome=SURVIVED, **about)
    waits = [line for line in small_run.said if "asked again at" in line]
    assert len(waits) == 2, f"two refusals, {len(waits)} waits: {small_run.said}"
    assert small_run.result().summary == "small: the service works again, no verdict yet."
    assert small_run.records() == undisturbed.records, "other numbers after two waits"
