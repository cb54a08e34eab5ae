"""A process that no one watches any more ends.

The parent keeps the writing end of the child's standard input open and never writes. When the
parent dies, however it dies, the system closes that end, and the child sees the end of its input.
"""

from __future__ import annotations

import os
import threading

WATCH_VARIABLE = "HARNESS_EXIT_WITH_PARENT"
ORPHANED_EXIT_CODE = 12


def end_with_parent() -> None:
    """End this process when its parent is gone, if the environment says that one watches it.

    The end is abrupt, as if this process had been killed too: what it has written is durable, and
    the next attempt continues from there.
    """
    if os.environ.get(WATCH_VARIABLE) == "1":
        threading.Thread(target=_wait_for_end, name="parent", daemon=True).start()


def _wait_for_end() -> None:
    # The descriptors themselves: no lock of a stream may keep the process from ending.
    while os.read(0, 4096):
        pass
    try:
        os.write(2, b"the process that watched this stage is gone: it ends\n")
    finally:
        # The parent read what is written here too, so that writing may fail with it.
        os._exit(ORPHANED_EXIT_CODE)
