"""A stage's output on its way into its log: line by line, without secrets and machine paths.

The log is filled by the parent, so that also what C code and a dying interpreter print passes the
one redactor. Files that libraries write beside it are gone through when the stage ends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from harness.durable import write_beside
from harness.places import known_places, without_places
from harness.reading import MAX_ROWS_BYTES, read_regular
from harness.secrets_out import without_secrets

_LINE_BYTES = 1 << 20
_LONGEST_SECRET = 1 << 14
_JOIN_S = 10.0


class LogCopy:
    """Copies a process's output into its log until the process closes it.

    Args:
        output: the read end of the process's output.
        log_path: the log in the run's folder of logs, appended to.
    """

    def __init__(self, output: IO[bytes], log_path: Path) -> None:
        self._output = output
        self._places = known_places(log_path.parent.parent)
        self._log = log_path.open("ab", buffering=0)
        self._thread = threading.Thread(target=self._copy, name="stage log", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        with self._output, self._log:
            for line in clean_lines(self._output):
                self._log.write(without_places(line, self._places).encode())

    def join(self) -> None:
        """Wait until all that was said is in the log; a grandchild may keep the pipe open."""
        self._thread.join(timeout=_JOIN_S)


def clean_lines(stream: IO[bytes]) -> Iterator[str]:
    """Yield a stream's lines without secrets; of a line beyond 1 MiB the end is left out."""
    while line := stream.readline(_LINE_BYTES):
        clean = without_secrets(line.decode("utf-8", "replace"))
        if len(line) < _LINE_BYTES or line.endswith(b"\n"):
            yield clean
            continue
        # What the limit may have cut in two lies in the last part, which nobody sees.
        yield clean[:-_LONGEST_SECRET] + " [the rest of this line was left out]\n"
        while line and not line.endswith(b"\n"):
            line = stream.readline(_LINE_BYTES)


def scrub_files(folder: Path, run_folder: Path) -> list[str]:
    """Replace secrets and this machine's folders in text files that a library wrote.

    Args:
        folder: the library's files.
        run_folder: the run that they belong to.

    Returns:
        Names of the files that held a secret.

    Raises:
        StoreError: for a file that cannot be read or is larger than a log may be.
    """
    places = known_places(run_folder)
    changed: list[str] = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        data = read_regular(path, max_bytes=4 * MAX_ROWS_BYTES)
        text = data.decode("utf-8", "surrogateescape")
        clean = without_secrets(text)
        if clean != text:
            changed.append(path.relative_to(folder).as_posix())
        clean = without_places(clean, places)
        if clean != text:
            write_beside(path, clean.encode("utf-8", "surrogateescape"), replace=True)
    return changed
