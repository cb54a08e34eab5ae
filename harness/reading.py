"""Bytes from files that may be anything: regular files only, of bounded size, never waiting.

What a run leaves behind is copied, mailed and edited, so a reader may meet a pipe, a device, a link
out of the folder, a link to itself or a file that never ends. Each is refused with its name; none
is waited for and none is read past its limit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harness.errors import DocumentError, StoreError

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
"""Largest JSON document; the contract's own largest, a file of observations, has 10 MiB."""
MAX_ROWS_BYTES = 64 * 1024 * 1024
"""Largest JSONL file; the rollouts of the saved experiment stay below a tenth of it."""
MAX_LINE_BYTES = 4 * 1024 * 1024
"""Longest line of a JSONL file."""
_BLOCK_BYTES = 1 << 16


def open_regular(path: Path, *, follow: bool = False) -> BinaryIO:
    """Open a regular file for reading, without waiting for a writer.

    Args:
        path: the file.
        follow: whether its last part may be a symbolic link. True where a person named the file;
            a record inside a run is never a link.

    Raises:
        StoreError: naming the file, when it cannot be opened or is no regular file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        # A pipe without a writer, a folder: opened without waiting, then refused by kind.
        stream = os.fdopen(os.open(path, flags), "rb", closefd=True)
    except (OSError, ValueError) as error:
        raise _unreadable(path, follow, error) from error
    kind = os.fstat(stream.fileno()).st_mode
    if not stat.S_ISREG(kind):
        stream.close()
        raise _irregular(path, f"a {_kind_name(kind)}")
    return stream


def read_regular(path: Path, *, max_bytes: int = MAX_DOCUMENT_BYTES, follow: bool = False) -> bytes:
    """Return a regular file's bytes.

    Raises:
        StoreError: naming the file, as `open_regular`, or when it is larger than ``max_bytes``.
    """
    with open_regular(path, follow=follow) as stream:
        try:
            # Not the limit at once: that would hold 64 MiB for a file of a few lines.
            data = stream.read(min(os.fstat(stream.fileno()).st_size, max_bytes) + 1)
            while len(data) <= max_bytes and (more := stream.read(_BLOCK_BYTES)):
                data += more
        except OSError as error:
            raise _unreadable(path, follow, error) from error
    if len(data) > max_bytes:
        raise StoreError(
            "the file is larger than any record of its kind",
            expected=f"at most {max_bytes} bytes",
            found="more",
            where=str(path),
            fix="find out what wrote it; nothing of it was used",
        )
    return data


def bounded_lines(stream: BinaryIO, where: str) -> Iterator[bytes]:
    """Yield a stream's lines with their line feeds.

    Raises:
        DocumentError: naming the first line that is longer than ``MAX_LINE_BYTES``.
    """
    number = 1
    while line := stream.readline(MAX_LINE_BYTES + 1):
        check_line(line, f"{where} line {number}".lstrip())
        yield line
        number += 1


def check_line(line: bytes, where: str) -> None:
    """Refuse a line that is longer than ``MAX_LINE_BYTES``.

    Raises:
        DocumentError: naming the place.
    """
    if len(line) > MAX_LINE_BYTES:
        raise DocumentError(
            "a line is too long",
            expected=f"at most {MAX_LINE_BYTES} bytes",
            found="more",
            where=where,
        )


def _unreadable(path: Path, follow: bool, error: OSError | ValueError) -> StoreError:
    # ValueError: a NUL character in the name.
    reason = error.strerror if isinstance(error, OSError) else str(error)
    try:
        linked = not follow and path.is_symlink()
    except (OSError, ValueError):
        linked = False
    if linked:
        return _irregular(path, "a symbolic link")
    return StoreError(
        "a file cannot be read",
        expected="a regular file",
        found=reason or type(error).__name__,
        where=str(path),
        fix="check its name and permissions",
    )


def _irregular(path: Path, found: str) -> StoreError:
    return StoreError(
        "what has the file's name is no regular file",
        expected="a regular file",
        found=found,
        where=str(path),
        fix="put the file itself there",
    )


def _kind_name(mode: int) -> str:
    names = (
        (stat.S_ISDIR, "folder"),
        (stat.S_ISFIFO, "pipe"),
        (stat.S_ISCHR, "character device"),
        (stat.S_ISBLK, "block device"),
    )
    return next((name for is_kind, name in names if is_kind(mode)), "special file")
