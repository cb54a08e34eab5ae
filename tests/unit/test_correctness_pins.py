"""Recorded revisions against the tree: what is out of date, and how it is renewed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness import pins
from harness.errors import SpecError
from harness.pins import (
    Pins,
    baseline_revision,
    current_pins,
    implementation_revision,
    pin_obstacles,
    record_pins,
)
from harness.sdk_generation import COOKBOOK_WHEELS, DEFAULT_COOKBOOK
from harness.spec import load_spec

ROOT = Path(__file__).parents[2]
SPECS = sorted(
    path for path in (ROOT / "specs").glob("*.json") if not path.name.endswith(".pins.json")
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the pins are taken from."""
    for name in (pins.REFERENCE_FILE, *pins.IMPLEMENTATION_FILES):
        target = tmp_path / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, target)
    return tmp_path


def install(monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    monkeypatch.setattr(pins.metadata, "version", lambda _name: release)


@pytest.mark.parametrize("spec_path", SPECS, ids=lambda path: path.stem)
def test_the_recorded_revisions_are_those_of_the_tree_and_the_default_release(
    spec_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other SDK generation brings another cookbook; the repository's pins name the default's.
    install(monkeypatch, DEFAULT_COOKBOOK)
    loaded = load_spec(spec_path)
    stale = pin_obstacles(loaded.spec, loaded.pins, ROOT)
    renew = f"python -m harness pin specs/{spec_path.name}, with the default SDK"
    assert loaded.pins == current_pins(ROOT), f"renew with: {renew}"
    assert stale == [], f"renew with: {renew}"


def test_the_installed_cookbook_is_of_a_known_generation() -> None:
    assert pins.metadata.version(pins.BASELINE_PACKAGE) in COOKBOOK_WHEELS


@pytest.mark.parametrize("recorded_by", COOKBOOK_WHEELS)
@pytest.mark.parametrize("installed", COOKBOOK_WHEELS)
def test_pins_count_under_their_own_generation_and_name_both_under_another(
    recorded_by: str, installed: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec_path = Path(shutil.copy(SPECS[0], tree / "trial.json"))
    install(monkeypatch, recorded_by)
    record_pins(spec_path, tree)
    install(monkeypatch, installed)
    loaded = load_spec(spec_path)
    lines = pin_obstacles(loaded.spec, loaded.pins, tree)
    if installed == recorded_by:
        assert lines == []
        return
    (line,) = lines
    pinned = baseline_revision(recorded_by)
    assert f"pinned to {pinned!r}, installed is tinker-cookbook {installed};" in line


def obstacles(tree: Path, recorded: Pins | None) -> list[str]:
    return pin_obstacles(load_spec(SPECS[0]).spec, recorded, tree)


@pytest.mark.parametrize("changed", [pins.REFERENCE_FILE, *pins.IMPLEMENTATION_FILES])
def test_one_changed_byte_is_an_obstacle(changed: str, tree: Path) -> None:
    recorded = current_pins(tree)
    assert obstacles(tree, recorded) == []
    with (tree / changed).open("ab") as stream:
        stream.write(b"\n")
    (line,) = obstacles(tree, recorded)
    field = "reference" if changed == pins.REFERENCE_FILE else "implementation"
    assert f"{field}_revision is pinned to" in line
    assert "python -m harness pin" in line


def test_a_release_whose_wheel_is_not_known_cannot_be_pinned(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "0.6.1")
    (line,) = obstacles(tree, current_pins(tree))
    assert f"pinned to 'tinker-cookbook {DEFAULT_COOKBOOK} wheel" in line
    assert "installed is tinker-cookbook 0.6.1" in line


def test_open_revisions_are_obstacles(tree: Path) -> None:
    lines = obstacles(tree, None)
    assert [word for line in lines for word in line.split() if word.endswith("_revision")] == [
        "reference_revision",
        "implementation_revision",
        "baseline_revision",
    ]


def test_an_experiment_without_parity_has_no_obstacle(tree: Path) -> None:
    spec = load_spec(SPECS[0]).spec
    free = spec.correctness_preflight.model_copy(update={"required": False})
    spec = spec.model_copy(update={"correctness_preflight": free})
    assert pin_obstacles(spec, None, tree) == []


def test_recording_writes_what_loading_reads(tree: Path) -> None:
    spec_path = Path(shutil.copy(SPECS[0], tree / "trial.json"))
    written = record_pins(spec_path, tree)
    assert written == tree / "trial.pins.json"
    loaded = load_spec(spec_path)
    assert loaded.pins == current_pins(tree)
    assert loaded.notes == tuple(note for note in loaded.notes if "unresolved" not in note)


def test_a_revision_that_the_spec_fixes_is_not_overwritten(tree: Path) -> None:
    document = json.loads(SPECS[0].read_text())
    document["correctness_preflight"]["paths"][0]["reference_revision"] = "another blob"
    spec_path = tree / "trial.json"
    spec_path.write_text(json.dumps(document))
    with pytest.raises(SpecError, match="another blob"):
        record_pins(spec_path, tree)
    assert not (tree / "trial.pins.json").exists()


def test_the_implementation_has_one_digest_over_its_files(tree: Path) -> None:
    first = implementation_revision(tree)
    (tree / "harness/similarity.py").write_text("")
    assert implementation_revision(tree) != first
    (tree / "harness/similarity.py").unlink()
    with pytest.raises(SpecError, match="similarity"):
        implementation_revision(tree)
