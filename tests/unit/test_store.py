"""Run folders, atomic documents and append-only rows, with the failures that matter."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DocumentError, StoreError
from harness.store import (
    RunFolder,
    TornLineError,
    append_jsonl,
    plain_name,
    read_jsonl,
    write_json_atomic,
    write_jsonl_new,
    write_new,
)

NOON = datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC)
DIGEST = "0123456789abcdef" * 4


def create(artifacts: Path, *, now: datetime = NOON) -> RunFolder:
    return RunFolder.create(artifacts, "local", DIGEST, now=now)


def test_a_run_folder_is_named_by_utc_time_and_digest(tmp_path: Path) -> None:
    east = NOON.astimezone(timezone(timedelta(hours=9)))
    run = create(tmp_path / "artifacts", now=east)
    assert run.path == tmp_path / "artifacts/runs/local/20261130T120005Z-01234567"
    assert run.path.is_dir()
    assert run.run_id == "20261130T120005Z-01234567"


def test_runs_of_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    runs = [create(tmp_path) for _ in range(3)]
    assert [run.run_id for run in runs] == [
        "20261130T120005Z-01234567",
        "20261130T120005Z-01234567-2",
        "20261130T120005Z-01234567-3",
    ]


def test_latest_follows_the_run_created_last(tmp_path: Path) -> None:
    assert RunFolder.latest(tmp_path, "local") is None
    for _ in range(2):
        run = create(tmp_path)
        latest = RunFolder.latest(tmp_path, "local")
        assert latest is not None
        assert latest.path == run.path.resolve()
    link = tmp_path / "runs/local/latest"
    assert str(link.readlink()) == "20261130T120005Z-01234567-2", (
        "a relative link survives moving the artifacts"
    )
    assert sorted(path.name for path in link.parent.iterdir()) == [
        "20261130T120005Z-01234567",
        "20261130T120005Z-01234567-2",
        "latest",
    ]


def test_an_artifacts_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("")
    with pytest.raises(StoreError, match=r"artifacts.*do: check"):
        create(tmp_path / "artifacts")


@pytest.mark.parametrize("name", ["steps.jsonl", "gs1_seed0-predictions.jsonl", "A.b-c_9", ".x"])
def test_plain_names_are_accepted(name: str, tmp_path: Path) -> None:
    assert plain_name(name) == name
    assert RunFolder(tmp_path).file(name) == tmp_path / name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "a b", "a\n", "é", "a\0", "x" * 201]
)
def test_a_name_that_is_not_plain_is_refused(name: str) -> None:
    with pytest.raises(StoreError, match="not plain"):
        plain_name(name)


def test_equal_documents_have_equal_bytes_and_new_ones_replace_old(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_json_atomic(path, {"b": 1, "a": [True, None, 0.5]})
    first = path.read_bytes()
    write_json_atomic(path, {"a": [True, None, 0.5], "b": 1})
    assert path.read_bytes() == first
    assert first.endswith(b"\n")
    write_json_atomic(path, {"a": 2})
    assert json.loads(path.read_bytes()) == {"a": 2}
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"], "no temporary is left"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}])
def test_a_refused_document_leaves_the_old_one(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_json_atomic(path, {"kept": 1})
    with pytest.raises(DocumentError, match=r"result\.json"):
        write_json_atomic(path, {"bad": value})
    assert json.loads(path.read_bytes()) == {"kept": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_a_write_that_fails_half_way_leaves_the_old_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    write_json_atomic(path, {"kept": 1})
    real_write = os.write

    def full_disk(descriptor: int, data: Any) -> int:
        real_write(descriptor, bytes(data)[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(StoreError, match=r"No space left on device.*result\.json"):
        write_json_atomic(path, {"kept": 2})
    assert json.loads(path.read_bytes()) == {"kept": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, bytes(data)[:7]))
    write_json_atomic(tmp_path / "a.json", {"text": "x" * 100})
    append_jsonl(tmp_path / "b.jsonl", {"text": "y" * 100})
    assert json.loads((tmp_path / "a.json").read_bytes()) == {"text": "x" * 100}
    assert read_jsonl(tmp_path / "b.jsonl") == ({"text": "y" * 100},)


def test_an_immutable_file_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    write_new(path, b"first")
    with pytest.raises(StoreError, match=r"taken.*script\.py.*new name"):
        write_new(path, b"second")
    assert path.read_bytes() == b"first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["script.py"]


def test_predictions_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "predictions.jsonl"
    with pytest.raises(DocumentError):
        write_jsonl_new(path, [{"value": 1}, {"value": float("nan")}])
    assert not path.exists()
    write_jsonl_new(path, [{"value": 1}, {"value": 0}])
    assert read_jsonl(path) == ({"value": 1}, {"value": 0})


def test_rows_come_back_in_order_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    rows = [{"step": step, "text": "line\nfeed é \u2028"} for step in range(4)]
    for row in rows:
        append_jsonl(path, row)
    assert read_jsonl(path) == tuple(rows)
    assert path.read_bytes().count(b"\n") == len(rows)


def test_a_row_that_is_not_strict_json_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    append_jsonl(path, {"step": 0})
    with pytest.raises(DocumentError):
        append_jsonl(path, {"step": float("nan")})
    assert read_jsonl(path) == ({"step": 0},)


def test_a_torn_last_line_is_named_and_its_predecessors_kept(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(b'{"step": 0}\n{"step": 1}\n{"step": ')
    with pytest.raises(TornLineError, match="2 complete rows") as caught:
        read_jsonl(path)
    assert caught.value.rows == ({"step": 0}, {"step": 1})


@pytest.mark.parametrize("tail", [b'{"step": ', b'{"step": 1}'])
def test_nothing_is_appended_to_a_torn_line(tail: bytes, tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    before = b'{"step": 0}\n' + tail
    path.write_bytes(before)
    with pytest.raises(TornLineError):
        append_jsonl(path, {"step": 2})
    assert path.read_bytes() == before


def test_a_complete_last_row_without_line_feed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2}')
    assert read_jsonl(path) == ({"a": 1}, {"a": 2})


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'{"a": 1}\n\n{"a": 2}\n', r"rows\.jsonl:2"),
        (b'{"a": 1, "a": 2}\n', r"'a' again.*rows\.jsonl:1"),
        (b'{"a": 1}\n{"a": NaN}\n', r"NaN.*rows\.jsonl:2"),
        (b'{"a": 1}\n[1]\n', r"list.*rows\.jsonl:2"),
        (b'{"a": \n{"a": 1}\n', r"rows\.jsonl:1"),
        (b'{"a": "\xff"}\n', r"UTF-8.*rows\.jsonl:1"),
    ],
)
def test_a_bad_line_is_refused_by_number(content: bytes, found: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(DocumentError, match=found):
        read_jsonl(path)


def test_an_empty_file_has_no_rows_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    assert read_jsonl(tmp_path / "empty.jsonl") == ()
    with pytest.raises(StoreError, match=r"missing\.jsonl"):
        read_jsonl(tmp_path / "missing.jsonl")


def test_two_processes_never_mix_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    code = (
        "import sys; from pathlib import Path; from harness.store import append_jsonl\n"
        "for i in range(50): append_jsonl(Path(sys.argv[1]), {'w': sys.argv[2], 'i': i,"
        " 'pad': 'x' * 5000})"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in ("a", "b")
    ]
    assert [worker.wait() for worker in workers] == [0, 0]
    rows = read_jsonl(path)
    for name in ("a", "b"):
        assert [row["i"] for row in rows if row["w"] == name] == list(range(50))
