"""A finished run is judged again from its files: whatever is changed is named, sealed or not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from complete_run import complete_run, edit_json, redraw, reseal
from forgeries import ATTEMPT, FORGERIES, Forgery, delete_a_row, rewrite, set_in_row
from small_run import GRPO, GS1

import harness.problems
from harness.digest import sha256_file, sha256_json
from harness.gates.verdict import Outcome
from harness.report import REPORT_NAMES
from harness.run_result import GROWING_FILES
from harness.store import read_jsonl
from harness.verify import exit_code, verify_run
from harness.verify_rows import Check

GATES = ("loss_gradient_parity", "dry_activation", "pilot_activation", "initial_identity")


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return complete_run(tmp_path_factory.mktemp("complete")).folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "run")
    shutil.copytree(original.parent / "rows", tmp_path / "rows")
    return tmp_path / "run"


def verified(run: Path) -> tuple[int, list[Check]]:
    checks = verify_run(run, run.parent / "rows")
    return exit_code(checks), checks


def false_checks(run: Path) -> dict[str, str]:
    code, checks = verified(run)
    found = {check.name: check.detail for check in checks if check.outcome is Outcome.FAIL}
    assert (code == 1) == bool(found), f"exit {code} with {len(found)} false checks"
    return found


def test_an_intact_run_is_proven_by_every_check(run: Path) -> None:
    code, checks = verified(run)
    open_checks = [check for check in checks if check.outcome is not Outcome.PASS]
    assert (code, open_checks) == (0, [])
    names = {check.name for check in checks}
    wanted = {"manifest", "scores", "grading", "items", "observations", "decision", "provenance"}
    wanted |= {f"advantages {arm}" for arm in (GRPO, GS1)} | {f"gate {gate}" for gate in GATES}
    assert names >= wanted, f"not checked: {sorted(wanted - names)}"


def test_one_flipped_byte_in_any_file_is_named(run: Path) -> None:
    files = sorted(path for path in run.rglob("*") if path.is_file())
    assert len(files) >= 20, f"only {len(files)} files were tried"
    for path in files:
        intact = path.read_bytes()
        middle = len(intact) // 2
        path.write_bytes(intact[:middle] + bytes([intact[middle] ^ 1]) + intact[middle + 1 :])
        found = false_checks(run)
        name = path.relative_to(run).as_posix()
        assert name in found.get("manifest", ""), f"{name}: the manifest check says {found}"
        path.write_bytes(intact)
    assert verified(run)[0] == 0, "every file was put back"


def swap_two_files(run: Path) -> str:
    one, other = (run / f"predictions/{arm}.jsonl" for arm in (GRPO, GS1))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    return "swapped"


def remove_a_file(run: Path) -> str:
    (run / ATTEMPT / "start_adapter" / "adapter_config.json").unlink()
    return f"removed {ATTEMPT}/start_adapter/adapter_config.json"


def add_a_file(run: Path) -> str:
    (run / "predictions" / "better.jsonl").write_text("")
    return "added predictions/better.jsonl"


def link_a_file(run: Path) -> str:
    path = run / "evaluator.json"
    path.rename(run.parent / "elsewhere.json")
    path.symlink_to(run.parent / "elsewhere.json")
    return "irregular evaluator.json"


@pytest.mark.parametrize(
    "change", [delete_a_row, swap_two_files, remove_a_file, add_a_file, link_a_file]
)
def test_a_changed_folder_is_named(run: Path, change: Callable[[Path], str]) -> None:
    named = change(run)
    detail = false_checks(run)["manifest"].replace(":", "")
    assert named in detail, f"{named!r} not in {detail!r}"


@pytest.mark.parametrize(("forge", "named"), FORGERIES, ids=[f.__name__ for f, _ in FORGERIES])
def test_a_forger_who_seals_the_run_again_is_still_caught(
    run: Path, forge: Forgery, named: str
) -> None:
    forge(run)
    assert "manifest" in false_checks(run), "an edit without a new seal breaks the manifest"
    reseal(run)
    found = false_checks(run)
    assert "manifest" not in found, "the forger's manifest fits"
    assert named in found, f"expected {named!r} to fail, false are {sorted(found)}"


def test_the_published_head_catches_a_new_seal(run: Path) -> None:
    from harness.manifest import check_manifest, head

    published = head(run)
    (run / "logs").mkdir()
    (run / "logs" / "extra.log").write_text("said\n")
    reseal(run)
    assert verified(run)[0] == 0, "an added log contradicts no record"
    kinds = {finding.kind for finding in check_manifest(run, published_head=published)}
    assert kinds == {"head"}


def test_rows_in_another_order_give_the_same_verdict(run: Path) -> None:
    path = run / "observations.jsonl"
    rewrite(path, lambda rows: sorted(rows, key=sha256_json))
    section = ("decision", "observations_file", "sha256")
    edit_json(run / "result.json", *section, value=sha256_file(path))
    for name in (GRPO, GS1):
        rewrite(run / f"predictions/{name}.jsonl", lambda rows: rows[::-1])
    assert set(false_checks(run)) == {"manifest", "report"}, "its report names another digest"
    redraw(run)
    reseal(run)
    assert false_checks(run) == {}
    assert verified(run)[0] == 0


def test_predictions_split_over_two_files_give_the_same_verdict(run: Path) -> None:
    whole = run / f"predictions/{GS1}.jsonl"
    rows = read_jsonl(whole)
    rewrite(whole, lambda found: found[:17])
    second = run / f"predictions/{GS1}.part-2.jsonl"
    second.write_text("".join(json.dumps(row) + "\n" for row in rows[17:]))
    reseal(run)
    assert false_checks(run) == {}
    assert verified(run)[0] == 0


def unfinished(run: Path) -> None:
    """Bring a run back to where its first arm was about to be trained."""
    for name in ("decision.json", "observations.jsonl", "manifest.jsonl", *REPORT_NAMES):
        (run / name).unlink()
    shutil.rmtree(run / "arms")
    for name in (GRPO, GS1):
        (run / f"predictions/{name}.jsonl").unlink()
    result = json.loads((run / "result.json").read_text())
    numbers = ("accuracy", "items", "unfinished", "unanswered")
    metrics = {name: result["metrics"][name] for name in numbers}
    begun = {"status": "running", "summary": "small: begun.", "metrics": {**metrics, "arms": {}}}
    (run / "result.json").write_text(json.dumps({**begun, "completed_arms": []}))


def test_an_unfinished_run_is_unknown_and_not_false(run: Path) -> None:
    unfinished(run)
    code, checks = verified(run)
    assert false_checks(run) == {}
    assert code == 3
    still_open = {check.name for check in checks if check.outcome is Outcome.UNKNOWN}
    assert {"manifest", "result", "decision", f"training {GS1}"} <= still_open


def test_an_unfinished_run_with_a_damaged_file_is_false(run: Path) -> None:
    unfinished(run)
    reseal_without_seal(run)
    assert verified(run)[0] == 3
    set_in_row(run / "predictions" / "base.jsonl", 3, completion_tokens=4)
    assert "predictions/base.jsonl" in false_checks(run)["manifest"]


def reseal_without_seal(run: Path) -> None:
    from harness.manifest import enter_all

    enter_all(run, ignored=GROWING_FILES)


def test_without_the_data_set_items_are_unknown(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> NoReturn:
        raise ConnectionError("offline")

    monkeypatch.setattr(harness.problems, "load_dataset", offline)
    checks = verify_run(run, None)
    found = {check.name for check in checks if check.outcome is Outcome.UNKNOWN}
    assert {"items", f"prompts {GS1}", f"advantages {GS1}"} <= found
    assert exit_code(checks) == 3


@pytest.mark.parametrize("name", ["plan.json", "spec.json", "result.json", "evaluator.json"])
@pytest.mark.parametrize("text", ["[]", '{"arms": 3}', "\x00"])
def test_a_malformed_document_is_a_false_check_and_no_crash(
    run: Path, name: str, text: str
) -> None:
    (run / name).write_text(text)
    assert name in false_checks(run)["manifest"]
    reseal(run)
    assert false_checks(run), f"{name} = {text[:20]!r} was taken for a record"
