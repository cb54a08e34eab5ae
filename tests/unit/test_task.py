"""The embedded task's rows: GSM8K's format, right working, and two disjoint splits."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tinker_cookbook.recipes.math_rl.math_env import extract_gsm8k_final_answer

from harness.digest import sha256_json
from harness.errors import UsageError
from harness.local_service.task import (
    Problem,
    apply,
    distinct_problems,
    folded_text,
    generate_problems,
    generate_rows,
)
from harness.local_service.task_templates import PROBLEM_KINDS

TRAIN = generate_problems("train", 0)
TEST = generate_problems("test", 0)

# Written from the wordings, not from the steps of the templates.
ANSWERS: dict[str, Callable[..., Any]] = {
    "gain": lambda a, b: a + b,
    "loss": lambda a, b: a - b,
    "groups": lambda a, b: a * b,
    "share": lambda a, b: a / b,
    "bus": lambda a, b, c: a - b + c,
    "stock": lambda a, b, c: a * b + c,
    "broken": lambda a, b, c: a * b - c,
    "change": lambda a, b, c: c - a * b,
    "times_as_many": lambda a, b: a + a * b,
    "more_than": lambda a, b: a + (a + b),
    "wages": lambda a, b, c: a * (b + c),
    "pool": lambda a, b, c: (a + b) / c,
    "after_spending": lambda a, b, c: (a - b) / c,
    "two_products": lambda a, b, c, d: a * b + c * d,
    "reading": lambda a, b, c, d: a - (b * c + d),
    "half": lambda a: a * 1.5,
}


def _numbers(problem: Problem) -> tuple[int, dict[str, int]]:
    """Return which wording the question follows, and the numbers in its slots."""
    kind = next(kind for kind in PROBLEM_KINDS if kind.name == problem.kind)
    for place, wording in enumerate(kind.wordings):
        seen: set[str] = set()
        pattern = ""
        for part in re.split(r"(\{\w+\})", wording):
            slot = part.strip("{}") if part.startswith("{") else ""
            fresh = len(slot) == 1 and slot not in seen
            seen.add(slot)
            pattern += (
                rf"(?P<{slot}>\d+)" if fresh else "[A-Za-z]+" if len(slot) > 1 else re.escape(part)
            )
        if match := re.fullmatch(pattern, problem.question):
            return place, {slot: int(value) for slot, value in match.groupdict().items()}
    raise AssertionError(f"no wording of {kind.name} gives {problem.question!r}")


def test_splits_have_gsm8ks_sizes() -> None:
    assert {split: len(generate_rows(split, 3)) for split in ("train", "test")} == {
        "train": 7473,
        "test": 1319,
    }


def test_rows_are_the_same_on_every_platform_and_release() -> None:
    """Regression lock: the shipped model's figures hold for exactly these rows."""
    rows = {"train": generate_rows("train", 0), "test": generate_rows("test", 0)}
    digests = {split: sha256_json(split_rows)[:16] for split, split_rows in rows.items()}
    assert digests == {"train": "de636c38a2682c3f", "test": "95d7a1df442d69c0"}


def test_another_seed_gives_other_rows() -> None:
    first, second = generate_rows("test", 1), generate_rows("test", 2)
    same = {row["question"] for row in first} & {row["question"] for row in second}
    assert len(same) < len(first) / 10, f"{len(same)} of {len(first)} questions are shared"


@pytest.mark.parametrize("seed", [0, 7])
def test_no_question_occurs_twice_within_or_across_splits(seed: int) -> None:
    rows = [*generate_rows("train", seed), *generate_rows("test", seed)]
    folded = Counter(
        re.sub(r"\s+", " ", unicodedata.normalize("NFKC", row["question"]).casefold()).strip()
        for row in rows
    )
    assert [text for text, count in folded.items() if count > 1] == []


def test_working_lines_are_true_and_end_in_the_gold_answer() -> None:
    for problem in TRAIN + TEST:
        *lines, final = problem.row()["answer"].split("\n")
        result = "no working"
        for line in lines:
            match = re.fullmatch(r"(\d+)([-+*/])(\d+)=(\d+) [a-z]+", line)
            assert match, f"{line!r} is no line of working in {problem.row()}"
            left, operator, right, result = match.groups()
            value = {
                "+": int(left) + int(right),
                "-": int(left) - int(right),
                "*": int(left) * int(right),
                "/": int(left) / int(right),
            }[operator]
            assert value == int(result), f"{line!r}: computed {value}"
        assert final == f"#### {result}", f"{final!r} after {lines[-1]!r}"


def test_answers_follow_from_the_question_alone() -> None:
    for problem in TRAIN[:3000] + TEST:
        _, numbers = _numbers(problem)
        expected = ANSWERS[problem.kind](**numbers)
        assert problem.gold == expected, f"{problem.question!r}: {problem.gold} for {expected}"


def test_every_wording_of_every_kind_is_in_the_test_split() -> None:
    used = Counter((problem.kind, _numbers(problem)[0]) for problem in TEST)
    wanted = {(kind.name, place) for kind in PROBLEM_KINDS for place in range(len(kind.wordings))}
    assert set(used) == wanted
    assert min(used.values()) >= 10, f"rarest wording occurs {min(used.values())} times of 1319"


def test_problems_take_one_two_and_three_steps_and_reach_past_100() -> None:
    steps = Counter(len(problem.steps) for problem in TEST)
    assert min(steps[1], steps[2], steps[3]) > 100, f"steps: {steps}"
    large = sum(problem.gold > 100 for problem in TEST)
    assert large > 100, f"{large} of 1319 answers are above 100"


def test_cookbook_reads_the_same_gold_answer() -> None:
    for problem in TEST:
        read = extract_gsm8k_final_answer(problem.row()["answer"])
        assert read == str(problem.gold), f"cookbook read {read!r} for {problem.gold}"


def test_excluded_questions_never_come() -> None:
    first = next(distinct_problems(5))
    excluded = frozenset({folded_text(first.question)})
    second = next(distinct_problems(5, excluded))
    assert folded_text(second.question) not in excluded


def test_folding_ignores_case_width_and_white_space() -> None:
    assert folded_text(" Ａnna\thas\n 2  ") == folded_text("anna has 2")
    assert folded_text("anna has 2") != folded_text("anna has 3")


def test_unknown_split_is_refused_by_name() -> None:
    split: Any = "validation"
    with pytest.raises(UsageError, match=r"train or test.*'validation'"):
        generate_rows(split, 0)


def test_inexact_division_has_no_result_and_unknown_operators_are_refused() -> None:
    assert (apply("/", 12, 4), apply("/", 13, 4), apply("/", 1, 0)) == (3, None, None)
    with pytest.raises(UsageError, match=r"\+ - \* /"):
        apply("%", 4, 2)
