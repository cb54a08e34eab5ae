"""The one thread that owns torch.

Training jobs run first in, first out; sampling rows of every snapshot advance between them, a few
tokens at a time, so that one arm's training and another's sampling share the processor fairly.
Whatever a job raises is handed to its requester; the thread itself goes on.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from harness.local_service.decoder import DecoderWeights
from harness.local_service.refusals import RefusalError
from harness.local_service.sampler import Row, SamplingBatch

logger = logging.getLogger(__name__)

STEPS_PER_TURN = 4
IDLE_BATCHES_KEPT = 4
"""Merged weights of snapshots that are not sampling just now; older ones are merged again."""
IDLE_BYTES_KEPT = 2_000_000_000
"""The newest of them is kept whatever its size; the others only within this sum."""

Outcome = Any
"""What a job returned, or the RefusalError it ended with."""


@dataclass(frozen=True)
class Job:
    """Work for the engine's thread; ``finish`` gets the outcome, on the same thread."""

    run: Callable[[], Any]
    finish: Callable[[Outcome], None]


@dataclass(frozen=True, eq=False)
class SampleJob:
    """Rows to sample with the snapshot named ``key``; ``finish`` gets them when all are done."""

    key: str
    merge: Callable[[], DecoderWeights]
    rows: list[Row]
    finish: Callable[[Outcome], None]


class Engine:
    """Runs jobs on its own thread, torch with ``threads``, until stopped."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._inbox: queue.SimpleQueue[Job | SampleJob | None] = queue.SimpleQueue()
        self._training: deque[Job] = deque()
        self._batches: OrderedDict[str, SamplingBatch] = OrderedDict()
        self._unfinished: dict[str, list[SampleJob]] = {}
        self._thread = threading.Thread(target=self._loop, name="torch", daemon=True)
        self._open = True

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Let the job in hand end, drop the rest, and join the thread."""
        self._inbox.put(None)
        self._thread.join(timeout=30)

    def submit(self, job: Job | SampleJob) -> None:
        """Hand over a job; returns at once."""
        self._inbox.put(job)

    def _loop(self) -> None:
        torch.set_num_threads(self._threads)
        while self._open:
            self._take_in()
            if self._training:
                self._run(self._training.popleft())
            for key in [key for key, batch in self._batches.items() if batch.busy]:
                self._advance(key)
            self._drop_idle()

    def _take_in(self) -> None:
        """Accept what has arrived; wait for something only when there is nothing to do."""
        block = not self._training and not any(batch.busy for batch in self._batches.values())
        while True:
            try:
                job = self._inbox.get(block=block)
            except queue.Empty:
                return
            block = False
            if job is None:
                self._open = False
            elif isinstance(job, SampleJob):
                self._run(Job(lambda job=job: self._admit(job), self._on_failure(job)))
            else:
                self._training.append(job)

    def _on_failure(self, job: SampleJob) -> Callable[[Outcome], None]:
        return lambda outcome: job.finish(outcome) if isinstance(outcome, RefusalError) else None

    def _run(self, job: Job) -> None:
        job.finish(outcome_of(job.run))

    def _admit(self, job: SampleJob) -> None:
        batch = self._batches.get(job.key)
        if batch is None:
            batch = self._batches[job.key] = SamplingBatch(job.merge())
        self._batches.move_to_end(job.key)
        self._unfinished.setdefault(job.key, []).append(job)
        left = [len(job.rows)]
        for row in job.rows:
            row.done = lambda: self._row_done(job, left)
            batch.waiting.append(row)

    def _row_done(self, job: SampleJob, left: list[int]) -> None:
        left[0] -= 1
        if left[0] > 0:
            return
        jobs = self._unfinished[job.key]
        jobs.remove(job)
        if not jobs:
            del self._unfinished[job.key]
        job.finish(job.rows)

    def _advance(self, key: str) -> None:
        """Give one snapshot's rows a turn; a failure ends its requests, not the service."""
        outcome = outcome_of(lambda: self._turn(self._batches[key]))
        if isinstance(outcome, RefusalError):
            del self._batches[key]
            for job in self._unfinished.pop(key, []):
                job.finish(outcome)

    def _turn(self, batch: SamplingBatch) -> None:
        for _ in range(STEPS_PER_TURN):
            with torch.inference_mode():
                batch.advance()

    def _drop_idle(self) -> None:
        idle = [key for key, batch in self._batches.items() if not batch.busy]
        kept_bytes = 0
        for place, key in enumerate(reversed(idle)):
            kept_bytes += self._batches[key].weights.bytes
            if place >= IDLE_BATCHES_KEPT or (place and kept_bytes > IDLE_BYTES_KEPT):
                del self._batches[key]


def outcome_of(run: Callable[[], Any]) -> Outcome:
    """Call ``run``; return its value, or the RefusalError that tells the requester what went wrong.

    An unforeseen error is logged with its traceback and becomes a status-500 refusal: the request
    fails visibly and the service stays up for the others.
    """
    try:
        return run()
    except RefusalError as refusal:
        return refusal
    except Exception as error:
        logger.exception("a job failed unexpectedly")
        return RefusalError(
            "the embedded service failed while running this request",
            status=500,
            found=f"{type(error).__name__}: {error}"[:300],
            fix="see the service's log",
        )
