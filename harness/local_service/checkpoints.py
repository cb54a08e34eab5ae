"""Checkpoints on disk: what is saved, where, and when a load is refused.

    <data dir>/runs/<run>/run.json
    <data dir>/runs/<run>/weights/<name>/            adapter, Adam moments and step, metadata
    <data dir>/runs/<run>/sampler_weights/<name>/    adapter, metadata
    <data dir>/runs/<run>/external_weights/<name>/   PEFT files for download, metadata

Tensors are safetensors, the rest strict JSON. A checkpoint is written beside its place, brought to
the disk and moved in by one rename, so a crash leaves either all of it or none, and an address that
was answered outlives the machine's power. Names are immutable unless the request says overwrite.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harness.digest import parse_json
from harness.durable import sync_folder
from harness.local_service.refusals import RefusalError

KINDS = {"weights": "training", "sampler_weights": "sampler", "external_weights": "external"}
"""URI segment -> the SDK's checkpoint_type."""

MIN_TTL_S, MAX_TTL_S = 3600, 10 * 365 * 24 * 3600

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_RUN = re.compile(r"[A-Za-z0-9-]{1,64}:train:[0-9]{1,9}")
_METADATA = "metadata.json"


@dataclass(frozen=True)
class CheckpointRef:
    """The three parts of ``tinker://<run>/<kind>/<name>``, each checked."""

    run: str
    kind: str
    name: str

    @property
    def uri(self) -> str:
        """The checkpoint's public name."""
        return f"tinker://{self.run}/{self.kind}/{self.name}"

    @property
    def checkpoint_id(self) -> str:
        """Kind and name, as the REST calls spell it."""
        return f"{self.kind}/{self.name}"


def make_ref(run: str, kind: str, name: str) -> CheckpointRef:
    """Check the parts of a checkpoint's name.

    Raises:
        RefusalError: if a part is not of this form, so that no path can leave its folder.
    """
    good = _RUN.fullmatch(run) and kind in KINDS and _NAME.fullmatch(name) and set(name) != {"."}
    if not good:
        raise RefusalError(
            "this is not a checkpoint's name",
            expected="tinker://<run id>/(weights|sampler_weights|external_weights)/<name>, "
            "name of 1 to 128 of A-Z a-z 0-9 . _ - and not dots only",
            found=f"tinker://{run}/{kind}/{name}"[:300],
        )
    return CheckpointRef(run, kind, name)


def parse_uri(uri: str) -> CheckpointRef:
    """Parse ``tinker://<run>/<kind>/<name>``.

    Raises:
        RefusalError: if it is anything else.
    """
    parts = uri.removeprefix("tinker://").split("/")
    if not uri.startswith("tinker://") or len(parts) != 3:
        raise RefusalError(
            "this is not a checkpoint's URI",
            expected="tinker://<run id>/<kind>/<name>",
            found=uri[:300],
        )
    return make_ref(*parts)


def check_ttl(ttl_seconds: int | None) -> int | None:
    """Refuse a lifetime outside the SDK's documented range (one hour to ten years)."""
    if ttl_seconds is not None and not MIN_TTL_S <= ttl_seconds <= MAX_TTL_S:
        raise RefusalError(
            "the time to live is out of range",
            expected=f"{MIN_TTL_S} to {MAX_TTL_S} seconds, or none",
            found=str(ttl_seconds),
            where="ttl_seconds",
        )
    return ttl_seconds


class CheckpointStore:
    """The folder tree of one service; the only module that touches it."""

    def __init__(self, data_dir: Path) -> None:
        self.runs_dir = data_dir / "runs"
        self.runs_dir.mkdir(parents=True, exist_ok=True)

    def path(self, ref: CheckpointRef) -> Path:
        """Where a checkpoint's files are (or would be)."""
        return self._run_dir(ref.run) / ref.kind / ref.name

    def _run_dir(self, run: str) -> Path:
        return self.runs_dir / run.replace(":", ".")

    def write_run(self, run: str, document: dict[str, Any]) -> None:
        """Record a training run, so that it can be described after a restart."""
        folder = self._run_dir(run)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "run.json", document)
        sync_folder(folder)
        sync_folder(self.runs_dir)

    def read_run(self, run: str) -> dict[str, Any]:
        """Return a training run's record.

        Raises:
            RefusalError: 404 if there is none.
        """
        path = self._run_dir(run) / "run.json" if _RUN.fullmatch(run) else None
        if path is None or not path.is_file():
            raise RefusalError("there is no such training run", status=404, found=run[:200])
        return parse_json(path.read_bytes(), where="run.json")

    def runs(self) -> list[str]:
        """All recorded training runs' ids, sorted."""
        return sorted(
            path.parent.name.replace(".", ":") for path in self.runs_dir.glob("*/run.json")
        )

    def save(
        self,
        ref: CheckpointRef,
        metadata: dict[str, Any],
        write_files: Callable[[Path], None],
        *,
        overwrite: bool,
    ) -> None:
        """Write a checkpoint: ``write_files`` fills an empty folder, then it is moved into place.

        Raises:
            RefusalError: 409 if the name is taken and ``overwrite`` is false.
        """
        target = self.path(ref)
        if target.exists() and not overwrite:
            raise RefusalError(
                "a checkpoint of this name exists and is immutable",
                status=409,
                found=ref.uri,
                fix="choose another name, or overwrite=True where the call has it",
            )
        scratch = target.parent / f".{ref.name[:64]}.{secrets.token_hex(4)}"
        scratch.mkdir(parents=True)
        try:
            write_files(scratch)
            _complete(scratch, metadata)
            _sync_files(scratch)
            _swap_in(scratch, target)
            # The run's own folder too: its first checkpoint of a kind makes the kind's folder.
            sync_folder(target.parent)
            sync_folder(target.parent.parent)
        finally:
            # Gone already when all went well; what a failed save wrote must not stay.
            shutil.rmtree(scratch, ignore_errors=True)

    def metadata(self, ref: CheckpointRef) -> dict[str, Any]:
        """Return a checkpoint's metadata.

        Raises:
            RefusalError: 404 if there is no such checkpoint, or it has expired.
        """
        path = self.path(ref) / _METADATA
        if not path.is_file():
            raise RefusalError("there is no such checkpoint", status=404, found=ref.uri)
        metadata = parse_json(path.read_bytes(), where=ref.uri)
        if expired(metadata):
            raise RefusalError("the checkpoint has expired", status=404, found=ref.uri)
        return metadata

    def set_ttl(self, ref: CheckpointRef, ttl_seconds: int | None) -> None:
        """Set or remove a checkpoint's expiry."""
        metadata = {**self.metadata(ref), **expiry(ttl_seconds)}
        write_json(self.path(ref) / _METADATA, metadata)

    def delete(self, ref: CheckpointRef) -> None:
        """Remove a checkpoint's files."""
        self.metadata(ref)
        shutil.rmtree(self.path(ref))

    def listed(self, run: str) -> Iterator[tuple[CheckpointRef, dict[str, Any]]]:
        """Yield a run's checkpoints that have not expired."""
        for kind in KINDS:
            for path in sorted((self._run_dir(run) / kind).glob(f"*/{_METADATA}")):
                metadata = parse_json(path.read_bytes(), where=str(path.parent.name))
                if not path.parent.name.startswith(".") and not expired(metadata):
                    yield make_ref(run, kind, path.parent.name), metadata


def expiry(ttl_seconds: int | None) -> dict[str, Any]:
    """Return the metadata fields that record a lifetime counted from now."""
    if ttl_seconds is None:
        return {"ttl_seconds": None, "expires_at": None}
    until = datetime.now(UTC) + timedelta(seconds=ttl_seconds)
    return {"ttl_seconds": ttl_seconds, "expires_at": until.isoformat()}


def expired(metadata: dict[str, Any]) -> bool:
    """Whether a checkpoint's recorded expiry has passed."""
    until = metadata.get("expires_at")
    return until is not None and datetime.fromisoformat(until) <= datetime.now(UTC)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write strict JSON atomically."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with scratch.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(document, allow_nan=False, indent=1))
        stream.flush()
        os.fsync(stream.fileno())
    scratch.replace(path)


def _complete(folder: Path, metadata: dict[str, Any]) -> None:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    created = datetime.now(UTC).isoformat()
    write_json(folder / _METADATA, {**metadata, "created": created, "size_bytes": size})


def _sync_files(folder: Path) -> None:
    """Wait until a folder's files and their names are on disk."""
    for path in folder.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    sync_folder(folder)


def _swap_in(scratch: Path, target: Path) -> None:
    if target.exists():
        retired = target.parent / f".retired.{secrets.token_hex(4)}"
        target.rename(retired)
        scratch.rename(target)
        shutil.rmtree(retired)
    else:
        scratch.rename(target)
