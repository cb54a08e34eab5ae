"""Messages that a new user meets: each names the fault, its place and what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from complete_run import complete_run, reseal
from mini_project import ROOT
from small_run import small_spec_json, write_rows

from harness.__main__ import COMMANDS, main
from harness.digest import parse_json
from harness.errors import DocumentError, SpecError, UsageError
from harness.result import ResultDocument, publish
from harness.session import HarnessSession, Options
from harness.spec import load_spec, parse_spec
from harness.verify import LONGEST_LINE, report_lines, verify_run

LOCAL = ROOT / "specs" / "local.json"
Capture = pytest.CaptureFixture[str]


def local() -> dict[str, Any]:
    return json.loads(LOCAL.read_text())


def refused(capsys: Capture, *arguments: str) -> str:
    """Run a command that must be refused as usage; return what it says."""
    assert main(list(arguments)) == 4
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return err


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as caught:
        parse_spec(document, where="trial.json")
    return str(caught.value)


def test_a_misspelt_required_field_is_named_with_the_one_meant() -> None:
    document = local()
    document["batch_sise"] = document.pop("batch_size")
    assert "batch_size = (absent): field required; found 'batch_sise': did you mean" in refusal(
        document
    )
    document = local()
    document["arms"][1]["advantage_mod"] = document["arms"][1].pop("advantage_mode")
    assert "arms[1].advantage_mode = (absent): field required; found 'advantage_mod'" in refusal(
        document
    )


def test_a_misspelt_optional_field_is_named_in_refusals_and_notes(tmp_path: Path) -> None:
    document = local()
    document["arms"][1]["similarty"] = document["arms"][1].pop("similarity")
    assert "arms[1].similarty: did you mean 'similarity', which is absent?" in refusal(document)
    document = local()
    document["decision_rule"]["tie_bnd"] = [-0.02, 0.02]
    path = tmp_path / "trial.json"
    path.write_text(json.dumps(document))
    notes = load_spec(path).notes
    assert "decision_rule.tie_bnd: did you mean 'tie_band', which is absent?" in notes


def test_an_unknown_field_beside_the_field_it_resembles_is_no_misspelling(tmp_path: Path) -> None:
    path = tmp_path / "trial.json"
    path.write_text(json.dumps({**local(), "steps_": 41}))
    assert not [note for note in load_spec(path).notes if "did you mean" in note]


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('"tau": 0.2', '"tau": NaN', "arms[1].tau"),
        ('"tau": 0.2', '"tau": 1e999', "arms[1].tau"),
        ('"tau": 0.2', '"tau": 0.2, "tau": 0.3', "arms[1].tau"),
        ('"lora_rank": 8,\n  "training', '"lora_rank": 8, "lora_rank": 9, "training', "lora_rank"),
    ],
)
def test_a_json_fault_carries_its_field_and_what_to_do(
    old: str, new: str, place: str, tmp_path: Path, capsys: Capture
) -> None:
    text = LOCAL.read_text()
    assert old in text
    path = tmp_path / "trial.json"
    path.write_text(text.replace(old, new))
    err = refused(capsys, "spec", str(path))
    assert f"trial.json, field {place} | do: " in err


def test_a_fault_before_broken_syntax_still_names_the_file() -> None:
    with pytest.raises(DocumentError, match=r"once \| found: 'a' again \| where: here \| do:"):
        parse_json('{"x": {"a": 1, "a": 2}, oops', where="here")


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (("base_model",), "Qwen/Qwen3.5-2B", 'base_model = "Qwen/Qwen3.5-2B": begins with'),
        (("eval", "n_examples"), 1300, "eval.n_examples = 1300: 1319, the rows of test there are"),
        (("dataset", "n_examples"), 8000, "dataset.n_examples = 8000: 7473, the rows of train"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused(
    keys: tuple[str, ...], value: Any, said: str
) -> None:
    document = local()
    target = document
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = value
    assert said in refusal(document)


def test_several_seeds_are_noted(tmp_path: Path) -> None:
    document = local()
    document["decision_rule"]["seeds"] = [0, 1, 2]
    document["arms"][1]["seed"] = 1
    path = tmp_path / "trial.json"
    path.write_text(json.dumps(document))
    notes = "\n".join(load_spec(path).notes)
    assert "every arm is trained once with each of seeds [0, 1, 2]" in notes


def test_an_unknown_arm_says_where_and_what_to_do() -> None:
    session = HarnessSession(Options(ROOT, LOCAL, arms=("nosuch",)))
    with pytest.raises(UsageError, match=r"where: --arm, with local\.json \| do: name an arm"):
        session.selected_arms()


def test_a_missing_spec_is_named_by_pin(capsys: Capture, tmp_path: Path) -> None:
    err = refused(capsys, "pin", str(tmp_path / "missing.json"))
    assert "the spec cannot be read" in err
    assert "missing.json | do: name an existing file" in err


def test_a_bundle_of_nothing_says_that_there_is_no_run(capsys: Capture, tmp_path: Path) -> None:
    err = refused(capsys, "bundle", str(tmp_path / "nosuch"), str(tmp_path / "out"))
    assert "there is no run to bundle" in err
    assert "do: make demo, or name another run" in err
    assert "--fresh" not in err
    assert not (tmp_path / "out").exists()


def test_grading_an_empty_file_is_no_silent_success(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert "nothing to grade" in refused(capsys, "grade", str(tmp_path / "empty.jsonl"))


def test_one_value_of_a_result_can_be_printed(capsys: Capture, tmp_path: Path) -> None:
    document = ResultDocument.start("small: planned.").with_metrics({"c.mean": 0.25, "items": 40})
    publish(tmp_path / "result.json", document.with_metrics({"accuracy": 0.5}, arm="a.b"))

    def field(path: str) -> str:
        assert main(["result", str(tmp_path), "--field", path]) == 0
        return capsys.readouterr().out

    assert field("status") == "running\n"
    assert field("metrics.c.mean") == "0.25\n"
    assert field("metrics.arms.a.b.accuracy") == "0.5\n"
    assert json.loads(field("metrics.arms")) == {"a.b": {"accuracy": 0.5}}
    assert field("completed_arms") == "[]\n"
    err = refused(capsys, "result", str(tmp_path), "--field", "metrics.arms.none")
    assert "expected: one of a.b | found: none" in err


def test_help_shows_the_defaults(capsys: Capture) -> None:
    for command, default in (
        ("result", "(default: artifacts/runs/local/latest)"),
        ("plan", "(default: 0)"),
        ("status", "(default: artifacts)"),
        ("serve", "(default: float32)"),
    ):
        assert main([command, "--help"]) == 0
        out = " ".join(capsys.readouterr().out.split())
        assert default in out, f"{command}: no {default} in its help"


def test_the_usage_lists_every_command_in_one_line_each(capsys: Capture) -> None:
    """The golden usage: a change of a command's first line is a change of this test."""
    main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["usage: python -m harness COMMAND [...]", "", "commands:"]
    assert [line.split()[0] for line in lines[3:]] == list(COMMANDS)
    assert max(len(line) for line in lines) <= 120
    for line in (
        "  plan     Say what a run of SPEC can show, what it uses and how long it takes; contacts"
        " no service.",
        "  compare  Compare two runs field by field: 0 equal but for names and times, 1 different,"
        " 3 unknown.",
        "  doctor   Check this machine for SPEC: 0 ready, 1 something is wrong, 3 something is not"
        " known.",
        "  template Print a valid spec to start from; then: edit, spec, plan, pin.",
    ):
        assert line in lines


def test_one_broken_gate_file_is_named_once_and_lines_stay_short(tmp_path: Path) -> None:
    complete_run(tmp_path)
    run = tmp_path / "run"
    path = next((run / "gates").glob("*.jsonl"))
    path.write_text(path.read_text().replace('"outcome": "pass"', '"outcome": "Pass"', 1))
    reseal(run)
    lines = report_lines(verify_run(run, tmp_path / "rows"))
    naming = [line for line in lines if "edited after it was written" in line]
    assert len(naming) == 1, "\n".join(lines)
    assert naming[0].startswith("fail    gate evidence: ")
    assert f"unknown gate feasibility: its evidence {path.name} is refused" in lines
    shutil.copy(run / "result.json", tmp_path / "kept.json")
    (run / "result.json").write_text('{"status": "' + "x" * 5000 + '"}')
    longest = max(map(len, report_lines(verify_run(run, tmp_path / "rows"))))
    assert longest <= LONGEST_LINE == 200, f"a line of {longest} characters"


def test_offline_rows_other_than_the_spec_counts_on_are_refused(tmp_path: Path) -> None:
    """The data set's own size is only known once it is read; nothing is trained before."""
    rows = write_rows(tmp_path / "rows")
    raw = small_spec_json()
    raw["eval"]["n_examples"] = 41
    path = tmp_path / "trial.json"
    path.write_text(json.dumps(raw))
    assert main(["doctor", str(path), "--gsm8k-dir", str(rows)]) == 1
