"""The chained manifest names every file that was removed, swapped, moved, edited or added."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import harness.manifest
from harness.errors import StoreError
from harness.manifest import (
    MANIFEST_NAME,
    Finding,
    append_entry,
    check_manifest,
    enter_all,
    head,
    seal,
)

FILES = {
    "plan.json": b'{"version": 1}\n',
    "arms/gs1/steps.jsonl": b'{"step": 0}\n{"step": 1}\n',
    "predictions/base.jsonl": b'{"value": 1.0}\n',
    "predictions/gs1.jsonl": b'{"value": 0.25}\n',
    "empty.log": b"",
}
PREDICTIONS = [name for name in FILES if name.startswith("predictions/")]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A sealed run folder."""
    folder = tmp_path / "run"
    for name, data in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    enter_all(folder)
    seal(folder)
    return folder


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / MANIFEST_NAME).read_bytes().splitlines()]


def told(findings: list[Finding]) -> set[tuple[str, str]]:
    return {(finding.kind, finding.name) for finding in findings}


def write_chain(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write a whole new chain over ``rows``, as somebody would who knows the format."""
    previous, text = "", b""
    for row in rows:
        body = {k: v for k, v in row.items() if k not in ("previous", "line_sha256")}
        body["previous"] = previous
        canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        previous = hashlib.sha256(canonical).hexdigest()
        line = json.dumps(body | {"line_sha256": previous}, sort_keys=True, separators=(",", ":"))
        text += line.encode() + b"\n"
    (folder / MANIFEST_NAME).write_bytes(text)


def test_every_file_is_entered_once_with_its_digest_and_the_chain_holds(run: Path) -> None:
    *entries, last = lines(run)
    assert [row["name"] for row in entries] == sorted(FILES)
    for row in entries:
        data = FILES[row["name"]]
        assert row["sha256"] == hashlib.sha256(data).hexdigest()
        assert row["bytes"] == len(data)
    assert last["seal"] == len(FILES)
    written = (run / MANIFEST_NAME).read_bytes()
    write_chain(run, lines(run))
    assert (run / MANIFEST_NAME).read_bytes() == written, "the chain differs from its definition"
    assert check_manifest(run, published_head=last["line_sha256"]) == []
    assert head(run) == last["line_sha256"]


def test_a_copy_and_a_link_to_the_run_are_judged_alike(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "latest").symlink_to("run")
    assert check_manifest(copy) == check_manifest(tmp_path / "latest") == []


def test_one_flipped_byte_anywhere_in_any_file_is_named(run: Path) -> None:
    checked = 0
    for name in FILES:
        path = run / name
        data = path.read_bytes()
        for at in range(len(data)):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            assert told(check_manifest(run)) == {("edited", name)}, f"{name} byte {at}"
            checked += 1
        path.write_bytes(data)
    assert checked == sum(map(len, FILES.values()))


def test_one_flipped_bit_anywhere_in_the_manifest_is_named(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(name)
    enter_all(tmp_path)
    seal(tmp_path)
    path = tmp_path / MANIFEST_NAME
    data = path.read_bytes()
    for at, bit in itertools.product(range(len(data)), (0, 5)):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :])
        kinds = {kind for kind, name in told(check_manifest(tmp_path)) if name == MANIFEST_NAME}
        assert kinds & {"chain", "unsealed"}, f"byte {at} ({data[at : at + 1]!r}), bit {bit}"


@pytest.mark.parametrize("at", range(len(FILES) + 1))
def test_a_line_cut_out_of_the_manifest_is_noticed(run: Path, at: int) -> None:
    path = run / MANIFEST_NAME
    kept = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept[:at] + kept[at + 1 :]))
    expected = "unsealed" if at == len(FILES) else "chain"
    assert (expected, MANIFEST_NAME) in told(check_manifest(run))
    path.write_bytes(b"".join(kept[:at][::-1] + kept[at:]))
    assert (told(check_manifest(run)) == {("chain", MANIFEST_NAME)}) == (at > 1), "order counts"


@pytest.mark.parametrize(
    ("spelling", "other"), [(b'":', b'": '), (b"plan", b"\\u0070lan"), (b"\n", b"\r\n")]
)
def test_another_spelling_of_the_same_values_is_noticed(
    run: Path, spelling: bytes, other: bytes
) -> None:
    path, data = run / MANIFEST_NAME, (run / MANIFEST_NAME).read_bytes()
    assert spelling in data
    path.write_bytes(data.replace(spelling, other, 1))
    kinds = {kind for kind, _ in told(check_manifest(run))}
    assert kinds == {"chain"}, "files of the lines that do not count are not called added"


def remove(run: Path) -> None:
    (run / "plan.json").unlink()


def swap(run: Path) -> None:
    one, other = run / "predictions/base.jsonl", run / "predictions/gs1.jsonl"
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def move(run: Path) -> None:
    (run / "plan.json").rename(run / "arms/plan.json")


def edit(run: Path) -> None:
    (run / "empty.log").write_bytes(b"x")


def lengthen(run: Path) -> None:
    with (run / "arms/gs1/steps.jsonl").open("ab") as stream:
        stream.write(b'{"step": 2}\n')


def add(run: Path) -> None:
    (run / "arms/.hidden").write_bytes(b"new")


def link(run: Path) -> None:
    (run / "plan.json").rename(run.parent / "outside")
    (run / "plan.json").symlink_to(run.parent / "outside")


def link_folder(run: Path) -> None:
    (run / "predictions").rename(run.parent / "elsewhere")
    (run / "predictions").symlink_to(run.parent / "elsewhere")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (remove, {("removed", "plan.json")}),
        (swap, {("swapped", "predictions/base.jsonl"), ("swapped", "predictions/gs1.jsonl")}),
        (move, {("moved", "plan.json"), ("added", "arms/plan.json")}),
        (edit, {("edited", "empty.log")}),
        (lengthen, {("edited", "arms/gs1/steps.jsonl")}),
        (add, {("added", "arms/.hidden")}),
        (link, {("irregular", "plan.json"), ("removed", "plan.json")}),
        (link_folder, {("irregular", "predictions"), *(("removed", name) for name in PREDICTIONS)}),
    ],
)
def test_each_kind_of_change_is_named_as_what_it_is(
    run: Path, change: Callable[[Path], None], expected: set[tuple[str, str]]
) -> None:
    change(run)
    assert told(check_manifest(run)) == expected


def test_whoever_rewrites_the_whole_chain_misses_the_published_head(run: Path) -> None:
    published = head(run)
    (run / "plan.json").write_bytes(b"{}")
    rows = lines(run)
    for row in rows:
        if row.get("name") == "plan.json":
            row |= {"sha256": hashlib.sha256(b"{}").hexdigest(), "bytes": 2}
    write_chain(run, rows)
    assert check_manifest(run) == [], "without the published head the new chain is consistent"
    assert told(check_manifest(run, published_head=published)) == {("head", MANIFEST_NAME)}


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (lambda rows: [*rows[:-1], rows[-1] | {"seal": 4}], "seals 4 entries, there are 5"),
        (lambda rows: [*rows[:2], rows[0], *rows[2:]], "a second time"),
        (lambda rows: [rows[0] | {"note": "x"}, *rows[1:]], "line 1 is not an entry"),
        (lambda rows: [rows[0] | {"bytes": True}, *rows[1:]], "is not an entry"),
    ],
)
def test_a_consistent_chain_of_wrong_lines_is_refused(
    run: Path, rows: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], named: str
) -> None:
    write_chain(run, rows(lines(run)))
    found = [finding for finding in check_manifest(run) if finding.kind == "chain"]
    assert len(found) == 1
    assert named in found[0].text


def test_a_run_without_manifest_or_seal_is_not_proven(run: Path) -> None:
    (run / "late.json").write_bytes(b"1")
    append_entry(run, "late.json")
    assert told(check_manifest(run)) == {("unsealed", MANIFEST_NAME)}
    assert seal(run) == seal(run) == head(run)
    assert check_manifest(run) == []
    (run / MANIFEST_NAME).unlink()
    assert told(check_manifest(run)) == {("chain", MANIFEST_NAME)}
    assert head(run) == ""
    with pytest.raises(StoreError, match="empty manifest"):
        seal(run)
    (run / MANIFEST_NAME).write_bytes(b"")
    assert ("chain", MANIFEST_NAME) in told(check_manifest(run))


def test_a_file_is_entered_once_and_only_what_is_new_is_entered(run: Path) -> None:
    with pytest.raises(StoreError, match=r"entered in the manifest once.*plan\.json"):
        append_entry(run, "plan.json")
    assert enter_all(run) == []
    (run / "b.json").write_bytes(b"1")
    (run / "lock").write_bytes(b"pid")
    assert enter_all(run, ignored=["lock"]) == ["b.json"]
    seal(run)
    assert told(check_manifest(run)) == {("added", "lock")}
    assert check_manifest(run, ignored=["lock"]) == []


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "/dev/null", "arms", "absent", "arms/../plan.json"),
        *("./plan.json", MANIFEST_NAME, "linked.json", "linked/base.jsonl"),
    ],
)
def test_only_regular_files_inside_the_run_can_be_entered(run: Path, name: str) -> None:
    (run / "linked.json").symlink_to("plan.json")
    (run / "linked").symlink_to("predictions")
    before = (run / MANIFEST_NAME).read_bytes()
    with pytest.raises(StoreError, match="regular file inside the run"):
        append_entry(run, name)
    assert (run / MANIFEST_NAME).read_bytes() == before


@pytest.mark.parametrize("damage", [b"{}\n", b"torn", b"\xff\n", b"\n"])
def test_nothing_is_added_to_a_broken_manifest(run: Path, damage: bytes) -> None:
    with (run / MANIFEST_NAME).open("ab") as stream:
        stream.write(damage)
    (run / "new.json").write_bytes(b"1")
    for action in (lambda: append_entry(run, "new.json"), lambda: seal(run), lambda: head(run)):
        with pytest.raises(StoreError, match="manifest is broken"):
            action()
    assert ("chain", MANIFEST_NAME) in told(check_manifest(run))


@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), st.binary(max_size=8), min_size=1)
)
def test_any_contents_are_entered_and_found_intact(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    assert enter_all(folder) == sorted(contents)
    seal(folder)
    assert check_manifest(folder) == []
    victim = min(contents)
    (folder / victim).write_bytes(contents[victim] + b"!")
    assert {finding.name for finding in check_manifest(folder)} == {victim}


def test_an_entry_follows_what_another_writer_entered_meanwhile(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.json", "b.json", "c.json"):
        (run / name).write_bytes(name.encode())
    others = ["c.json"]
    first = harness.manifest._current

    def after_another_wrote(folder: Path, chain: Any) -> Any:
        if others:
            append_entry(run, others.pop())
        return first(folder, chain)

    monkeypatch.setattr(harness.manifest, "_current", after_another_wrote)
    with pytest.raises(StoreError, match=r"once, when it is final.*c\.json"):
        enter_all(run)
    seal(run)
    assert check_manifest(run) == [], "the other writer's entry broke the chain"


def test_the_manifest_is_read_once_for_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        (tmp_path / f"{number:02d}.json").write_bytes(b"1")
    (tmp_path / "before.json").write_bytes(b"1")
    append_entry(tmp_path, "before.json")
    read, reads = harness.manifest.read_chain, []
    monkeypatch.setattr(
        harness.manifest, "read_chain", lambda *read_of: reads.append(read_of) or read(*read_of)
    )
    assert len(enter_all(tmp_path)) == 30
    assert len(reads) == 1, f"{len(reads)} reads of the manifest for 30 files, expected 1"
