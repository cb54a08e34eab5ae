"""Recorded revisions: what counts as pinned, and that a pin never replaces the spec's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.errors import SpecError
from harness.pins import git_blob_id, is_pinned, load_pins, resolve_pins
from harness.spec import load_spec

SAVED = Path(__file__).parents[2] / "specs" / "exp_6ba12d6b47.json"
RECORDED = {
    "baseline_revision": "stock 0.5.8",
    "reference_revision": "ce013625030ba8dba906f756967f9e9ca394464a",
    "implementation_revision": "UNRESOLVED",
}


@pytest.fixture
def spec_path(tmp_path: Path) -> Path:
    return Path(shutil.copy(SAVED, tmp_path / "trial.json"))


def record(spec_path: Path, pins: Any) -> None:
    spec_path.with_name("trial.pins.json").write_text(json.dumps(pins))


@pytest.mark.parametrize(
    ("content", "blob_id"),
    [
        # As `git hash-object` prints them.
        (b"", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"),
        (b"hello\n", "ce013625030ba8dba906f756967f9e9ca394464a"),
    ],
)
def test_a_file_has_the_id_git_gives_it(content: bytes, blob_id: str, tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_bytes(content)
    assert git_blob_id(path) == blob_id


def test_a_missing_reference_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="gone"):
        git_blob_id(tmp_path / "gone.py")


@pytest.mark.parametrize(
    ("revision", "pinned"),
    [("abc", True), ("UNRESOLVED", False), ("UNRESOLVED: later", False), (None, False)],
)
def test_a_revision_that_begins_with_unresolved_is_open(revision: str | None, pinned: bool) -> None:
    assert is_pinned(revision) is pinned


def test_without_pins_the_saved_spec_is_unresolved(spec_path: Path) -> None:
    loaded = load_spec(spec_path)
    assert loaded.pins is None
    (path,) = resolve_pins(loaded.spec, loaded.pins)
    assert (path.baseline_revision, path.reference_revision) == (None, None)
    assert path.status == "unresolved"
    assert any("advantage_loss is unresolved" in note for note in loaded.notes)


def test_recorded_revisions_settle_what_the_spec_left_open(spec_path: Path) -> None:
    record(spec_path, RECORDED)
    loaded = load_spec(spec_path)
    (path,) = resolve_pins(loaded.spec, loaded.pins)
    assert path.status == "pinned"
    assert path.baseline_revision == RECORDED["baseline_revision"]
    assert path.reference_revision == RECORDED["reference_revision"]
    assert path.implementation_revision is None
    assert not any("unresolved" in note for note in loaded.notes)


@pytest.mark.parametrize("open_field", ["baseline_revision", "reference_revision"])
def test_both_revisions_are_needed(open_field: str, spec_path: Path) -> None:
    record(spec_path, {**RECORDED, open_field: "UNRESOLVED: not yet"})
    loaded = load_spec(spec_path)
    (path,) = resolve_pins(loaded.spec, loaded.pins)
    assert path.status == "unresolved"


def test_pins_do_not_change_the_digest(spec_path: Path) -> None:
    before = load_spec(spec_path).digest
    record(spec_path, RECORDED)
    assert load_spec(spec_path).digest == before


def test_a_pin_that_contradicts_the_spec_is_refused(spec_path: Path) -> None:
    document = json.loads(spec_path.read_text())
    document["correctness_preflight"]["paths"][0]["baseline_revision"] = "stock 0.5.5"
    spec_path.write_text(json.dumps(document))
    record(spec_path, RECORDED)
    with pytest.raises(SpecError, match=r"'stock 0\.5\.5'.*'stock 0\.5\.8'"):
        load_spec(spec_path)


@pytest.mark.parametrize(
    ("pins", "named"),
    [
        ({"baseline_revision": "a", "reference_revision": "b"}, "implementation_revision"),
        ({**RECORDED, "passed": True}, "passed"),
        ({**RECORDED, "baseline_revision": None}, "baseline_revision"),
        ({**RECORDED, "baseline_revision": "  "}, "baseline_revision"),
        ([], "object"),
    ],
)
def test_a_pins_file_of_another_shape_is_refused(pins: Any, named: str, spec_path: Path) -> None:
    record(spec_path, pins)
    with pytest.raises(SpecError, match=named) as caught:
        load_pins(spec_path)
    assert "trial.pins.json" in str(caught.value)
