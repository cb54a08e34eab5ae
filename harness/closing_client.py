"""An SDK client whose end is no error on a service that cannot finish sessions.

The SDK finishes its session when a ``with`` block ends, and raises where the service has no such
route, also over the error that ended the block. Such a session ends by itself: nobody sends its
heartbeat any more (:mod:`harness.release` counts those that a service confirmed). An error of the
block is the one that counts, however finishing ends: replaced by the service's, a defect of ours
would be told as a fault of the service.
"""

from __future__ import annotations

from types import TracebackType

import tinker

from harness.service_fault import one_clause


class ClosingClient(tinker.ServiceClient):
    """The SDK's client, for ``with`` statements; everything else is the SDK's own."""

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Finish the session if the service can; the client's connections are closed anyway.

        Raises:
            tinker.TinkerError: when the block ended well, the service has the route and finishing
                failed.
        """
        try:
            super().__exit__(exc_type, exc, traceback)
        except tinker.NotFoundError:
            return
        except tinker.TinkerError as unfinished:
            if exc is None:
                raise
            said = one_clause(f"{type(unfinished).__name__}: {unfinished}")
            exc.add_note(f"the SDK's session was not finished either: {said}")
