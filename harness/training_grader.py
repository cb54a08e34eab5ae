"""The training reward's own grader on evaluation texts: where it and the evaluation part ways.

Arms are trained on the cookbook's verdict (a ``\\boxed{}`` answer compared by sympy) and scored by
the strict parser of :mod:`harness.answers` (design §3.11). An item on which the two disagree says
that training pushed towards something else than what is scored; it is counted and listed, and it
changes no value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tinker_cookbook.recipes.math_rl.math_env import safe_grade
from tinker_cookbook.recipes.math_rl.math_grading import extract_boxed

FIELD = "training_grader_correct"
_PLAIN_INTEGER = re.compile(r"0|[1-9][0-9]{0,14}")
"""Written in one way only and exact in float64: two that differ are different numbers."""


def training_grader_correct(text: str, gold: str) -> bool:
    """Return what the cookbook's reward would call the answer, as its environment does.

    Args:
        text: the completion; only its ``\\boxed{}`` counts.
        gold: the reference answer.
    """
    try:
        answer = extract_boxed(text)
    except ValueError:
        return False
    # The grader's own verdict on most answers, without sympy and a thread for its alarm.
    if answer == gold:
        return True
    if _PLAIN_INTEGER.fullmatch(answer) and _PLAIN_INTEGER.fullmatch(gold):
        return False
    return bool(safe_grade(answer, gold))


def grader_disagreements(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return how many rows carry both verdicts, and the items on which they differ.

    Args:
        rows: arm, or the base model → its prediction rows.

    Returns:
        ``compared``, a count, and ``items``, a list of ids for each arm. Rows without the training
        grader's verdict are not compared.
    """
    both = {arm: [row for row in found if FIELD in row] for arm, found in rows.items()}
    return {
        "compared": sum(map(len, both.values())),
        "items": {
            arm: [row["item_id"] for row in found if row[FIELD] != (row["value"] == 1.0)]
            for arm, found in both.items()
        },
    }
