"""Evidence files: append-only, chained, bound to content; what stands and what does not."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.gates.binding import Binding, differences
from harness.gates.catalog import gate_entry
from harness.gates.evidence import EvidenceWriter, read_history, read_session
from harness.gates.standing import Standing, standing_of
from harness.gates.verdict import Outcome

OFFLINE, LIVE = "advantage_properties", "initial_identity"
TREE = Binding({"harness/a.py": "1" * 64}, {"numpy": "2"}, {"service": "embedded"})
MEASURE = {"name": "x", "value": 1.0, "rule": {"at_most": 2.0}, "where": ""}


def write(
    folder: Path,
    outcome: str = "pass",
    gate_id: str = OFFLINE,
    binding: Binding = TREE,
    closing: Binding | None = TREE,
    measures: tuple[dict, ...] = (MEASURE,),
) -> Path:
    writer = EvidenceWriter(folder, "local", binding, {"head": None, "dirty": None})
    writer.gate_started(gate_id)
    record = {"outcome": outcome, "reason": outcome, "measures": list(measures)}
    writer.gate_finished(gate_id, record)
    if closing is not None:
        writer.closing(closing)
    writer.close()
    return writer.path


def stand(
    folder: Path,
    gate_id: str = OFFLINE,
    binding: Binding = TREE,
    later: timedelta = timedelta(0),
) -> Standing:
    now = datetime.now(UTC) + later
    return standing_of(gate_entry(gate_id), read_history(folder), binding, now)


def test_a_sealed_pass_stands(tmp_path: Path) -> None:
    write(tmp_path)
    assert stand(tmp_path).outcome is Outcome.PASS


def test_nothing_recorded_is_unknown(tmp_path: Path) -> None:
    assert (stand(tmp_path).outcome, stand(tmp_path).reason) == (Outcome.UNKNOWN, "never run")


def test_a_pass_without_a_closing_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, closing=None)
    assert stand(tmp_path).outcome is Outcome.UNKNOWN


def test_content_that_moved_during_the_session_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, closing=Binding({"harness/a.py": "9" * 64}, TREE.versions, TREE.service))
    assert stand(tmp_path).outcome is Outcome.UNKNOWN


def test_stale_evidence_names_what_changed(tmp_path: Path) -> None:
    write(tmp_path)
    files = {"harness/a.py": "2" * 64, "harness/new.py": "3" * 64}
    found = stand(tmp_path, binding=Binding(files, {"numpy": "3"}, TREE.service))
    assert found.outcome is Outcome.UNKNOWN
    assert found.changed == ("harness/a.py", "harness/new.py", "versions:numpy")


def test_another_service_makes_live_evidence_stale_and_leaves_offline_alone(tmp_path: Path) -> None:
    write(tmp_path, gate_id=LIVE)
    write(tmp_path, gate_id=OFFLINE)
    other = Binding(TREE.files, TREE.versions, {"service": "url"})
    assert stand(tmp_path, LIVE, other).changed == ("service:service",)
    assert stand(tmp_path, OFFLINE, other).outcome is Outcome.PASS


def test_live_evidence_expires_and_offline_evidence_does_not(tmp_path: Path) -> None:
    write(tmp_path, gate_id=LIVE)
    write(tmp_path, gate_id=OFFLINE)
    day = timedelta(hours=24, minutes=1)
    assert stand(tmp_path, LIVE, later=timedelta(hours=23)).outcome is Outcome.PASS
    assert stand(tmp_path, LIVE, later=day).outcome is Outcome.UNKNOWN
    assert stand(tmp_path, OFFLINE, later=day).outcome is Outcome.PASS


def test_live_evidence_from_the_future_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, gate_id=LIVE)
    assert stand(tmp_path, LIVE, later=-timedelta(hours=2)).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("order", [("pass", "fail"), ("fail", "pass")])
def test_a_pass_and_a_fail_under_one_content_are_flaky(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    for outcome in order:
        write(tmp_path, outcome)
    found = stand(tmp_path)
    assert found.outcome is Outcome.UNKNOWN
    assert "flaky" in found.reason


def test_an_unknown_before_a_pass_does_not_contradict_it(tmp_path: Path) -> None:
    write(tmp_path, "unknown")
    write(tmp_path, "pass")
    assert stand(tmp_path).outcome is Outcome.PASS


def test_a_recorded_pass_is_judged_again_from_its_measurements(tmp_path: Path) -> None:
    write(tmp_path, "pass", measures=({**MEASURE, "value": 3.0},))
    assert stand(tmp_path).outcome is Outcome.FAIL


def test_a_recorded_pass_without_measurements_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, "pass", measures=())
    assert stand(tmp_path).outcome is Outcome.UNKNOWN


def test_a_hand_edited_line_makes_the_file_count_for_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "fail")
    path.write_text(path.read_text().replace('"fail"', '"pass"'))
    assert "edited" in read_session(path).broken
    found = stand(tmp_path)
    assert found.outcome is Outcome.UNKNOWN
    assert "edited" in found.reason


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_removed_line_is_noticed(tmp_path: Path, victim: int) -> None:
    path = write(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:victim] + lines[victim + 1 :]))
    assert "removed" in read_session(path).broken, f"line {victim} was removed unnoticed"
    assert stand(tmp_path).outcome is Outcome.UNKNOWN


def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path) -> None:
    path = write(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    found = read_session(path)
    assert found.torn
    assert not found.broken
    assert stand(tmp_path).outcome is Outcome.UNKNOWN, "the closing was torn away"


def test_every_line_is_strict_json_with_a_chain(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in write(tmp_path).read_text().splitlines()]
    assert [line["type"] for line in lines] == ["session", "gate_start", "gate", "closing"]
    assert [line["previous"] for line in lines[1:]] == [line["line_sha256"] for line in lines[:-1]]


def test_differences_are_empty_for_equal_content() -> None:
    assert differences(TREE.to_json(), TREE.to_json()) == []
