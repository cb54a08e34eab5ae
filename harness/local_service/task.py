"""The embedded task: generated grade-school word problems in GSM8K's row format (issue 2, part 4).

A row is ``{question, answer}``: the answer holds one line of working a step and ends with
``#### N``, N an integer of at least 2. Train has 7473 rows and test 1319, as GSM8K does; no
two questions of either split are equal after NFKC, case folding and white-space folding.

Only ``random.Random.random`` is drawn from, the one method whose sequence Python promises to
keep for a seed, so the rows are the same on every platform.
"""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypedDict, TypeVar

from harness.errors import UsageError
from harness.local_service.task_templates import (
    HOLDERS,
    NAMES,
    PROBLEM_KINDS,
    THINGS,
    Kind,
    Step,
)

Split = Literal["train", "test"]
SPLIT_SIZES: dict[str, int] = {"train": 7473, "test": 1319}
TASK_SEED = 0
"""The seed of the rows that the shipped model has never seen and that specs/local.json uses."""
SMALLEST_RESULT = 2
"""No step yields 0 or 1: the wordings are plural."""
LARGEST_RESULT = 299
"""Large enough for carries into the hundreds, small enough for a 0.15 M-parameter model."""

_Choice = TypeVar("_Choice")
_Drawn = TypeVar("_Drawn")


class Row(TypedDict):
    """One line of a split, with GSM8K's two fields."""

    question: str
    answer: str


@dataclass(frozen=True)
class WorkedStep:
    """One solved step: the equation ``left operator right = result`` and its unit."""

    left: int
    operator: str
    right: int
    result: int
    unit: str

    @property
    def equation(self) -> str:
        """The step as ``3*4=12``."""
        return f"{self.left}{self.operator}{self.right}={self.result}"


@dataclass(frozen=True)
class Problem:
    """One drawn problem with its solution."""

    kind: str
    question: str
    steps: tuple[WorkedStep, ...]

    @property
    def gold(self) -> int:
        """The integer after ``####``."""
        return self.steps[-1].result

    def row(self) -> Row:
        """Return the problem as a GSM8K row."""
        lines = [f"{step.equation} {step.unit}" for step in self.steps]
        return Row(question=self.question, answer="\n".join([*lines, f"#### {self.gold}"]))


def generate_rows(split: Split, seed: int) -> list[Row]:
    """Return one split's rows: 7473 of train or 1319 of test.

    Raises:
        UsageError: for a split that does not exist.
    """
    return [problem.row() for problem in generate_problems(split, seed)]


def generate_problems(split: Split, seed: int) -> list[Problem]:
    """Return one split's problems in row order, each with its kind and solved steps.

    Both splits come from one stream of distinct questions: test takes the first 1319, train
    the next 7473, which is what keeps them disjoint.

    Raises:
        UsageError: for a split that does not exist.
    """
    return split_of(distinct_problems(seed), split, SPLIT_SIZES, "embedded")


def split_of(
    stream: Iterator[_Drawn], split: str, sizes: Mapping[str, int], task: str
) -> list[_Drawn]:
    """Take one split from a stream of distinct rows: test comes first, so the two are disjoint.

    Raises:
        UsageError: for a split that does not exist.
    """
    if split not in sizes:
        raise UsageError(
            f"the {task} task has no such split",
            expected=" or ".join(sizes),
            found=repr(split),
            where=f"the rows of the {task} task",
            fix="ask for one of the two",
        )
    test = list(islice(stream, sizes["test"]))
    return test if split == "test" else list(islice(stream, sizes["train"]))


def distinct_problems(seed: int, exclude: frozenset[str] = frozenset()) -> Iterator[Problem]:
    """Yield problems without end, no question twice and none whose folded text is excluded."""
    rng = random.Random(seed)
    seen = set(exclude)
    while True:
        problem = draw_problem(rng)
        folded = folded_text(problem.question)
        if folded not in seen:
            seen.add(folded)
            yield problem


def folded_text(text: str) -> str:
    """Return the form in which two questions count as equal (contract §9)."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def draw_problem(rng: random.Random) -> Problem:
    """Draw a kind, its wording, its words and its numbers, each uniformly."""
    kind = pick(rng, PROBLEM_KINDS)
    wording = pick(rng, kind.wordings)
    words = _draw_words(rng)
    numbers, results = _draw_numbers(rng, kind)
    question = wording.format(**words, **numbers)
    values = numbers | {f"r{place}": result for place, result in enumerate(results, 1)}
    steps = [
        WorkedStep(values[s.left], s.operator, values[s.right], result, s.unit.format(**words))
        for s, result in zip(kind.steps, results, strict=True)
    ]
    return Problem(kind.name, question, tuple(steps))


def _draw_words(rng: random.Random) -> dict[str, str]:
    name = pick(rng, NAMES)
    holders, holder = pick(rng, HOLDERS)
    return {
        "name": name,
        "other": pick(rng, [other for other in NAMES if other != name]),
        "things": pick(rng, THINGS),
        "holders": holders,
        "holder": holder,
    }


def _draw_numbers(rng: random.Random, kind: Kind) -> tuple[dict[str, int], list[int]]:
    """Draw until every step has an exact result in range; return numbers and results."""
    while True:
        numbers = {key: between(rng, *limits) for key, limits in kind.ranges.items()}
        results = _solve(kind.steps, numbers)
        if results is not None:
            return numbers, results


def _solve(steps: Sequence[Step], numbers: dict[str, int]) -> list[int] | None:
    """Return each step's result, or None where one is inexact or out of range."""
    values = dict(numbers)
    results: list[int] = []
    for place, step in enumerate(steps, 1):
        result = apply(step.operator, values[step.left], values[step.right])
        if result is None or not SMALLEST_RESULT <= result <= LARGEST_RESULT:
            return None
        values[f"r{place}"] = result
        results.append(result)
    return results


def apply(operator: str, left: int, right: int) -> int | None:
    """Return ``left operator right`` where it is an integer, else None.

    Raises:
        UsageError: for an operator other than ``+ - * /``.
    """
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return None if right == 0 or left % right else left // right
        case _:
            raise UsageError(
                "a step has an unknown operator", expected="+ - * /", found=repr(operator)
            )


def pick(rng: random.Random, choices: Sequence[_Choice]) -> _Choice:
    """Draw one of the choices, each as likely as another."""
    return choices[int(rng.random() * len(choices))]


def between(rng: random.Random, low: int, high: int) -> int:
    """Draw a whole number from ``low`` to ``high``, both included."""
    return low + int(rng.random() * (high - low + 1))
