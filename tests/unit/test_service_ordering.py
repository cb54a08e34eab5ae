"""Sequence numbers: order kept, repetitions answered once, conflicts refused."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.local_service.futures import Future
from harness.local_service.ordering import SequenceQueue
from harness.local_service.refusals import RefusalError


def send(queue: SequenceQueue, ran: list[int], number: int, digest: str = "d") -> Future:
    """Submit as the service does; return the future a client would be given."""
    earlier = queue.ledger.repeated(number, digest)
    if earlier is not None:
        return earlier
    future = Future(f"r{number}", "s")
    start: Callable[[], None] = lambda: ran.append(number)  # noqa: E731
    queue.submit(number, digest, future, start)
    return future


@settings(derandomize=True, deadline=None, max_examples=80)
@given(size=st.integers(1, 12), seed=st.integers(0, 10_000), repeats=st.integers(0, 5))
def test_any_arrival_order_runs_in_order_and_once(size: int, seed: int, repeats: int) -> None:
    rng = random.Random(seed)
    arrivals = list(range(1, size + 1)) + [rng.randint(1, size) for _ in range(repeats)]
    rng.shuffle(arrivals)
    queue, ran = SequenceQueue("m"), []
    futures: dict[int, set[str]] = {}
    for number in arrivals:
        futures.setdefault(number, set()).add(send(queue, ran, number).request_id)
    assert ran == list(range(1, size + 1)), f"arrivals {arrivals} ran as {ran}"
    assert all(len(ids) == 1 for ids in futures.values()), "a repetition got another future"


def test_a_later_request_waits_for_an_earlier_one() -> None:
    queue, ran = SequenceQueue("m"), []
    send(queue, ran, 2)
    assert ran == []
    send(queue, ran, 1)
    assert ran == [1, 2]


def test_another_request_under_a_used_number_is_a_conflict() -> None:
    queue, ran = SequenceQueue("m"), []
    send(queue, ran, 1)
    with pytest.raises(RefusalError) as refused:
        send(queue, ran, 1, digest="other")
    assert refused.value.status == 409
    assert ran == [1], "the conflicting request must not run"


def test_a_refused_request_holds_nobody_up() -> None:
    queue, ran = SequenceQueue("m"), []
    queue.reject(1)
    send(queue, ran, 2)
    assert ran == [2]
    with pytest.raises(RefusalError) as refused:
        send(queue, ran, 1)
    assert refused.value.status == 409, "a number that was passed over must not run late"


def test_a_refused_request_may_be_corrected_before_a_later_one_arrives() -> None:
    queue, ran = SequenceQueue("m"), []
    queue.reject(1)
    send(queue, ran, 1)
    send(queue, ran, 2)
    assert ran == [1, 2]


def test_a_refusal_fills_a_gap_that_others_already_wait_behind() -> None:
    queue, ran = SequenceQueue("m"), []
    send(queue, ran, 3)
    send(queue, ran, 1)
    assert ran == [1]
    queue.reject(2)
    assert ran == [1, 3]
