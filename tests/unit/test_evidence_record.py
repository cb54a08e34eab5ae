"""The evidence record: limits, immutable names, no credentials, and what is still missing."""

from __future__ import annotations

import hashlib
import itertools
import json
import traceback
from typing import Any

import pytest

from harness.errors import DocumentError
from harness.evidence import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_TOTAL_BYTES,
    EvidenceRecord,
    completeness,
    missing_kinds,
    parse_evidence,
    rewritten_names,
)

ARMS = ("grpo", "gs1")
REQUIRED = ("script", "effective_config", "code_revision", "predictions")
SHA256 = "a" * 64


def file_row(name: str = "a.txt", kind: str = "script", **changes: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "content": "text"} | changes


def record_of(*files: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"version": 1, "files": list(files), "checkpoints": [], "per_arm_metrics": {}} | changes


def whole() -> EvidenceRecord:
    record = EvidenceRecord.empty()
    for kind in REQUIRED:
        record = record.with_file(f"{kind}.txt", kind, kind)  # pyright: ignore[reportArgumentType] - the names are kinds
    for arm in ARMS:
        record = record.with_metrics(arm, {"accuracy": 0.5})
    return record


def test_the_limits_are_the_contract_s() -> None:
    assert (MAX_FILE_BYTES, MAX_FILES, MAX_TOTAL_BYTES) == (10485760, 64, 41943040)


def test_a_record_survives_a_round_trip_and_digests_what_it_holds() -> None:
    record = whole().with_link("p.jsonl", "predictions", "https://example.org/p", SHA256)
    record = record.with_checkpoint("gs1", 40, "tinker://run/weights/000040")
    raw = json.loads(json.dumps(record.to_json(), allow_nan=False))
    assert parse_evidence(raw) == record
    assert raw["files"][0]["sha256"] == hashlib.sha256(b"script").hexdigest()
    assert raw["checkpoints"] == [{"arm": "gs1", "step": 40, "uri": "tinker://run/weights/000040"}]
    assert raw["per_arm_metrics"] == {arm: {"accuracy": 0.5} for arm in ARMS}
    assert "content" not in raw["files"][-1], "an absent field is left out, not null"


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ({}, "version"),
        (record_of(version=2), "version"),
        (record_of(extra=1), "extra"),
        (record_of(file_row(kind="log")), "files.0.kind"),
        (record_of(file_row(extra=1)), "files.0.extra"),
        (record_of(file_row(content=None)), "exactly one of content and source_url"),
        (record_of(file_row(source_url="https://e.org/a")), "exactly one of content"),
        (record_of(file_row(content=None, source_url="http://e.org/a")), "https://"),
        (record_of(file_row(content=None, source_url="file:///etc/hosts")), "https://"),
        (record_of(file_row(content=" \n")), "blank"),
        (record_of(file_row(sha256=SHA256)), "the content's is"),
        (record_of(file_row(sha256="A" * 64)), "files.0.sha256"),
        (record_of(file_row(), file_row(kind="metrics")), "found twice: ['a.txt']"),
        (record_of(checkpoints=[{"arm": "a", "step": -1, "uri": "u"}]), "checkpoints.0.step"),
        (record_of(checkpoints=[{"arm": "a", "step": 1}]), "checkpoints.0.uri"),
        (record_of(per_arm_metrics={"a": {"m": True}}), "per_arm_metrics.a.m"),
        (record_of(per_arm_metrics={"a": {"m": "1"}}), "per_arm_metrics.a.m"),
        (record_of(per_arm_metrics={"a": {"m": float("nan")}}), "no canonical JSON form"),
    ],
)
def test_each_broken_rule_is_refused_and_named(raw: dict[str, Any], named: str) -> None:
    with pytest.raises(DocumentError) as refusal:
        parse_evidence(raw)
    assert named in str(refusal.value)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "a b", "a\\b", "é", "a\n", "x" * 201]
)
def test_a_name_that_is_not_plain_is_refused(name: str) -> None:
    with pytest.raises(DocumentError, match="not plain"):
        EvidenceRecord.empty().with_file(name, "script", "text")


def test_a_name_is_written_once_even_with_the_same_content() -> None:
    record = whole()
    for kind, content in itertools.product(("script", "metrics"), ("script", "other")):
        with pytest.raises(DocumentError, match="written once"):
            record.with_file("script.txt", kind, content)  # pyright: ignore[reportArgumentType] - both are kinds
    assert record.with_file("script-2.txt", "script", "other").files[-1].content == "other"


def test_lost_and_changed_files_of_an_earlier_record_are_named() -> None:
    before = whole()
    assert rewritten_names(before, before.with_file("new", "timing", "1 s")) == []
    raw = before.to_json()
    raw["files"][0] |= {"content": "other", "sha256": hashlib.sha256(b"other").hexdigest()}
    del raw["files"][2]
    changed = rewritten_names(before, parse_evidence(raw))
    assert changed == ["script.txt", "code_revision.txt"]


def test_a_file_may_be_as_large_as_the_limit_and_not_one_byte_larger() -> None:
    # Two bytes a character: the limit counts bytes.
    limit = "é" * (MAX_FILE_BYTES // 2)
    assert EvidenceRecord.empty().with_file("a", "timing", limit).files[0].size_bytes == 10485760
    with pytest.raises(DocumentError, match="at most 10485760 bytes, found 10485761"):
        EvidenceRecord.empty().with_file("a", "timing", limit + "x")


def test_a_run_may_hold_as_much_as_the_limit_and_not_one_byte_more() -> None:
    record = EvidenceRecord.empty()
    for number in range(4):
        record = record.with_file(f"f{number}", "timing", "x" * MAX_FILE_BYTES)
    with pytest.raises(DocumentError, match="at most 41943040 bytes in all, found 41943041"):
        record.with_file("f4", "timing", "x")


def test_a_run_may_hold_64_files_and_not_65() -> None:
    rows = [file_row(f"f{number}") for number in range(64)]
    record = parse_evidence(record_of(*rows))
    with pytest.raises(DocumentError, match="at most 64, found 65"):
        record.with_link("f64", "timing", "https://example.org/a", None)


SECRET = "hf" + "_" + "A1b2C3d4E5f6G7h8I9j0"


@pytest.mark.parametrize(
    "row",
    [
        file_row(content=f"token = {SECRET}"),
        file_row(content=None, source_url=f"https://e.org/{SECRET}"),
        file_row(content=None, source_url="https://e.org/a?X-Amz-Signature=00ff"),
        file_row(content=None, source_url="https://me:pass-word@e.org/a"),
    ],
)
def test_credentials_are_refused_without_being_repeated(row: dict[str, Any]) -> None:
    with pytest.raises(DocumentError, match="holds a credential") as refusal:
        parse_evidence(record_of(row))
    told = "".join(traceback.format_exception(refusal.value))
    assert all(secret not in told for secret in (SECRET, "00ff", "pass-word"))
    with pytest.raises(DocumentError, match="holds a credential"):
        EvidenceRecord.empty().with_checkpoint("a", 1, f"tinker://x?token={SECRET}")


def test_a_metric_once_posted_keeps_its_value() -> None:
    record = whole().with_metrics("gs1", {"accuracy": 0.5, "items": 1319})
    assert record.per_arm_metrics["gs1"] == {"accuracy": 0.5, "items": 1319}
    assert record.per_arm_metrics["grpo"] == {"accuracy": 0.5}
    with pytest.raises(DocumentError, match=r"would change.*0\.5.*0\.6"):
        record.with_metrics("gs1", {"accuracy": 0.6})


def test_whole_evidence_is_complete_and_each_missing_part_is_named() -> None:
    assert completeness(whole(), arms=ARMS, patched=False).status == "complete"
    for kind in REQUIRED:
        raw = whole().to_json()
        raw["files"] = [row for row in raw["files"] if row["kind"] != kind]
        found = completeness(parse_evidence(raw), arms=ARMS, patched=False)
        assert (found.status, found.missing) == ("partial", (kind,))
    raw = whole().to_json()
    for empty in ({}, {"grpo": {}}, {"grpo": {"accuracy": 0.5}}):
        raw["per_arm_metrics"] = empty
        found = completeness(parse_evidence(raw), arms=ARMS, patched=False)
        lacking = [arm for arm in ARMS if not empty.get(arm)]
        assert found.missing == tuple(f"per_arm_metrics: {arm}" for arm in lacking)
        assert found.status == "partial"


@pytest.mark.parametrize(("patched", "owed"), [(True, True), (None, True), (False, False)])
def test_a_patch_is_owed_unless_there_is_known_to_be_none(patched: bool | None, owed: bool) -> None:
    record = whole()
    assert missing_kinds(record, arms=ARMS, patched=patched) == (("code_patch",) if owed else ())
    patch = record.with_file("patch", "code_patch", "--- a\n+++ b\n")
    assert missing_kinds(patch, arms=ARMS, patched=patched) == ()


def test_no_evidence_is_unknown_and_a_link_without_a_digest_is_never_verified() -> None:
    for nothing in (None, EvidenceRecord.empty()):
        found = completeness(nothing, arms=(), patched=False)
        assert (found.status, found.missing) == ("unknown", REQUIRED)
    link = "https://example.org/p"
    unproven = whole().with_link("p", "predictions", link, None)
    found = completeness(unproven, arms=ARMS, patched=False)
    assert (found.status, found.missing, found.unchecked) == ("partial", (), ("p",))
    proven = whole().with_link("p", "predictions", link, SHA256)
    assert completeness(proven, arms=ARMS, patched=False).status == "complete"
