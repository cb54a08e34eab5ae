"""One-step sums for a small pretrained model, in GSM8K's row format.

Plus and minus of two digits. Each question shows two boxed equations, one right and one whose
result is far too large. Without such a pattern the model of ``specs/smollm.json`` hardly ever draws
a box at first, and where all rewards of a group are equal nothing is taught; and behind
``\\boxed{`` it copies, it does not calculate. So an answer that repeats either equation is right
half the time, and one that always takes the shorter number is right every time: the task shows that
a real model learns from its rewards, not that it learns to calculate. Questions are distinct
as text; the same two numbers may come back in another wording.

Only ``random.Random.random`` is drawn from, as in :mod:`harness.local_service.task`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from harness.local_service.task import Row, Split, apply, between, pick, split_of

ONE_STEP_SIZES: dict[str, int] = {"train": 1536, "test": 128}
"""Rows of each split: 20 steps of 64 prompts fit into train."""

OPERATORS = ("+", "-")
LARGEST_NUMBER = 9
WORDINGS = (
    "Say what is right: {first} or {second}",
    "Say which is right: {first} or {second}",
    "Tell what is right: {first} or {second}",
    "Pick what is right: {first} or {second}",
)
WRONG_FROM, WRONG_TO = 100, 999
"""The wrong equation's result, both ends included."""


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
    operator, wording = pick(rng, OPERATORS), pick(rng, WORDINGS)
    a, b = between(rng, 1, LARGEST_NUMBER), between(rng, 1, LARGEST_NUMBER)
    wrong = between(rng, WRONG_FROM, WRONG_TO)
    right_comes_first = rng.random() < 0.5
    result = apply(operator, a, b)
    if result is None or result < 0:
        return None
    shown = [f"{a} {operator} {b} = \\boxed{{{number}}}" for number in (wrong, result)]
    question = wording.format(first=shown[right_comes_first], second=shown[not right_comes_first])
    return Row(question=question, answer=f"{a}{operator}{b}={result}\n#### {result}")
