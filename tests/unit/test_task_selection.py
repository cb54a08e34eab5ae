"""Which tasks are audited and which overlap the test set, against references (contract §9)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from generated_tasks import TASKS, reference_order, task
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.generation_audit import evaluation_overlap, select_sample

PROPERTY = settings(derandomize=True, deadline=None, max_examples=200)


@PROPERTY
@given(
    st.one_of(st.integers(), st.text(max_size=5)),
    st.lists(st.text(max_size=6), unique=True, max_size=12),
    st.integers(0, 14),
    st.randoms(use_true_random=False),
)
def test_the_sample_is_the_start_of_the_digest_order_whatever_the_row_order(
    seed: int | str, ids: list[str], size: int, shuffler: Any
) -> None:
    rows = [{"item_id": item, "disposition": "accepted"} for item in ids]
    shuffler.shuffle(rows)
    found = [row["item_id"] for row in select_sample(rows, size, seed)]
    assert found == reference_order(seed, ids)[:size]


def test_the_order_is_by_the_contract_s_own_digest() -> None:
    # printf '[7,"t0"]' | sha256sum, and so on: the smallest of t0 to t7.
    text = b'[7,"t%d"]'
    first = min(range(8), key=lambda n: hashlib.sha256(text % n).hexdigest())
    assert select_sample(TASKS, 1, 7) == [TASKS[first]]


def test_only_accepted_tasks_are_sampled_and_never_more_than_there_are() -> None:
    ids = {row["item_id"] for row in select_sample(TASKS, 100, 0)}
    assert ids == {f"t{n}" for n in range(8)}
    with pytest.raises(UsageError, match="negative"):
        select_sample(TASKS, -1, 0)


@pytest.mark.parametrize(
    ("prompt", "same"),
    [
        ("What is  2\n+ 2 ?", True),
        ("\u3000ＷＨＡＴ is 2 + 2 ?\t", True),
        ("what IS 2 + 2 ?", True),
        ("What is 2 + 2?", False),
        ("What is 2 + 2 ? ", True),
        ("What is 2 + 3 ?", False),
    ],
)
def test_prompts_overlap_after_folding_and_only_then(prompt: str, same: bool) -> None:
    evaluation = [{"item_id": "e", "prompt": "What is 2 + 2 ?"}]
    tasks = [{"item_id": "t", "prompt": prompt, "disposition": "accepted"}]
    assert evaluation_overlap(tasks, evaluation) == (["t"] if same else [])


@pytest.mark.parametrize(("one", "other"), [("Straße", "STRASSE"), ("ﬁne", "FINE"), ("²", "2")])
def test_compatibility_forms_and_full_case_folding_count(one: str, other: str) -> None:
    assert evaluation_overlap([{"item_id": 1, "prompt": one}], [{"prompt": other}]) == [1]


def test_each_overlapping_task_is_named_and_rejected_ones_are_not() -> None:
    repeated = [task(1) | {"item_id": "again"}, *TASKS]
    held_out = [{"item_id": "e", "prompt": TASKS[n]["prompt"]} for n in (1, 8, 9)]
    assert evaluation_overlap(repeated, held_out) == ["again", "t1"]
