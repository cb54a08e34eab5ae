"""One process works on a run at a time.

The lock is the operating system's, so it goes when its process dies, however it dies. What the lock
file holds (pid, host, start) is for people: to name who is at work, or whose lock was left behind.
It lies beside the run's folder, because it is no record of the run.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.digest import parse_json
from harness.durable import encoded, stored
from harness.errors import DocumentError, StoreError

_MOST_BYTES = 4096


class RunLock:
    """The right to work on one run, until :meth:`release` or the process's end.

    Attributes:
        taken_over: who left the lock behind, when a dead process did; else empty.
    """

    def __init__(self, descriptor: int, path: Path, taken_over: str) -> None:
        self._descriptor: int | None = descriptor
        self.path = path
        self.taken_over = taken_over

    def release(self) -> None:
        """Let others work on the run; nothing happens the second time."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def lock_path(run_folder: Path) -> Path:
    """Return where a run's lock lies."""
    return run_folder.parent / f".{run_folder.name}.lock"


def acquire(run_folder: Path) -> RunLock | None:
    """Take a run's lock.

    Returns:
        The lock, or None when this very process holds it already.

    Raises:
        StoreError: naming both processes, when another one is at work on the run.
    """
    path = lock_path(run_folder)
    me = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "start": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with stored(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            if (holder.get("pid"), holder.get("host")) == (me["pid"], me["host"]):
                return None
            raise _refusal(run_folder, holder, me) from None
        left_behind = _holder(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, encoded(me, path.name), 0)
    lock = RunLock(descriptor, path, _named(left_behind) if left_behind else "")
    atexit.register(lock.release)
    return lock


def _refusal(run_folder: Path, holder: dict[str, Any], me: dict[str, Any]) -> StoreError:
    return StoreError(
        "another process works on this run",
        expected=f"the run to be free for {_named(me)}",
        found=f"held by {_named(holder)}",
        where=run_folder.name,
        fix="wait until it ends, or start another run with --fresh",
    )


def _holder(descriptor: int) -> dict[str, Any]:
    """Return what the lock file says; nothing for one that was cut off while written."""
    text = os.pread(descriptor, _MOST_BYTES, 0)
    try:
        found = parse_json(text, where="the run's lock") if text else {}
    except DocumentError:
        return {"pid": "unknown", "host": "unknown", "start": "unknown"}
    return found if isinstance(found, dict) else {}


def _named(holder: dict[str, Any]) -> str:
    return (
        f"process {holder.get('pid', 'unknown')} on {holder.get('host', 'unknown')},"
        f" started {holder.get('start', 'unknown')}"
    )
