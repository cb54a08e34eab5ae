"""Rows come from three places in one form, are refused when wrong, and have one fixed order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from small_run import TRAIN_ROWS, small_arm, small_spec_json, write_rows

import harness.problems
from harness.dataset_pin import pin_of
from harness.errors import DocumentError
from harness.problems import Split, load_problems, step_batches, training_order
from harness.spec import parse_spec
from harness.spec_model import ExperimentSpec, RowDigests


@pytest.fixture(scope="module")
def spec() -> ExperimentSpec:
    return parse_spec(small_spec_json(), where="the test")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows")


def replace_line(path: Path, number: int, text: str) -> None:
    lines = path.read_text().splitlines()
    lines[number] = text
    path.write_text("\n".join(lines) + "\n")


def test_offline_rows_become_problems_with_stable_ids(spec: ExperimentSpec, rows: Path) -> None:
    found = load_problems(spec, "train", rows)
    assert len(found.problems) == TRAIN_ROWS
    third = found.problems[2]
    assert (third.item_id, third.gold) == ("small-train-00002", "4")
    assert third.question == "train: what is 2 plus 2"
    assert str(rows) not in found.source, "a source goes into plan.json: no machine path"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [("#### 1,234", "1234"), ("#### 1\nno\n#### 7 ", "7"), ("x\r\n#### 12\r\n", "12")],
    ids=["thousands", "last marker", "carriage returns"],
)
def test_the_gold_answer_is_the_last_marked_one(
    spec: ExperimentSpec, rows: Path, answer: str, gold: str
) -> None:
    replace_line(rows / "train.jsonl", 0, json.dumps({"question": "q", "answer": answer}))
    assert load_problems(spec, "train", rows).problems[0].gold == gold


@pytest.mark.parametrize(
    "row",
    [
        {"question": "q", "answer": "no marker"},
        {"question": "  ", "answer": "#### 1"},
        {"question": "q"},
        {"question": "q", "answer": 3},
        ["q", "#### 1"],
    ],
)
def test_a_row_without_question_or_answer_is_refused(
    spec: ExperimentSpec, rows: Path, row: Any
) -> None:
    replace_line(rows / "train.jsonl", 5, json.dumps(row))
    with pytest.raises(DocumentError, match=r"train\.jsonl row 5"):
        load_problems(spec, "train", rows)


def test_a_short_data_set_is_refused(spec: ExperimentSpec, rows: Path) -> None:
    path = rows / "test.jsonl"
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[:-1]))
    with pytest.raises(DocumentError, match=r"expected: 40 rows \| found: 39 rows"):
        load_problems(spec, "test", rows)


def test_missing_files_say_which_option_to_correct(spec: ExperimentSpec, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="--gsm8k-dir"):
        load_problems(spec, "train", tmp_path)


def test_one_changed_letter_changes_the_digest(spec: ExperimentSpec, rows: Path) -> None:
    before = load_problems(spec, "test", rows).sha256
    path = rows / "test.jsonl"
    path.write_text(path.read_text().replace("39 plus", "39 Plus"))
    assert load_problems(spec, "test", rows).sha256 != before


def test_a_generated_data_set_needs_its_seed(spec: ExperimentSpec) -> None:
    generated = spec.dataset.model_copy(update={"hf_path": "embedded:gradeschool"})
    bare = spec.model_copy(update={"dataset": generated, "embedded": None})
    with pytest.raises(DocumentError, match="task_seed"):
        load_problems(bare, "train", None)


@pytest.mark.parametrize("error", [ConnectionError("offline"), ValueError("no such config")])
def test_an_unreachable_hub_is_no_empty_data_set(
    spec: ExperimentSpec, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(harness.problems, "load_dataset", unreachable)
    with pytest.raises(DocumentError, match=f"{type(error).__name__}.*--gsm8k-dir"):
        load_problems(spec, "train", None)


@pytest.mark.parametrize(
    ("split", "config"), [("train", None), ("train (config main)", "main"), ("(config b-2)", "b-2")]
)
def test_hub_rows_and_offline_rows_are_the_same_problems(
    spec: ExperimentSpec,
    rows: Path,
    monkeypatch: pytest.MonkeyPatch,
    split: str,
    config: str | None,
) -> None:
    dataset = spec.dataset.model_copy(update={"split": split})
    spec = spec.model_copy(update={"dataset": dataset})

    def hub(path: str, name: str | None, split: str, revision: str | None) -> Dataset:
        assert (path, name, revision) == ("offline/small", config, None)
        lines = (rows / f"{split}.jsonl").read_text().splitlines()
        return Dataset.from_list([json.loads(line) for line in lines])

    monkeypatch.setattr(harness.problems, "load_dataset", hub)
    offline, online = (load_problems(spec, "train", folder) for folder in (rows, None))
    assert online.problems == offline.problems
    assert online.sha256 == offline.sha256


def give_answers(path: Path, answers: Sequence[object]) -> None:
    """Replace the answers of the first rows, and give every other row a plain number."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    given = [*answers, *range(len(answers), len(lines))]
    rows = [row | {"answer": answer} for row, answer in zip(lines, given, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_data_set_of_plain_numbers_needs_no_worked_answers(
    spec: ExperimentSpec, rows: Path
) -> None:
    """Another data set with question and answer columns is data, not code."""
    give_answers(rows / "train.jsonl", ["12", 13, " 1,234 ", "-0.5", ".5"])
    problems = load_problems(spec, "train", rows).problems
    assert [problem.gold for problem in problems[:6]] == ["12", "13", "1234", "-0.5", ".5", "5"]


@pytest.mark.parametrize("answer", ["twelve", "12 apples", "1 2", "", "12.", True, None, 1.5, [12]])
def test_an_answer_that_is_no_clear_number_is_refused(
    spec: ExperimentSpec, rows: Path, answer: object
) -> None:
    give_answers(rows / "train.jsonl", [1, answer])
    with pytest.raises(DocumentError, match=r"####.*row 1 "):
        load_problems(spec, "train", rows)


@pytest.mark.parametrize("seed", [0, 3])
def test_the_order_is_the_cookbooks_shuffle(spec: ExperimentSpec, rows: Path, seed: int) -> None:
    """numpy's PCG64 permutation is what ``Dataset.shuffle(seed)`` is documented to apply."""
    train = load_problems(spec, "train", rows)
    expected = np.random.default_rng(seed).permutation(TRAIN_ROWS)
    found = [problem.item_id for problem in training_order(train, seed)]
    assert found == [train.problems[row].item_id for row in expected]
    assert len(set(found)) == TRAIN_ROWS, "every row once"


def test_both_arms_take_the_same_order_in_different_portions(
    spec: ExperimentSpec, rows: Path
) -> None:
    order = training_order(load_problems(spec, "train", rows), 0)
    grpo = step_batches(order, small_arm("grpo", groups=2, steps=3))
    gs1 = step_batches(order, small_arm("gs1", groups=4, group_size=1, steps=3))
    assert [len(batch) for batch in grpo] == [2, 2, 2]
    assert [len(batch) for batch in gs1] == [4, 4, 4]
    assert [p for batch in grpo for p in batch] == [p for batch in gs1[:2] for p in batch][:6]


def test_an_order_too_short_for_the_arm_is_refused(spec: ExperimentSpec, rows: Path) -> None:
    order = training_order(load_problems(spec, "train", rows), 0)
    full = small_arm("gs1", groups=4, group_size=1, steps=3)
    assert len(step_batches(order, full)) == 3, "12 rows fill 3 steps of 4"
    with pytest.raises(DocumentError, match=r"at least 16 rows.*found: 12 rows"):
        step_batches(order, full.model_copy(update={"steps": 4}))


def pinned(spec: ExperimentSpec, rows: Path, **changes: Any) -> ExperimentSpec:
    """The spec with the digests of ``rows`` in it."""
    digests = {split: load_problems(spec, split, rows).sha256 for split in ("train", "test")}
    dataset = spec.dataset.model_copy(
        update={"rows_sha256": RowDigests.model_validate({**digests, **changes})}
    )
    return spec.model_copy(update={"dataset": dataset})


@pytest.mark.parametrize("split", ["train", "test"])
def test_rows_other_than_the_pinned_ones_are_refused(
    spec: ExperimentSpec, rows: Path, split: Split
) -> None:
    good = pinned(spec, rows)
    assert load_problems(good, split, rows).problems
    path = rows / f"{split}.jsonl"
    path.write_text(path.read_text().replace(" plus ", " and ", 1))
    with pytest.raises(DocumentError, match=rf"{split} rows of offline/small are not the pinned"):
        load_problems(good, split, rows)


def test_the_hub_is_asked_for_the_pinned_revision(
    spec: ExperimentSpec, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def hub(*_: str, split: str, revision: str | None, **__: str) -> Dataset:
        asked.append(revision)
        lines = (rows / f"{split}.jsonl").read_text().splitlines()
        return Dataset.from_list([json.loads(line) for line in lines])

    monkeypatch.setattr(harness.problems, "load_dataset", hub)
    dataset = spec.dataset.model_copy(update={"revision": "abc123"})
    loaded = load_problems(spec.model_copy(update={"dataset": dataset}), "train", None)
    assert asked == ["abc123"]
    assert "revision abc123" in loaded.source


def test_gsm8k_has_a_known_revision_and_other_rows_under_its_name_are_refused(
    spec: ExperimentSpec, rows: Path
) -> None:
    dataset = spec.dataset.model_copy(update={"hf_path": "openai/gsm8k"})
    pin = pin_of(dataset)
    assert pin is not None
    assert pin.revision is not None
    assert len(pin.revision) == 40
    with pytest.raises(DocumentError, match="rows of openai/gsm8k are not the pinned ones"):
        load_problems(spec.model_copy(update={"dataset": dataset}), "train", rows)


def test_another_revision_does_not_inherit_the_known_digests(spec: ExperimentSpec) -> None:
    update = {"hf_path": "openai/gsm8k", "revision": "f" * 40}
    pin = pin_of(spec.dataset.model_copy(update=update))
    assert pin is not None
    assert (pin.revision, dict(pin.rows_sha256)) == ("f" * 40, {})
