"""Ends a live gate that the service refuses: nothing is measured, and nobody waits for an hour.

A gate asks the service from this very process, where the SDK pauses an hour on 402 and asks for
ever on 429 (tinker-notes §4). Its retries stay as they are; this looks at the answers as they
arrive and ends what waits for them: at once on a bill, after two minutes of unbroken refusal for
want of capacity. The limits of contract §10 are the run's, whose stages are watched from outside.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from harness.answer_log import work_endpoint
from harness.capacity import CapacityState
from harness.errors import RefusedError
from harness.redact import Redactor
from harness.service_fault import FaultKind, kind_of_answer, one_clause

LIMIT_S = 120.0
"""How long a gate may be refused for want of capacity; the SDK rides over shorter refusals."""
_LOOK_S = 0.25
_AGAIN_S = 5.0
"""Pause before what still waits is ended once more: cleaning up may ask the service too."""
_SIGNAL = signal.SIGUSR1


class Refusals:
    """What the service refuses a session's gates.

    Args:
        redactor: keeps secrets out of what a service says.
        now_s: the clock of the limit.

    Attributes:
        reason: why the present block is to end; "" while it may go on.
    """

    def __init__(self, redactor: Redactor, now_s: Callable[[], float] = time.monotonic) -> None:
        self.redactor = redactor
        self.now_s = now_s
        self.reason = ""
        self._patient = True
        self._opened = False
        self._bill = ""
        self._state = CapacityState(seed=0)
        self._lock = threading.Lock()
        self._armed = False

    def answer(self, path: str, status: int, text: str) -> None:
        """Note one HTTP answer; called on the SDK's threads."""
        endpoint = work_endpoint(path, opening=not self._opened)
        if endpoint is None:
            return
        kind = kind_of_answer(status, text)
        said = one_clause(self.redactor.redact(f"{status} {endpoint}: {text}"))
        with self._lock:
            if kind is FaultKind.BILLING:
                self._bill = said
            elif kind is FaultKind.CAPACITY:
                self._state.refused(endpoint, said, self.now_s())
            elif status < 400:
                self._opened = self._opened or endpoint == "create_session"
                self._state.answered(endpoint)

    def look(self) -> str:
        """Judge what is known by now and return :attr:`reason`.

        Once a gate has been ended, the next refusal ends whatever comes after it at once.
        """
        with self._lock:
            refusal, now_s = self._state.refusal, self.now_s()
            limit_s = LIMIT_S if self._patient else 0.0
            if self._bill:
                self.reason = self._bill
            elif refusal and now_s - refusal.since_s >= limit_s:
                self.reason = f"{refusal.message}, for {now_s - refusal.since_s:.0f} s"
            if self.reason:
                self._patient = False
            return self.reason

    def error(self) -> RefusedError:
        """Return the error that ends the block."""
        return RefusedError(
            "the service refused what the gate asked: nothing was measured",
            expected=f"an answer at last within {LIMIT_S:.0f} s, and no bill",
            found=self.reason,
            where="the training service",
            fix="settle the bill or come back when it has room, then run the gate again",
        )

    @contextmanager
    def watching(self) -> Iterator[None]:
        """End the block, which the main thread runs, when it is refused.

        A wait inside the SDK ends only by a signal. Its handler stays in place after the block:
        one that arrives late finds it and does nothing.

        Raises:
            RefusedError: when it was; also when the block took the error for something else.
        """
        self._begin()
        over = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(threading.get_ident(), over), name="refusals", daemon=True
        )
        signal.signal(_SIGNAL, self._end)
        watcher.start()
        self._armed = True
        try:
            try:
                yield
            finally:
                self._armed = False
        finally:
            # Again, because the error may have come just before the line above.
            self._armed = False
            over.set()
            watcher.join()
        if self.reason:
            raise self.error()

    def _begin(self) -> None:
        with self._lock:
            self.reason = self._bill = ""
            self._state = CapacityState(seed=0)

    def _watch(self, thread: int, over: threading.Event) -> None:
        while not over.wait(_LOOK_S):
            if self.look():
                signal.pthread_kill(thread, _SIGNAL)
                if over.wait(_AGAIN_S):
                    return

    def _end(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._armed:
            raise self.error()
