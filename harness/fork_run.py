"""What a run on a service of its own (a fork) has started, by exact name.

A fork is deployed by its owner, not by this harness. Before it is, ``python -m harness fork SPEC``
gives out the id that the run will have, so that every app's name can hold it; after, the same
command records what was started. The next new run on ``--service fork`` takes that id and keeps the
record as ``fork.json``, with the optimizer that the service's first client was seen to have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.digest import canonical_json, parse_json, sha256_bytes
from harness.errors import UsageError
from harness.reading import read_regular
from harness.record_version import VersionOne
from harness.secrets_out import without_secrets
from harness.spec import LoadedSpec
from harness.store import plain_name, run_stem, write_json_atomic, write_new

FORK_NAME = "fork.json"
PATCH_NAME = "fork.patch"
FORK_SERVICE = "fork"
_APP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class ForkRecord(BaseModel):
    """``fork.json``.

    ``apps`` are exact names, each of which holds ``run_id``. ``patch_sha256`` is of the difference
    from ``code_revision`` that was deployed, None for none. ``observed_optimizer`` is what the
    service said of a client's optimizer, None where it says nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: VersionOne = 1
    run_id: Annotated[str, Field(min_length=1)]
    apps: Annotated[tuple[str, ...], Field(min_length=1)]
    code_revision: Annotated[str, Field(min_length=1)]
    patch_sha256: str | None = None
    observed_optimizer: dict[str, Any] | None = None


def forks_folder(artifacts: Path, spec_name: str) -> Path:
    """Return where what was started for a spec's future runs is recorded."""
    return artifacts / "forks" / plain_name(spec_name)


def new_run_id(loaded: LoadedSpec, now: datetime | None = None) -> str:
    """Return an id as a run of this spec that is planned now would have."""
    return run_stem(loaded.digest, now or datetime.now(UTC))


def record_fork(
    artifacts: Path,
    loaded: LoadedSpec,
    run_id: str,
    apps: tuple[str, ...],
    code_revision: str,
    patch: bytes | None,
) -> Path:
    """Record once what was started for the run of this id; returns the record's path.

    Raises:
        UsageError: for an app whose name is not plain, doubled or without the run's id, or for an
            id of another spec.
        StoreError: when this id is recorded already.
    """
    if not run_id.endswith(f"-{loaded.digest[:8]}"):
        raise UsageError(
            "the run id is of another spec",
            expected=f"an id that ends in -{loaded.digest[:8]}, as python -m harness fork gives it",
            found=run_id,
        )
    strange = [app for app in apps if run_id not in app or not _APP_NAME.fullmatch(app)]
    if strange or len(set(apps)) != len(apps):
        raise UsageError(
            "an app cannot be told from those of other runs",
            expected=f"plain names, each once, each holding {run_id}",
            found=", ".join(strange or apps),
            where="--app",
            fix="deploy it again under such a name: only exact names are ever cleaned up",
        )
    folder = forks_folder(artifacts, loaded.name)
    folder.mkdir(parents=True, exist_ok=True)
    kept = None if patch is None else without_secrets(patch.decode("utf-8", "replace")).encode()
    record = ForkRecord(
        run_id=plain_name(run_id),
        apps=apps,
        code_revision=code_revision,
        patch_sha256=None if kept is None else sha256_bytes(kept),
    )
    path = folder / f"{run_id}.json"
    write_new(path, canonical_json(record.model_dump()))
    if kept is not None:
        write_new(path.with_suffix(".patch"), kept)
    return path


def waiting_fork(artifacts: Path, spec_name: str) -> ForkRecord:
    """Return the newest record whose run is not planned yet.

    Raises:
        UsageError: when there is none: nobody could clean up what such a run started.
    """
    runs = artifacts / "runs" / plain_name(spec_name)
    for path in sorted(forks_folder(artifacts, spec_name).glob("*.json"), reverse=True):
        if not (runs / path.stem).exists():
            return read_fork(path)
    raise UsageError(
        "nothing says what was started for this run",
        expected="a record of the fork's apps, each named after the run",
        found="none that is not used yet",
        where="--service fork",
        fix="python -m harness fork SPEC gives the run's id; deploy, then record the apps with it",
    )


def read_fork(path: Path) -> ForkRecord:
    """Read a record.

    Raises:
        UsageError: when it is not one.
    """
    document = parse_json(read_regular(path), where=path.name)
    try:
        return ForkRecord.model_validate_json(canonical_json(document))
    except ValidationError as error:
        raise UsageError(
            "this is no record of a fork", found=str(error.errors()[0]["msg"]), where=path.name
        ) from error


def keep_fork(
    artifacts: Path, spec_name: str, run_folder: Path, reported: Mapping[str, Any]
) -> None:
    """Write a run's ``fork.json`` once, with the optimizer that the service reported.

    Args:
        artifacts: the artifacts directory.
        spec_name: the spec's name.
        run_folder: the run, whose id was recorded before.
        reported: what the service said of the client that made the initial state.
    """
    if (run_folder / FORK_NAME).exists():
        return
    source = forks_folder(artifacts, spec_name) / f"{run_folder.name}.json"
    record = read_fork(source)
    if source.with_suffix(".patch").is_file():
        write_new(run_folder / PATCH_NAME, read_regular(source.with_suffix(".patch")))
    optimizer = reported.get("optimizer_config")
    observed = record.model_copy(update={"observed_optimizer": optimizer})
    write_json_atomic(run_folder / FORK_NAME, observed.model_dump())
