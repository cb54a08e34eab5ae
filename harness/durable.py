"""Bytes that survive: strict encoding, atomic replacement, fsync of file and folder.

A file is written beside its name and given the name in one step, so a reader sees the old content
or the new one and never a part of either.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import DocumentError, StoreError
from harness.records_out import safe_json


def encoded(obj: Any, where: str, *, indent: int | None = None) -> bytes:
    """Return strict JSON with sorted keys and a final line feed: equal values, equal bytes.

    What looks like a token is replaced by a placeholder that says so; a value of one of this
    process's secrets is never written and never quietly altered either (docs/decisions.md).

    Raises:
        DocumentError: naming ``where``, for NaN, Infinity or a value JSON cannot hold.
        SecretError: when a text of it holds a secret that this process knows.
    """
    separators = (",", ": ") if indent else (",", ":")

    def dump(value: Any) -> str:
        return json.dumps(
            value, indent=indent, separators=separators, sort_keys=True, allow_nan=False
        )

    try:
        text = dump(obj)
    except (TypeError, ValueError) as error:
        raise DocumentError(
            "a value has no strict JSON form",
            expected="finite numbers, strings, booleans, null, arrays, objects",
            found=str(error),
            where=where,
        ) from error
    return safe_json(text, obj, where, dump=dump).encode() + b"\n"


@contextmanager
def stored(path: Path) -> Iterator[None]:
    """Name the file and the way out when the operating system refuses."""
    try:
        yield
    except StoreError:
        raise
    except FileExistsError as error:
        raise StoreError(
            "a name is taken and what it holds is kept",
            found="an existing file",
            where=str(path),
            fix="choose a new name for the update",
        ) from error
    except OSError as error:
        raise StoreError(
            "a run's file cannot be read or written",
            found=error.strerror or type(error).__name__,
            where=str(path),
            fix="check that the artifacts directory exists, is writable and has space",
        ) from error


def write_beside(path: Path, data: bytes, *, replace: bool) -> None:
    """Write a neighbour, then give it the name in one step.

    Raises:
        FileExistsError: without ``replace``, when the name is taken.
    """
    with tempfile.NamedTemporaryFile(prefix=".writing-", dir=path.parent, delete=False) as stream:
        temporary = Path(stream.name)
        try:
            write_all(stream.fileno(), data)
            temporary.chmod(0o644)
            if replace:
                temporary.replace(path)
            else:
                path.hardlink_to(temporary)
        finally:
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte and wait until they are on disk."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the folder's names are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
