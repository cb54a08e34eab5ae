"""Several trainings of a run at once: ``--parallel N``.

Each training has a thread that starts its stages' processes and watches them; what the threads say
reaches the terminal through the thread that waits, line by line. What they share (result document,
manifest, capacity) is guarded where it is changed, by the lock of the run's capacity state.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

_LOOK_S = 0.25


class StoppedError(BaseException):
    """Raised inside a training that must end because the session ends.

    No ``Exception``: nothing may take it for a fault of the training and record it as one.
    """


class Relay:
    """Shows lines in the thread that made it; lines of other threads wait until it looks.

    Args:
        report: shows one line.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self.report = report
        self._owner = threading.get_ident()
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __call__(self, text: str) -> None:
        """Show a line now, or keep it for the owner's thread."""
        if threading.get_ident() == self._owner:
            self.show_waiting()
            self.report(text)
        else:
            self._waiting.put(text)

    def show_waiting(self) -> None:
        """Show what other threads said, in the order in which they said it."""
        while True:
            try:
                self.report(self._waiting.get_nowait())
            except queue.Empty:
                return


class ParallelTrainings:
    """Starts all trainings at once, at most so many at a time; used from one thread.

    Args:
        names: the trainings, in the order in which they are begun.
        most: how many may run together, at least 1.
        work: brings one training to its end; called in a thread of its own.
        relay: takes what the threads say.
        stopping: set when the threads have to end; ``work`` looks at it.
    """

    def __init__(
        self,
        names: Sequence[str],
        most: int,
        work: Callable[[str], None],
        relay: Relay,
        stopping: threading.Event,
    ) -> None:
        self.relay = relay
        self.stopping = stopping
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="training")
        self._ends: dict[str, Future[None]] = {
            name: self._pool.submit(self._unless_stopped, work, name) for name in names
        }

    def __contains__(self, name: str) -> bool:
        return name in self._ends

    def wait_for(self, name: str) -> None:
        """Show what all trainings say until this one has ended.

        Raises:
            BaseException: whatever ended the training.
        """
        end = self._ends[name]
        while not wait([end], timeout=_LOOK_S).done:
            self.relay.show_waiting()
        self.relay.show_waiting()
        end.result()

    def stop(self) -> None:
        """End every training that still runs, wait for that, and begin no other."""
        self.stopping.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self.relay.show_waiting()

    def _unless_stopped(self, work: Callable[[str], None], name: str) -> None:
        if self.stopping.is_set():
            raise StoppedError(f"{name} was not begun")
        work(name)
