"""Departures from a spec are found by comparing, posted, and never quietly absent."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from complete_run import complete_run, edit_json, read_back
from mini_project import ROOT
from small_run import GRPO, GS1

from harness.deviations import executed_differences, with_executed, with_revision
from harness.errors import SpecError
from harness.result import ResultDocument
from harness.spec import LoadedSpec, load_spec
from harness.spec_revision import field_of, spec_differences

LOCAL = ROOT / "specs" / "local.json"
START = ResultDocument.start("small: planned, nothing trained yet.")


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return complete_run(tmp_path_factory.mktemp("deviations")).folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original.parent, tmp_path / "copy")
    return tmp_path / "copy" / "run"


def attempt(folder: Path, arm: str) -> Path:
    return folder / "arms" / arm / "attempt-01"


def test_a_run_as_written_has_none(folder: Path) -> None:
    run = read_back(folder)
    assert executed_differences(run) == []
    assert with_executed(START, run).deviations == ()


EXECUTED = {
    "steps": (GRPO, "steps", 1, "steps"),
    "tau": (GS1, "tau", 0.4, "objective"),
    "kl penalty": (GS1, "kl_penalty_coef", 0.1, "objective"),
    "model": (GRPO, "base_model", "embedded/other", "model"),
    "substeps": (GRPO, "num_substeps", 2, "effective_batch"),
    "prefix": (GS1, "fewshot_prefix", "standard", "dataset"),
    "a key nobody planned": (GS1, "entropy_bonus", 0.01, "objective"),
}


@pytest.mark.parametrize("kind", sorted(EXECUTED))
def test_what_was_executed_otherwise_is_posted_as_unrecorded(folder: Path, kind: str) -> None:
    arm, key, value, field = EXECUTED[kind]
    edit_json(attempt(folder, arm) / "effective_config.json", key, value=value)
    document = with_executed(START, read_back(folder))
    (row,) = document.deviations
    assert (row.field, row.effective) == (field, value)
    assert row.reason.startswith("UNRECORDED before training: ")
    assert f"{arm} {key}" in row.reason
    assert document.original_hypothesis_tested is (field != "objective")
    assert with_executed(document, read_back(folder)) == document, "posted once"


def test_fewer_rollouts_than_planned_are_found_in_the_steps(folder: Path) -> None:
    path = attempt(folder, GS1) / "steps.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1]["rollouts"] = 3
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (row,) = executed_differences(read_back(folder))
    assert (row.field, row.original, row.effective) == ("effective_batch", [4], [3, 4])


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("decoding", "temperature"), 1.0),
        (("decoding", "max_tokens"), 16),
        (("items", "ids"), ["small-test-00000"]),
    ],
    ids=["temperature", "max_tokens", "items"],
)
def test_another_evaluation_is_found(folder: Path, keys: tuple[str, str], value: Any) -> None:
    edit_json(folder / "evaluator.json", *keys, value=value)
    (row,) = executed_differences(read_back(folder))
    assert row.field == "evaluator"


def revised(folder: Path, changes: Mapping[str, Any], *fields: str, **section: Any) -> LoadedSpec:
    """Write a revision of the local spec beside a copy of it and load it."""
    shutil.copy(LOCAL, folder / "local.json")
    raw = json.loads(LOCAL.read_text())
    raw.update(changes)
    rows = [
        {"field": field, "original": "old", "effective": "new", "reason": "the gate refused it"}
        for field in fields
    ]
    raw["revision"] = {"of": "local", "digest": load_spec(LOCAL).digest, "deviations": rows}
    raw["revision"].update(section)
    path = folder / "local_r1.json"
    path.write_text(json.dumps(raw))
    return load_spec(path)


def other_tau() -> dict[str, Any]:
    arms = json.loads(LOCAL.read_text())["arms"]
    arms[1]["tau"] = 0.5
    return {"arms": arms}


def test_a_revision_is_posted_before_training(tmp_path: Path) -> None:
    loaded = revised(tmp_path, other_tau(), "objective", tested_instead="GS1 at tau 0.5")
    document = with_revision(START, loaded, tmp_path)
    (row,) = document.deviations
    assert (row.field, row.reason) == ("objective", "the gate refused it")
    assert (document.original_hypothesis_tested, document.tested_instead) == (
        False,
        "GS1 at tau 0.5",
    )


def test_what_a_revision_does_not_say_is_flagged(tmp_path: Path) -> None:
    changes = {**other_tau(), "max_seq_len": 128}
    loaded = revised(tmp_path, changes, "objective", tested_instead="GS1 at tau 0.5")
    document = with_revision(START, loaded, tmp_path)
    recorded, flagged = document.deviations
    assert recorded.field == "objective"
    assert (flagged.field, flagged.original, flagged.effective) == ("effective_batch", 256, 128)
    assert flagged.reason.startswith("UNRECORDED before training: max_seq_len differs from local")


def test_a_changed_objective_needs_what_is_tested_instead(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"revision\.tested_instead"):
        revised(tmp_path, other_tau(), "objective")


def test_a_revision_of_another_original_is_refused(tmp_path: Path) -> None:
    loaded = revised(tmp_path, {"max_seq_len": 128}, "effective_batch", digest="0" * 64)
    with pytest.raises(SpecError, match=r"revision\.digest"):
        with_revision(START, loaded, tmp_path)
    (tmp_path / "local.json").unlink()
    with pytest.raises(SpecError, match="is not beside it"):
        with_revision(START, loaded, tmp_path)


def test_prose_and_names_are_no_deviation_and_every_other_part_is() -> None:
    for path in ("title", "command", "budget.gpu_hours", "arms[].name", "activation_gate.checks"):
        assert field_of(path) is None, path
    raw = json.loads(LOCAL.read_text())
    changed = json.loads(LOCAL.read_text())
    changed["decision_rule"]["criteria"][0]["margin"] = -0.1
    changed["title"] = "another"
    (found,) = spec_differences(raw, changed)
    assert (found.field, found.path) == ("endpoint", "decision_rule.criteria[0].margin")
