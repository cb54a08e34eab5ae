"""Checkpoints on disk: names, immutability, expiry, and folders nobody can leave."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.local_service import checkpoints, downloads
from harness.local_service.checkpoints import CheckpointStore, expiry, make_ref, parse_uri
from harness.local_service.refusals import RefusalError

RUN = "session-0a:train:0"
METADATA = {"user_metadata": None, **expiry(None)}


def put(store: CheckpointStore, name: str, text: str, *, overwrite: bool = False) -> None:
    ref = make_ref(RUN, "weights", name)
    store.save(ref, METADATA, lambda folder: _write(folder / "data", text), overwrite=overwrite)


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def read(store: CheckpointStore, name: str) -> str:
    return (store.path(make_ref(RUN, "weights", name)) / "data").read_text()


def test_a_uri_survives_parsing() -> None:
    uri = f"tinker://{RUN}/sampler_weights/step-000020_a.b"
    assert parse_uri(uri).uri == uri


@pytest.mark.parametrize(
    "uri",
    [
        f"tinker://{RUN}/weights/..",
        f"tinker://{RUN}/weights/.",
        f"tinker://{RUN}/weights/",
        f"tinker://{RUN}/weights/a/b",
        f"tinker://{RUN}/weights/a%2Fb",
        f"tinker://{RUN}/weights/" + "a" * 129,
        f"tinker://{RUN}/weights/\u00e4",
        f"tinker://{RUN}/weights/a\n",
        f"tinker://{RUN}/secrets/a",
        "tinker://../weights/a",
        "tinker://a/weights/a",
        "tinker://a.b:train:0/weights/a",
        f"https://{RUN}/weights/a",
        "",
    ],
)
def test_names_that_could_leave_the_folder_are_refused(uri: str) -> None:
    with pytest.raises(RefusalError) as refused:
        parse_uri(uri)
    assert refused.value.status == 400


def test_a_name_is_immutable_unless_overwritten(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    put(store, "a", "first")
    with pytest.raises(RefusalError) as refused:
        put(store, "a", "second")
    assert refused.value.status == 409
    assert read(store, "a") == "first"
    put(store, "a", "third", overwrite=True)
    assert read(store, "a") == "third"
    kept = [path.name for path in (store.path(make_ref(RUN, "weights", "a")).parent).iterdir()]
    assert kept == ["a"], f"scratch folders left behind: {kept}"


def test_a_save_that_fails_leaves_no_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    ref = make_ref(RUN, "weights", "a")

    def crash(_folder: Path) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        store.save(ref, METADATA, crash, overwrite=False)
    with pytest.raises(RefusalError):
        store.metadata(ref)
    assert list(store.listed(RUN)) == []
    assert list(store.path(ref).parent.iterdir()) == [], "a failed save left files behind"


def test_a_checkpoint_is_on_the_disk_before_its_address_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is synced before the name appears, and every folder above it after."""
    synced: list[int] = []
    sync, swap_in = os.fsync, checkpoints._swap_in

    def noting(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    def checked(scratch: Path, target: Path) -> None:
        late = [path.name for path in scratch.iterdir() if path.stat().st_ino not in synced]
        assert not late, f"named before they are on the disk: {late}"
        swap_in(scratch, target)
        synced.clear()

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(checkpoints, "_swap_in", checked)
    store = CheckpointStore(tmp_path)
    put(store, "a", "x")
    kind = store.path(make_ref(RUN, "weights", "a")).parent
    late = [folder.name for folder in (kind, kind.parent) if folder.stat().st_ino not in synced]
    assert not late, f"answered before these folders are on the disk: {late}"


def test_expired_checkpoints_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    put(store, "a", "x")
    ref = make_ref(RUN, "weights", "a")
    store.set_ttl(ref, 3600)
    assert store.metadata(ref)["ttl_seconds"] == 3600
    late = datetime.now(UTC) + timedelta(hours=2)
    monkeypatch.setattr(
        checkpoints, "expired", lambda m: datetime.fromisoformat(m["expires_at"]) <= late
    )
    with pytest.raises(RefusalError) as refused:
        store.metadata(ref)
    assert refused.value.status == 404
    assert list(store.listed(RUN)) == []


@pytest.mark.parametrize("ttl", [0, 3599, -1, 10 * 365 * 24 * 3600 + 1])
def test_lifetimes_outside_the_documented_range_are_refused(ttl: int) -> None:
    with pytest.raises(RefusalError):
        checkpoints.check_ttl(ttl)


def test_expiry_is_counted_from_now() -> None:
    now = datetime.now(UTC)
    past = {"expires_at": (now - timedelta(seconds=1)).isoformat()}
    future = {"expires_at": (now + timedelta(hours=1)).isoformat()}
    assert checkpoints.expired(past)
    assert not checkpoints.expired(future)
    assert not checkpoints.expired({"expires_at": None})


def test_a_download_link_opens_its_files_only(tmp_path: Path) -> None:
    granted = downloads.Downloads()
    token, expires = granted.grant(tmp_path, ["adapter_config.json"])
    assert granted.resolve(token, "adapter_config.json") == tmp_path / "adapter_config.json"
    assert timedelta(0) < expires - datetime.now(UTC) <= downloads.VALID_FOR
    for wrong in (
        (token, "metadata.json"),
        (token, "../run.json"),
        (("A" if token[0] != "A" else "B") + token[1:], "adapter_config.json"),
    ):
        with pytest.raises(RefusalError) as refused:
            granted.resolve(*wrong)
        assert refused.value.status == 404
