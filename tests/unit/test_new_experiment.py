"""An experiment of one's own is data: template, edits, spec, plan, and what is missing is named."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mini_project import ROOT

import harness.problems
from harness.__main__ import main
from harness.gates.prompt_activation import measure_prompts
from harness.local_service.task import generate_rows
from harness.problems import Split, load_problems
from harness.service_access import choose_service
from harness.spec import load_spec

TRAIN, TEST = 512, 300
SEEDS = [0, 1, 2]
Document = dict[str, Any]
Capture = pytest.CaptureFixture[str]


def own_experiment(template: Document) -> Document:
    """Edit a template: other data, a third and a fourth arm, three seeds, two criteria."""
    document = copy.deepcopy(template)
    document["dataset"] |= {
        "name": "sums",
        "hf_path": "someone/sums",
        "split": "train (config main)",
        "n_examples": TRAIN,
    }
    document["eval"] |= {"benchmark": "sums test", "n_examples": TEST}
    document["steps"] = 6
    for arm in document["arms"]:
        arm["steps"] = 6
    grpo, gs1 = document["arms"]
    gs1["tau"] = 0.2
    document["arms"] += [
        copy.deepcopy(grpo) | {"name": "rloo", "advantage_mode": "rloo"},
        copy.deepcopy(gs1) | {"name": "gs1_sharp", "tau": 0.1},
    ]
    rule = document["decision_rule"]
    rule["seeds"] = SEEDS
    rule["arms"] = {"treatment": gs1["name"], "baseline": grpo["name"]}
    rule["criteria"].append(
        copy.deepcopy(rule["criteria"][0]) | {"id": "clearly_better", "margin": 0.02}
    )
    return document


@pytest.fixture(params=["--local", ""], ids=["embedded model", "named service"])
def spec_path(request: pytest.FixtureRequest, tmp_path: Path, capsys: Capture) -> Path:
    """A spec made from the command's template, saved outside the project."""
    assert main(["template", *filter(None, [request.param])]) == 0
    document = own_experiment(json.loads(capsys.readouterr().out))
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Rows with a column more than needed, answers as plain numbers."""
    folder = tmp_path / "rows"
    folder.mkdir()
    counts: dict[Split, int] = {"train": TRAIN, "test": TEST}
    for split, count in counts.items():
        lines = [
            {"question": row["question"], "answer": row["answer"].split()[-1], "level": 1}
            for row in generate_rows(split, 7)[:count]
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return folder


def plan(path: Path, *options: str, capsys: Capture) -> Document:
    artifacts = f"--artifacts={path.parent / 'artifacts'}"
    assert main(["plan", str(path), "--json", artifacts, *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_loads_with_every_arm_seed_and_criterion(spec_path: Path, capsys: Capture) -> None:
    assert main(["spec", str(spec_path)]) == 0
    said = capsys.readouterr().out
    spec = load_spec(spec_path).spec
    names = [arm.name for arm in spec.arms]
    assert [f"arm {name}:" in said for name in names] == [True] * 4
    assert "criterion clearly_better: accuracy, margin 0.02" in said
    assert "data someone/sums: 512 train rows, rows NOT pinned" in said
    wanted = [f"{name}.seed{seed}" for seed in SEEDS for name in names]
    assert [training.name for training in spec.trainings] == wanted


def test_it_plans_with_its_rows_from_a_folder(spec_path: Path, rows: Path, capsys: Capture) -> None:
    found = plan(spec_path, "--gsm8k-dir", str(rows), capsys=capsys)
    assert [criterion["id"] for criterion in found["criteria"]] == [
        "primary_noninferiority",
        "clearly_better",
    ]
    assert {row["arm"]: row["prompts"] for row in found["prompts"]} == {
        "grpo_gs8_seed0": 48,
        "gs1_seed0": 384,
        "rloo": 48,
        "gs1_sharp": 384,
    }
    measured = {row["arm"]: row["median"] for row in found["activation"]["arms"]}
    spec = load_spec(spec_path).spec
    again = measure_prompts(spec, load_problems(spec, "train", rows))
    assert measured == {row.arm.name: row.measured.pooled_median for row in again}
    assert measured["gs1_sharp"] < measured["gs1_seed0"], "a smaller tau looks at fewer prompts"


def test_a_plan_of_several_seeds_says_what_its_counts_count(
    spec_path: Path, rows: Path, capsys: Capture
) -> None:
    """Half-width sqrt(2 ln(2/0.05) / 300) = 0.15682; (0.15682 - 0.05) * 900 pairs = 96.1."""
    options = ("--gsm8k-dir", str(rows), f"--artifacts={spec_path.parent / 'artifacts'}")
    assert main(["plan", str(spec_path), *options]) == 0
    said = capsys.readouterr().out
    assert "(net +97 of 300 items × 3 seeds)" in said
    assert "prompts used, by each of 3 seeds" in said


def test_rows_that_cannot_be_had_are_said_to_be_missing(
    spec_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise ConnectionError("Couldn't reach 'someone/sums' on the Hub")

    monkeypatch.setattr(harness.problems, "load_dataset", offline)
    reason = plan(spec_path, capsys=capsys)["activation"]["not_measured"]
    assert "expected: someone/sums (config main, split train, revision unpinned)" in reason
    assert "ConnectionError: Couldn't reach" in reason
    assert reason.endswith("or give the rows with --gsm8k-dir DIR")


def renamed_column(row: Document) -> Document:
    return {"problem": row["question"], "answer": row["answer"]}


def no_number(row: Document) -> Document:
    return row | {"answer": "about seven"}


@pytest.mark.parametrize("damage", [renamed_column, no_number])
def test_rows_of_another_form_are_refused_by_file_and_row(
    spec_path: Path, rows: Path, damage: Callable[[Document], Document], capsys: Capture
) -> None:
    path = rows / "train.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[3] = damage(lines[3])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = plan(spec_path, "--gsm8k-dir", str(rows), capsys=capsys)
    reason = found["activation"]["not_measured"]
    assert "where: train.jsonl row 3" in reason
    assert '{"question": text, "answer": text with a line "#### N"}' in reason


def test_more_steps_than_rows_are_refused_with_the_figures(
    spec_path: Path, capsys: Capture
) -> None:
    document = json.loads(spec_path.read_text())
    for part in (document, *document["arms"]):
        part["steps"] = 9
    spec_path.write_text(json.dumps(document))
    assert main(["spec", str(spec_path)]) == 4
    said = capsys.readouterr().err
    assert "arms[1].steps × arms[1].groups_per_batch" in said
    assert "576" in said
    assert "at most dataset.n_examples 512" in said


def test_its_service_follows_from_the_template(spec_path: Path) -> None:
    spec = load_spec(spec_path).spec
    expected = "embedded" if spec.embedded else "url"
    assert choose_service(None, spec) == expected
    assert not spec_path.is_relative_to(ROOT), "a spec needs no place in the project"
