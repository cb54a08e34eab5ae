"""The row about SkyRL says what was recorded, and that nothing was where nothing was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import skyrl

RECORD = {
    "unit": "seconds an RL iteration",
    "method": "by hand",
    "date": "2026-11-30",
    "versions": {"skyrl": "0.4.0"},
}


def row_of(record: dict[str, object], folder: Path, patch: pytest.MonkeyPatch) -> skyrl.Row:
    path = folder / "skyrl.json"
    path.write_text(json.dumps(record))
    patch.setattr(skyrl, "RECORD", path)
    return skyrl.recorded_row()


def test_a_measured_iteration_is_ours_over_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = row_of({**RECORD, "value": 16.0, "embedded": {"value": 0.5}}, tmp_path, monkeypatch)
    assert row.value == 0.5 / 16.0, f"ratio {row.value}, expected {0.5 / 16.0}"
    assert row.unit == "x"
    assert row.most == 1.0


def test_what_was_not_measured_is_no_ratio_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = row_of({**RECORD, "value": None, "reason": "not installed"}, tmp_path, monkeypatch)
    assert (row.value, row.why) == (None, "not installed")


def test_the_committed_record_carries_every_iteration_and_version() -> None:
    record = json.loads(skyrl.RECORD.read_text())
    for name in ("embedded", "skyrl"):
        iterations = record[name]["iterations"]
        assert len(iterations) == skyrl.STEPS, f"{name}: {len(iterations)} of {skyrl.STEPS}"
        later = sorted(iterations[skyrl.LEFT_OUT :])
        median = (later[2] + later[3]) / 2
        assert abs(record[name]["value"] - median) < 1e-3, f"{name}: not the median {median}"
    assert record["value"] == record["skyrl"]["value"]
    assert {"skyrl's skyrl", "tinker"} <= record["versions"].keys()
