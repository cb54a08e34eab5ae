"""Which generated tasks are audited, and which of them the test set already holds (contract §9).

Both answers follow from frozen rows alone, so a stranger gets the same ones.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from harness.digest import sha256_json
from harness.errors import UsageError
from harness.generation_report import ItemId

Row = TypeVar("Row", bound=Mapping[str, Any])


def select_sample(tasks: Iterable[Row], size: int, seed: int | str) -> list[Row]:
    """Return the tasks to audit: the first ``size`` accepted ones in digest order.

    Args:
        tasks: rows with an ``item_id``, in any order; rows whose disposition is rejected or
            execution_error are not trained on and never audited.
        size: how many; where there are fewer, all of them.
        seed: enters the order, which is by SHA-256 of the canonical JSON ``[seed, item_id]``.

    Raises:
        UsageError: for a negative size.
    """
    if size < 0:
        raise UsageError("a sample size is negative", expected="0 or more", found=str(size))
    eligible = [task for task in tasks if is_trained_on(task)]
    return sorted(eligible, key=lambda task: sha256_json([seed, task["item_id"]]))[:size]


def evaluation_overlap(
    tasks: Iterable[Mapping[str, Any]], evaluation: Iterable[Mapping[str, Any]]
) -> list[ItemId]:
    """Return the ids of accepted tasks whose prompt is also an evaluation prompt, in order.

    Two prompts are the same when they are equal after NFKC, case folding and folding of white
    space to single spaces, none at the ends.
    """
    held_out = {folded_prompt(row["prompt"]) for row in evaluation}
    return [
        task["item_id"]
        for task in tasks
        if is_trained_on(task) and folded_prompt(task["prompt"]) in held_out
    ]


def folded_prompt(prompt: str) -> str:
    """Return a prompt's form for comparison (contract §9)."""
    return " ".join(unicodedata.normalize("NFKC", prompt).casefold().split())


def is_trained_on(task: Mapping[str, Any]) -> bool:
    """Return whether a task was accepted; a row that does not say so is one of accepted tasks."""
    return task.get("disposition", "accepted") == "accepted"
