"""Waiting for capacity: 1, 2, 4 minutes, 10 and 30 minute limits, on a clock that is given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from harness.capacity import (
    CapacityError,
    CapacityExhaustedError,
    CapacityState,
    wait_s,
)
from harness.capacity_layer import CapacityLayer, Waiting
from harness.errors import ServiceError
from harness.stage_watch import Clock

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


class HandClock:
    """A clock that only waits move."""

    def __init__(self) -> None:
        self.at_s = 0.0
        self.waits: list[float] = []

    def clock(self) -> Clock:
        return Clock(lambda: self.at_s, lambda: NOON + timedelta(seconds=self.at_s), self.sleep)

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.at_s += seconds


class Service:
    """Refuses a number of times, each try taking some seconds."""

    def __init__(self, hand: HandClock, refusals: int, try_s: float = 0.0) -> None:
        self.hand, self.refusals, self.try_s = hand, refusals, try_s
        self.asked_s: list[float] = []

    def __call__(self) -> str:
        self.asked_s.append(self.hand.at_s)
        self.hand.at_s += self.try_s
        if len(self.asked_s) <= self.refusals:
            raise CapacityError("refused", found="503 asample")
        return "done"


def layer(hand: HandClock, steps: int = 0) -> tuple[CapacityLayer, list[Waiting]]:
    said: list[Waiting] = []
    state = CapacityState(seed=7)
    state.progressed(steps)
    return CapacityLayer(state, hand.clock(), said.append), said


@pytest.mark.parametrize("seed", range(20))
def test_waits_double_from_a_minute_with_a_jitter_of_a_tenth(seed: int) -> None:
    waits = [wait_s(number, seed) for number in range(5)]
    for number, seconds in enumerate(waits):
        planned = 60.0 * 2**number
        assert 0.9 * planned <= seconds <= 1.1 * planned, f"wait {number}: {seconds:.1f} s"
    assert waits == [wait_s(number, seed) for number in range(5)], "the seed fixes the waits"
    assert waits != [wait_s(number, seed + 1) for number in range(5)], "runs come back together"


def test_capacity_that_comes_back_is_waited_for_and_told_about() -> None:
    hand = HandClock()
    work, said = layer(hand)
    assert work.run(Service(hand, refusals=3)) == "done"
    assert hand.waits == [wait_s(number, 7) for number in range(3)]
    first = said[0]
    assert (first.since, first.give_up) == (NOON, NOON + timedelta(minutes=10))
    assert first.until == NOON + timedelta(seconds=wait_s(0, 7))
    assert [waiting.since for waiting in said] == [NOON] * 3, "one refusal, one beginning"
    assert "503 asample" in first.sentence()
    assert "since 12:00:00 UTC" in first.sentence()


@pytest.mark.parametrize(("steps", "minutes"), [(0, 10), (1, 30)])
def test_a_run_gives_up_at_its_limit_and_not_before(steps: int, minutes: int) -> None:
    hand = HandClock()
    work, _ = layer(hand, steps)
    service = Service(hand, refusals=1000)
    with pytest.raises(CapacityExhaustedError, match=f"within {minutes} minutes") as end:
        work.run(service)
    assert hand.at_s == pytest.approx(60.0 * minutes), f"gave up after {hand.at_s} s"
    assert service.asked_s[-1] == pytest.approx(60.0 * minutes), "asked a last time at the limit"
    assert (end.value.refusal, end.value.steps) == ("503 asample", steps)


def test_the_time_inside_the_tries_counts() -> None:
    hand = HandClock()
    work, _ = layer(hand)
    with pytest.raises(CapacityExhaustedError):
        work.run(Service(hand, refusals=1000, try_s=300.0))
    assert 600.0 <= hand.at_s <= 1200.0, f"{hand.at_s} s"


def test_after_success_the_next_refusal_starts_at_a_minute_again() -> None:
    hand = HandClock()
    work, _ = layer(hand)
    work.run(Service(hand, refusals=3))
    hand.waits.clear()
    work.run(Service(hand, refusals=1))
    assert hand.waits == [wait_s(0, 7)]


def test_a_step_ends_a_refusal_and_lengthens_the_next_one() -> None:
    state = CapacityState(seed=0)
    state.refused("asample", "429", 0.0)
    assert state.is_hopeless(600.0)
    state.progressed(1)
    assert state.refusal is None
    state.refused("asample", "429", 700.0)
    assert not state.is_hopeless(700.0 + 1799.0)
    assert state.is_hopeless(700.0 + 1800.0)


def test_a_refusal_lasts_until_every_refused_endpoint_answers() -> None:
    state = CapacityState(seed=0)
    state.refused("asample", "429", 5.0)
    state.refused("forward_backward", "503", 9.0)
    state.answered("asample")
    state.answered("create_session")
    assert state.refusal is not None, "forward_backward is still refused"
    assert (state.refusal.since_s, state.refusal.message) == (5.0, "503")
    state.answered("forward_backward")
    assert state.refusal is None


def test_other_errors_are_not_waited_for() -> None:
    hand = HandClock()
    work, _ = layer(hand)

    def broken() -> None:
        raise ServiceError("something else")

    with pytest.raises(ServiceError, match="something else"):
        work.run(broken)
    assert hand.waits == []


def test_there_is_nothing_to_wait_for_while_nothing_is_refused() -> None:
    with pytest.raises(ServiceError, match="nothing is refused"):
        CapacityState(seed=0).next_wait_s(0.0)
