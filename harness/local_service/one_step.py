"""One-step sums for a small pretrained model, in GSM8K's row format.

Plus, minus and times of small whole numbers in a few wordings. Each question ends by showing a
boxed answer: without it the model of ``specs/smollm.json`` almost never draws a box at
first, and a group whose rewards are all equal teaches nothing. Questions are distinct as text; the
same two numbers may come back in another wording.

Only ``random.Random.random`` is drawn from, as in :mod:`harness.local_service.task`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from harness.local_service.task import Row, Split, apply, split_of

ONE_STEP_SIZES: dict[str, int] = {"train": 1536, "test": 128}
"""Rows of each split: 20 steps of 64 prompts fit into train."""

HOW_TO_ANSWER = " Say: The answer is \\boxed{9}, with the right number."


@dataclass(frozen=True)
class Kind:
    """One operator: its wordings and the inclusive range of both numbers."""

    operator: str
    wordings: tuple[str, ...]
    low: int
    high: int


KINDS = (
    Kind(
        "+",
        ("What is {a} + {b}?", "What is {a} plus {b}?", "Add {a} and {b}.", "Find {a} + {b}."),
        2,
        20,
    ),
    Kind(
        "-",
        ("What is {a} - {b}?", "What is {a} minus {b}?", "Take {b} from {a}.", "Find {a} - {b}."),
        2,
        20,
    ),
    Kind(
        "*",
        ("What is {a} * {b}?", "What is {a} times {b}?", "Multiply {a} by {b}.", "Find {a} * {b}."),
        2,
        9,
    ),
)


def one_step_rows(split: Split, seed: int) -> list[Row]:
    """Return one split's rows: 1536 of train or 128 of test.

    Both come from one stream of distinct questions, test first, which keeps them disjoint.

    Raises:
        UsageError: for a split that does not exist.
    """
    return split_of(_distinct_rows(seed), split, ONE_STEP_SIZES, "one-step")


def _distinct_rows(seed: int) -> Iterator[Row]:
    rng, seen = random.Random(seed), set[str]()
    while True:
        row = _draw(rng)
        if row is not None and row["question"] not in seen:
            seen.add(row["question"])
            yield row


def _draw(rng: random.Random) -> Row | None:
    """Draw a row, or None where the result would be negative."""
    kind = KINDS[int(rng.random() * len(KINDS))]
    wording = kind.wordings[int(rng.random() * len(kind.wordings))]
    a, b = (kind.low + int(rng.random() * (kind.high - kind.low + 1)) for _ in range(2))
    result = apply(kind.operator, a, b)
    if result is None or result < 0:
        return None
    question = wording.format(a=a, b=b) + HOW_TO_ANSWER
    return Row(question=question, answer=f"{a}{kind.operator}{b}={result}\n#### {result}")
