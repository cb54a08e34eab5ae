"""The evidence of a run in one folder: whole and unchanged, or its gaps are said."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from complete_run import RAN, complete_run, edit_json, read_back
from mini_project import ROOT
from small_run import BINDING, GRPO, GS1, NO_CODE

from harness.bundle import SCRIPTS, collect, report_lines, status_of, write_bundle
from harness.digest import parse_json, sha256_bytes, sha256_json
from harness.errors import StoreError
from harness.evidence import parse_evidence
from harness.gates.binding import Binding
from harness.gates.evidence import read_session
from harness.plan import PlannedRun
from harness.redact import Redactor
from harness.store import read_jsonl

SECRET = "tml-abcdef0123456789secret"
NONE = Redactor.from_environment({})
SECRETIVE = Redactor.from_environment({"TINKER_API_KEY": SECRET})


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return complete_run(tmp_path_factory.mktemp("complete")).folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original.parent, tmp_path / "copy")
    return tmp_path / "copy" / "run"


def bound_to(folder: Path, binding: Binding, code: Mapping[str, object]) -> PlannedRun:
    """Say that other files ran, on a commit that is given."""
    path = next((folder / "gates").iterdir())
    previous, lines = "", []
    for event in read_session(path).events:
        if event["type"] == "session":
            event["binding"] = binding.to_json()
        body = {**event, "previous": previous}
        previous = sha256_json(body)
        lines.append(json.dumps({**body, "line_sha256": previous}) + "\n")
    path.write_text("".join(lines))
    edit_json(folder / "plan.json", "offline_binding_digest", value=binding.offline_digest())
    edit_json(folder / "plan.json", "code", value=dict(code))
    return read_back(folder)


def test_a_clean_revision_gives_complete_evidence(folder: Path) -> None:
    run = read_back(folder)
    bundle = collect(run, ROOT, NONE)
    assert (status_of(bundle), bundle.status.missing, bundle.gaps) == ("complete", (), ())
    kinds = {file.kind for file in bundle.record.files}
    assert kinds == {
        "script",
        "effective_config",
        "code_revision",
        "predictions",
        "metrics",
        "gate_report",
        "timing",
        "audit",
    }
    scripts = [file for file in bundle.record.files if file.kind == "script"]
    assert len(scripts) == len(SCRIPTS)
    assert set(bundle.record.per_arm_metrics) == {GRPO, GS1}
    assert {(point.arm, point.step) for point in bundle.record.checkpoints} == {(GRPO, 2), (GS1, 2)}


def test_the_folder_holds_what_the_record_says(folder: Path, tmp_path: Path) -> None:
    bundle = collect(read_back(folder), ROOT, NONE)
    out = tmp_path / "out"
    write_bundle(bundle, out)
    raw = parse_json((out / "evidence.json").read_bytes(), where="evidence.json")
    record = parse_evidence(raw)
    names = {file.name for file in record.files}
    assert {path.name for path in out.iterdir()} == names | {"evidence.json"}
    for file in record.files:
        assert sha256_bytes((out / file.name).read_bytes()) == file.sha256, file.name
    for arm in ("base", GRPO, GS1):
        kept = (out / f"predictions.{arm}.jsonl").read_bytes()
        assert kept == (folder / f"predictions/{arm}.jsonl").read_bytes(), "byte for byte the run's"
    with pytest.raises(StoreError, match="written once"):
        write_bundle(bundle, out)


def test_code_that_did_not_run_is_no_script(folder: Path) -> None:
    bundle = collect(bound_to(folder, BINDING, NO_CODE), ROOT, NONE)
    assert status_of(bundle) == "partial"
    assert set(bundle.status.missing) == {"script", "code_revision", "code_patch"}
    lines = report_lines(bundle)
    assert "missing          script" in lines
    assert lines[-1].startswith("evidence: partial, ")


def test_a_dirty_tree_owes_a_patch_that_only_the_same_tree_can_give(folder: Path) -> None:
    run = bound_to(folder, RAN, {"head": "0" * 40, "dirty": True})
    bundle = collect(run, ROOT, NONE)
    assert bundle.status.missing == ("code_patch",), "this tree is on another commit"


def test_the_patch_gives_the_tree_that_ran(tmp_path: Path) -> None:
    from harness.bundle_code import patch as patch_of

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    git("init", "-q")
    (tmp_path / "a.py").write_text("one\n")
    git("add", ".")
    git("commit", "-qm", "first")
    (tmp_path / "a.py").write_text("two\n")
    (tmp_path / "new.py").write_text("three\n")
    patch = patch_of(tmp_path)
    git("checkout", "-q", "--", "a.py")
    (tmp_path / "new.py").unlink()
    subprocess.run(["git", "apply"], cwd=tmp_path, input=patch.encode(), check=True)
    assert (tmp_path / "a.py").read_text() == "two\n"
    assert (tmp_path / "new.py").read_text() == "three\n"


def test_a_missing_arm_is_said(folder: Path) -> None:
    run = read_back(folder)
    metrics = json.loads((folder / "result.json").read_text())["metrics"]["arms"]
    edit_json(folder / "result.json", "metrics", "arms", value={GRPO: metrics[GRPO]})
    bundle = collect(run, ROOT, NONE)
    assert bundle.status.missing == (f"per_arm_metrics: {GS1}",)


def test_no_secret_reaches_the_bundle(folder: Path, tmp_path: Path) -> None:
    path = folder / "predictions" / f"{GS1}.jsonl"
    rows = [row | {"text": f"{row['text']} {SECRET}"} for row in read_jsonl(path)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bundle = collect(read_back(folder), ROOT, SECRETIVE)
    write_bundle(bundle, tmp_path / "out")
    holding = [p.name for p in (tmp_path / "out").iterdir() if SECRET in p.read_text()]
    assert holding == []
    kept = read_jsonl(tmp_path / "out" / f"predictions.{GS1}.jsonl")
    assert len(kept) == len(rows), "every row is still there"
    assert "[redacted:TINKER_API_KEY]" in kept[0]["text"]


def test_a_file_that_cannot_be_taken_keeps_the_evidence_from_being_complete(folder: Path) -> None:
    run = read_back(folder)
    (folder / "predictions" / "a b.jsonl").write_text('{"item_id": "x"}\n')
    bundle = collect(run, ROOT, NONE)
    assert status_of(bundle) == "partial"
    assert len(bundle.gaps) == 1
    assert bundle.gaps[0].startswith("predictions.a b.jsonl: ")


def test_one_script_that_changed_since_is_a_gap_of_its_own(folder: Path, tmp_path: Path) -> None:
    run = read_back(folder)
    tree = tmp_path / "tree" / "harness"
    tree.mkdir(parents=True)
    for stem in SCRIPTS:
        shutil.copy(ROOT / "harness" / f"{stem}.py", tree)
    (tree / "evaluate.py").write_text("edited\n")
    bundle = collect(run, tree.parent, NONE)
    assert bundle.status.missing == (), "the kind is there, and yet one file is not"
    assert status_of(bundle) == "partial"
    assert [gap.split(":")[0] for gap in bundle.gaps] == ["script.evaluate.py"]


def test_predictions_of_the_base_model_are_owed_too(folder: Path) -> None:
    run = read_back(folder)
    (folder / "predictions" / "base.jsonl").unlink()
    bundle = collect(run, ROOT, NONE)
    assert status_of(bundle) == "partial"
    assert [gap.split(":")[0] for gap in bundle.gaps] == ["predictions.base.jsonl"]
