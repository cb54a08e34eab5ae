"""``compare``: equal but for names and clocks, differences named field by field, unknown parts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from complete_run import complete_run, edit_json
from small_run import GRPO, GS1

from harness.__main__ import main
from harness.compare import Part, compare_runs, exit_code, report_lines
from harness.comparison import compare_rows, compare_values


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two complete runs, made one after the other: other times and sessions, the same numbers."""
    folders = [tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")]
    for folder in folders:
        complete_run(folder)
    return folders[0] / "run", folders[1] / "run"


@pytest.fixture
def second(pair: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(pair[1], tmp_path / "run"))


def part_of(parts: list[Part], name: str) -> Part:
    return next(part for part in parts if part.name == name)


def real(part: Part) -> list[tuple[str, Any, Any]]:
    return [
        (found.place, found.first, found.second)
        for found in part.differences
        if found.kind == "different"
    ]


def edit_row(path: Path, line: int, **changes: Any) -> None:
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    rows[line] |= changes
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_two_runs_of_one_content_are_equal_but_for_names_and_times(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    parts = compare_runs(*pair)
    assert [real(part) for part in parts if real(part)] == []
    assert exit_code(parts) == 0, "\n".join(report_lines(*pair, parts))
    expected = [found.place for part in parts for found in part.differences]
    assert "gates.feasibility.session" in expected, "another session is named apart"
    assert main(["compare", str(pair[0]), str(pair[1])]) == 0
    out = capsys.readouterr().out
    assert "0 different, 0 unknown" in out
    assert "expected to differ (names, times, attempts, addresses, rounding)" in out


def as_attempt(folder: Path, number: int, *, from_step: int = 0) -> None:
    """Make the rows of a copied attempt its own, from a step on."""
    for name in ("steps.jsonl", "rollouts.jsonl"):
        path = folder / name
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        own = [row | {"attempt": number} for row in rows if row["step"] >= from_step]
        path.write_text("".join(json.dumps(row) + "\n" for row in own))


def test_an_arm_that_was_begun_again_is_equal(pair: tuple[Path, Path], second: Path) -> None:
    """What an interruption leaves: a cut-off first attempt, and the arm trained in a second one."""
    arm = second / "arms" / GS1
    shutil.copytree(arm / "attempt-01", arm / "attempt-02")
    as_attempt(arm / "attempt-02", 2)
    (arm / "attempt-01" / "steps.jsonl").write_text("")
    edit_json(arm / "done.json", "attempt", value=2)
    edit_json(arm / "done.json", "state_uri", value="tinker://other/weights/final")
    parts = compare_runs(pair[0], second)
    assert exit_code(parts) == 0, "\n".join(report_lines(pair[0], second, parts))
    places = [found.place for found in part_of(parts, f"{GS1}: end").differences]
    assert places == ["attempt", "state_uri"]


def test_an_arm_that_went_on_after_its_first_step_is_equal(
    pair: tuple[Path, Path], second: Path
) -> None:
    """The steps that count come from two attempts; restores are what an interruption explains."""
    arm = second / "arms" / GS1
    shutil.copytree(arm / "attempt-01", arm / "attempt-02")
    (arm / "attempt-02" / "start.json").unlink()
    as_attempt(arm / "attempt-02", 2, from_step=1)
    resumed = {"attempt": 2, "step": 1, "continues": 1}
    (arm / "attempt-02" / "resumed.json").write_text(json.dumps(resumed))
    edit_json(arm / "done.json", "attempt", value=2)
    place = ("initialization_provenance", "arms", GS1, "restore_count")
    edit_json(second / "result.json", *place, value=1)
    parts = compare_runs(pair[0], second)
    assert exit_code(parts) == 0, "\n".join(report_lines(pair[0], second, parts))
    edit_json(arm / "attempt-02" / "resumed.json", "step", value=2)
    assert exit_code(compare_runs(pair[0], second)) == 3, "a step is missing then"


def test_a_patch_of_the_commit_is_no_difference_and_a_lost_file_is(
    pair: tuple[Path, Path], second: Path
) -> None:
    result = json.loads((second / "result.json").read_text())
    patch = {"name": "code_patch.diff", "kind": "code_patch", "content": "+ a line"}
    files = [*result["evidence"]["files"], patch]
    edit_json(second / "result.json", "evidence", "files", value=files)
    assert exit_code(compare_runs(pair[0], second)) == 0
    edit_json(second / "result.json", "evidence", "files", value=files[1:])
    assert exit_code(compare_runs(pair[0], second)) == 1


def test_a_posted_accuracy_is_no_name_and_no_clock(pair: tuple[Path, Path], second: Path) -> None:
    edit_json(second / "result.json", "evidence", "per_arm_metrics", GS1, "accuracy", value=0.1)
    parts = compare_runs(pair[0], second)
    assert exit_code(parts) == 1
    (found,) = [row for row in part_of(parts, "result").differences if row.kind == "different"]
    assert found.place == f"evidence.per_arm_metrics.{GS1}.accuracy"


@pytest.mark.parametrize(
    ("file", "keys", "value", "part", "place"),
    [
        ("spec.json", ("arms", 1, "tau"), 0.3, "spec", "arms[1].tau"),
        ("plan.json", ("binding_digest",), "0" * 64, "plan", "binding_digest"),
        ("initial.json", ("adapter_sha256",), "0" * 64, "initial state", "adapter_sha256"),
        (
            f"arms/{GS1}/attempt-01/start.json",
            ("output_sha256",),
            "0" * 64,
            f"{GS1}: start",
            "output_sha256",
        ),
        (
            f"arms/{GS1}/done.json",
            ("state_uri",),
            f"tinker://{GS1}/weights/step-1",
            f"{GS1}: end",
            "state_uri",
        ),
        ("decision.json", ("verdict",), "supported", "decision", "verdict"),
        ("result.json", ("metrics", "accuracy"), 0.26, "result", "metrics.accuracy"),
    ],
)
def test_a_changed_field_is_named_with_both_values(
    pair: tuple[Path, Path],
    second: Path,
    file: str,
    keys: tuple[str | int, ...],
    value: Any,
    part: str,
    place: str,
) -> None:
    before: Any = json.loads((second / file).read_text())
    for key in keys:
        before = before[key]
    edit_json(second / file, *keys, value=value)
    parts = compare_runs(pair[0], second)
    assert exit_code(parts) == 1
    assert real(part_of(parts, part)) == [(place, before, value)]


@pytest.mark.parametrize(
    ("file", "change", "part"),
    [
        (f"arms/{GRPO}/attempt-01/steps.jsonl", {"reward_mean": 0.9}, f"{GRPO}: steps"),
        (f"arms/{GRPO}/attempt-01/rollouts.jsonl", {"reward": 9.0}, f"{GRPO}: rollouts"),
        ("predictions/base.jsonl", {"prediction": "7"}, "predictions base"),
        ("observations.jsonl", {"value": 0.5}, "observations"),
    ],
)
def test_a_changed_row_is_named_by_its_field(
    pair: tuple[Path, Path], second: Path, file: str, change: dict[str, Any], part: str
) -> None:
    edit_row(second / file, 1, **change)
    parts = compare_runs(pair[0], second)
    (name, value) = next(iter(change.items()))
    found = real(part_of(parts, part))
    assert exit_code(parts) == 1
    assert any(place.startswith(f"{name} (first at") and b == value for place, _, b in found), found


def test_a_gate_that_measured_something_else_is_a_difference(
    pair: tuple[Path, Path], second: Path
) -> None:
    path = next((second / "gates").glob("*.jsonl"))
    path.write_text(path.read_text().replace('"value": 0.5', '"value": 0.25', 1))
    parts = compare_runs(pair[0], second)
    assert "edited after it was written" in part_of(parts, "gates").unknown


def test_rollouts_of_a_prompt_are_compared_in_any_order(
    pair: tuple[Path, Path], second: Path
) -> None:
    path = second / "arms" / GRPO / "attempt-01" / "rollouts.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["rollout"], rows[1]["rollout"] = 1, 0
    path.write_text("".join(json.dumps(row) + "\n" for row in [rows[1], rows[0], *rows[2:]]))
    assert exit_code(compare_runs(pair[0], second)) == 0


@pytest.mark.parametrize("file", ["evaluator.json", f"arms/{GS1}/done.json", "plan.json"])
@pytest.mark.parametrize("fault", ["missing", "torn"])
def test_what_cannot_be_read_is_unknown_and_never_equal(
    pair: tuple[Path, Path], second: Path, file: str, fault: str
) -> None:
    path = second / file
    if fault == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:20])
    parts = compare_runs(pair[0], second)
    assert exit_code(parts) == 3
    unknown = [part for part in parts if part.unknown]
    assert unknown
    if fault == "missing":
        assert any(f"the second run has no {file}" in part.unknown for part in unknown)


def test_folders_that_are_no_runs_prove_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 3
    assert "may be no run" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "none"), str(tmp_path)]) == 4
    assert "do: name two runs" in capsys.readouterr().err


def test_values_differ_by_type_length_and_number() -> None:
    found = list(compare_values({"a": 1, "b": [1, 2], "c": 0.1}, {"a": 1.0, "b": [1], "d": None}))
    assert [(item.place, item.kind) for item in found] == [
        ("a", "different"),
        ("b", "different"),
        ("c", "different"),
        ("d", "different"),
    ]
    rounded = list(compare_values({"x": 0.1 + 0.2}, {"x": 0.3}))
    assert [item.kind for item in rounded] == ["expected"], "the last bits of a sum"
    assert [item.kind for item in compare_values({"x": 0.3}, {"x": 0.3000001})] == ["different"]


def test_rows_that_one_side_lacks_or_doubles_are_differences() -> None:
    rows = [{"id": 1, "v": 1.0}, {"id": 2, "v": 2.0}]
    assert [found.place for found in compare_rows(rows, rows[:1], ("id",))] == [
        "rows only in the first run"
    ]
    doubled = [*rows, {"id": 2, "v": 2.0}]
    assert [found.place for found in compare_rows(rows, doubled, ("id",))] == ["rows"]
