"""Files of a run: an exclusive folder, atomic documents, append-only rows (contract §2, §11).

A document is replaced by rename, so a reader sees the old one or the new one and never a part.
Rows are appended one write and one fsync each, so what a killed process leaves is whole rows and
at most one torn line, which is reported as such and never read as data.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.digest import parse_json
from harness.durable import encoded, stored, sync_folder, write_all, write_beside
from harness.errors import DocumentError, StoreError
from harness.reading import MAX_ROWS_BYTES, check_line, read_regular
from harness.records_out import refuse_secrets

LATEST = "latest"
"""Link beside the runs of a spec, to the one created last."""
_APPENDING = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""How a file of rows is opened: never through a link, never waiting for another end."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class TornLineError(StoreError):
    """A JSONL file ends in a line that was not completely written.

    Attributes:
        rows: the complete rows before it.
    """

    def __init__(self, path: Path, tail: bytes, rows: tuple[dict[str, Any], ...]) -> None:
        self.rows = rows
        super().__init__(
            "the last line is torn: its writer stopped in the middle",
            expected="a line feed at the end of the file",
            found=f"{len(rows)} complete rows, then {tail[-60:]!r}",
            where=str(path),
            fix="start a new run (--fresh); the complete rows stay readable",
        )


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's folder: ``<artifacts>/runs/<spec name>/<run id>/``."""

    path: Path

    @classmethod
    def create(
        cls,
        artifacts: Path,
        spec_name: str,
        spec_digest: str,
        *,
        now: datetime,
        run_id: str | None = None,
    ) -> RunFolder:
        """Create a folder that no other process has, and point ``latest`` at it.

        Args:
            artifacts: the artifacts directory, made when it is missing.
            spec_name: the spec's file stem.
            spec_digest: its SHA-256; eight digits go into the run id.
            now: an aware time.
            run_id: an id that was given out before; None for a new one.

        Raises:
            StoreError: when the name is not plain or the folder cannot be made.
        """
        parent = artifacts / "runs" / plain_name(spec_name)
        stem = plain_name(run_id) if run_id else run_stem(spec_digest, now)
        with stored(parent):
            parent.mkdir(parents=True, exist_ok=True)
            path = _make_exclusive(parent, stem)
            _point_latest(parent, path.name)
        return cls(path)

    @classmethod
    def latest(cls, artifacts: Path, spec_name: str) -> RunFolder | None:
        """Return the run created last for a spec, or None where there is none."""
        link = artifacts / "runs" / plain_name(spec_name) / LATEST
        return cls(link.resolve()) if link.is_dir() else None

    @property
    def run_id(self) -> str:
        """UTC time of creation and the start of the spec's digest."""
        return self.path.name

    def file(self, name: str) -> Path:
        """Return the path of one file of the run.

        Raises:
            StoreError: for anything but a plain name.
        """
        return self.path / plain_name(name)


def run_stem(spec_digest: str, now: datetime) -> str:
    """Return a run's id: UTC time and eight digits of the spec's digest."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{spec_digest[:8]}"


def plain_name(name: str) -> str:
    """Return ``name`` if it is plain: letters, digits, ``.``, ``_``, ``-`` (contract §11).

    Raises:
        StoreError: for a path, an empty name, ``.``, ``..`` or another character.
    """
    if not _PLAIN_NAME.fullmatch(name) or name in {".", ".."}:
        raise StoreError(
            "a file name is not plain",
            expected="1 to 200 letters, digits, '.', '_' or '-', not a path",
            found=repr(name),
            fix="rename it",
        )
    return name


def write_json_atomic(path: Path, obj: Any) -> None:
    """Replace a document: equal values give equal bytes (indented, keys sorted).

    Raises:
        DocumentError: when the value is not strict JSON; the old document stays.
        StoreError: when it cannot be written; the old document stays.
    """
    data = encoded(obj, str(path), indent=2)
    with stored(path):
        write_beside(path, data, replace=True)


def write_new(path: Path, data: bytes) -> None:
    """Write an immutable file; a second write under one name is refused (contract §11).

    Raises:
        SecretError: when it holds a secret: these bytes are kept as they are or not at all.
        StoreError: when the name is taken or the file cannot be written.
    """
    refuse_secrets(data, str(path))
    _write_new(path, data)


def _write_new(path: Path, data: bytes) -> None:
    with stored(path):
        write_beside(path, data, replace=False)


def write_jsonl_new(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write all rows of an immutable JSONL file at once.

    Raises:
        DocumentError: when a row is not strict JSON; nothing is written then.
        StoreError: when the name is taken or the file cannot be written.
    """
    _write_new(path, b"".join(encoded(row, str(path)) for row in rows))


def append_jsonl(path: Path, *rows: dict[str, Any]) -> None:
    """Append rows in one write and see them on disk before returning.

    Raises:
        DocumentError: when a row is not strict JSON; nothing is written then.
        TornLineError: when the file ends in the middle of a line.
        StoreError: when it cannot be written.
    """
    lines = b"".join(encoded(row, str(path)) for row in rows)
    with stored(path):
        created = not path.exists()
        descriptor = os.open(path, _APPENDING, 0o644)
        with os.fdopen(descriptor, "r+b", buffering=0) as stream:
            # Another writer's line may be half visible until its write returns.
            fcntl.flock(stream, fcntl.LOCK_EX)
            _refuse_torn(path, stream.fileno())
            whole = os.fstat(stream.fileno()).st_size
            try:
                write_all(stream.fileno(), lines)
            except OSError:
                # A full disk takes part of a line: without it the file stays whole.
                os.ftruncate(stream.fileno(), whole)
                raise
        if created:
            sync_folder(path.parent)


def read_jsonl(path: Path) -> tuple[dict[str, Any], ...]:
    """Return every row; a last row without its line feed counts if it is complete JSON.

    Raises:
        DocumentError: for a line that is blank, not strict JSON or not an object.
        TornLineError: for a last line that breaks off; its ``rows`` are the complete ones.
        StoreError: when the file cannot be read.
    """
    *lines, tail = read_regular(path, max_bytes=MAX_ROWS_BYTES).split(b"\n")
    rows = [_row(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]
    if tail:
        check_line(tail, f"{path}:{len(lines) + 1}")
        try:
            rows.append(_row(tail, f"{path}:{len(lines) + 1}"))
        except DocumentError as error:
            raise TornLineError(path, tail, tuple(rows)) from error
    return tuple(rows)


def _row(line: bytes, where: str) -> dict[str, Any]:
    check_line(line, where)
    row = parse_json(line, where=where)
    if not isinstance(row, dict):
        raise DocumentError(
            "a row is not an object", expected="{...}", found=type(row).__name__, where=where
        )
    return row


def _make_exclusive(parent: Path, stem: str) -> Path:
    number = 1
    while True:
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            sync_folder(parent)
            return path


def _point_latest(parent: Path, run_id: str) -> None:
    with tempfile.TemporaryDirectory(prefix=".link-", dir=parent) as folder:
        link = Path(folder) / LATEST
        link.symlink_to(run_id)
        link.replace(parent / LATEST)
    sync_folder(parent)


def _refuse_torn(path: Path, descriptor: int) -> None:
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        raise StoreError(
            "rows are appended to regular files only",
            expected="a regular file",
            found="something else",
            where=str(path),
            fix="put a regular file there, or start a new run (--fresh)",
        )
    size = about.st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        rows = read_jsonl(path)
        raise TornLineError(path, os.pread(descriptor, 60, max(0, size - 60)), rows)
