"""The quick verdict on plain integers is the cookbook grader's own."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest
from tinker_cookbook.recipes.math_rl.math_env import safe_grade

from harness import training_grader
from harness.training_grader import training_grader_correct


def numeral(rng: random.Random) -> str:
    """Return digits of any length up to 17, now and then with a leading zero or a sign."""
    digits = str(rng.randrange(10 ** rng.randint(1, 17)))
    return rng.choice(["", "", "", "", "0", "-"]) + digits


def test_integers_are_graded_as_the_cookbook_grades_them() -> None:
    rng = random.Random(3)
    for _ in range(150):
        given = numeral(rng)
        # A neighbour differs in the last digit alone: what rounding would call equal.
        gold = rng.choice([numeral(rng), str(int(given) + 1), str(abs(int(given))), given])
        found = training_grader_correct(f"so \\boxed{{{given}}}", gold)
        assert found == bool(safe_grade(given, gold)), f"{given} against {gold}: {found}"


@pytest.mark.parametrize(("given", "gold"), [("18", "19"), ("0", "7"), ("5", "5")])
def test_plain_integers_need_no_thread(given: str, gold: str) -> None:
    with patch.object(training_grader, "safe_grade", side_effect=AssertionError("asked")):
        assert training_grader_correct(f"\\boxed{{{given}}}", gold) is (given == gold)


@pytest.mark.parametrize(
    ("given", "gold", "correct"),
    [("007", "7", True), ("1,000", "1000", True), ("18.0", "18", True), ("2/4", "1/2", False)],
)
def test_other_forms_are_the_cookbooks_business(given: str, gold: str, correct: bool) -> None:
    assert training_grader_correct(f"\\boxed{{{given}}}", gold) is correct
