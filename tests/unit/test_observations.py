"""Rows of a decision: where they may come from, and what makes a comparison incomplete."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.completeness import EXAMPLES, Plan
from harness.decision import Decision, decide
from harness.decision_rule import Arms, Rule
from harness.digest import sha256_bytes
from harness.errors import DecisionError, DocumentError
from harness.observations import (
    MAX_FILE_BYTES,
    MAX_ROWS,
    Observation,
    parse_rows,
    read_observations,
)
from harness.selection import selection_defects

ARMS = Arms("new", "old")
ITEMS = ("a", "b", "c")
RULE = Rule.from_spec(
    {
        "version": 1,
        "estimand": "difference",
        "unit": "fixed_checkpoint_items",
        "seeds": [3, 4],
        "alpha": 0.05,
        "method": "paired_hoeffding",
        "criteria": [
            {
                "id": "primary",
                "metric": "accuracy",
                "weights": {"treatment": 1, "baseline": -1},
                "margin": 0.0,
                "bounds": [0, 1],
            }
        ],
    }
)
PLAN = Plan.of(RULE, ARMS, ITEMS, {"accuracy": "eval-1"})
ROWS = [
    Observation(item, arm, seed, "accuracy", 1, "eval-1")
    for arm in ("new", "old")
    for item in ITEMS
    for seed in (3, 4)
]
ROW: dict[str, Any] = {
    "item_id": "a",
    "arm": "new",
    "seed": 3,
    "metric": "accuracy",
    "value": 0.5,
    "evaluator_id": "eval-1",
}


def defects(decision: Decision) -> dict[str, int]:
    return {defect.kind: defect.count for defect in decision.defects}


def test_complete_rows_have_no_defect() -> None:
    decision = decide(RULE, ROWS, PLAN)
    assert decision.defects == ()
    assert decision.outcome_reason == "insufficient_evidence"


@pytest.mark.parametrize(
    ("damage", "kinds"),
    [
        (lambda rows: rows[1:], {"missing": 1}),
        (lambda rows: [], {"missing": 12}),  # noqa: ARG005
        (lambda rows: [*rows, rows[0]], {"duplicated": 1}),
        (lambda rows: [*rows, rows[0], rows[0]], {"duplicated": 2}),
        (lambda rows: [*rows, rows[0]._replace(item_id="d")], {"extra": 1}),
        (lambda rows: [*rows, rows[0]._replace(arm="base")], {"extra": 1}),
        (lambda rows: [*rows, rows[0]._replace(metric="format")], {"extra": 1}),
        (lambda rows: [rows[0]._replace(item_id="d"), *rows[1:]], {"extra": 1, "missing": 1}),
        (lambda rows: [rows[0]._replace(value=1.01), *rows[1:]], {"out_of_bounds": 1}),
        (lambda rows: [rows[0]._replace(value=-0.01), *rows[1:]], {"out_of_bounds": 1}),
        (lambda rows: [rows[0]._replace(value=10**400), *rows[1:]], {"out_of_bounds": 1}),
        (lambda rows: [rows[0]._replace(value=math.nan), *rows[1:]], {"non_finite": 1}),
        (lambda rows: [rows[0]._replace(value=math.inf), *rows[1:]], {"non_finite": 1}),
        (lambda rows: [rows[0]._replace(evaluator_id="eval-2"), *rows[1:]], {"other_evaluator": 1}),
        (
            lambda rows: [row._replace(evaluator_id="eval-2") for row in rows],
            {"other_evaluator": 12},
        ),
    ],
    ids=[
        "one missing",
        "all missing",
        "doubled",
        "tripled",
        "item not planned",
        "arm not compared",
        "metric not decided on",
        "item exchanged",
        "above the bounds",
        "below the bounds",
        "a huge integer",
        "NaN",
        "infinity",
        "one under another evaluator",
        "all under another evaluator",
    ],
)
def test_any_defect_makes_the_comparison_incomplete(
    damage: Callable[[list[Observation]], list[Observation]], kinds: dict[str, int]
) -> None:
    decision = decide(RULE, damage(ROWS), PLAN)
    assert (decision.verdict, decision.outcome_reason) == ("inconclusive", "incomplete_execution")
    assert decision.criteria == ()
    assert defects(decision) == kinds


def test_all_defects_are_counted_and_only_the_first_named() -> None:
    (missing,) = decide(RULE, [], PLAN).defects
    assert len(missing.examples) == EXAMPLES < missing.count == 12
    assert missing.examples[0] == "arm new, metric accuracy, item a, seed 3"


def test_a_seed_that_was_never_scheduled_is_refused() -> None:
    with pytest.raises(DecisionError, match=r"seeds \[5\]"):
        decide(RULE, [*ROWS, ROWS[0]._replace(seed=5)], PLAN)


@pytest.mark.parametrize(
    ("arms", "items", "evaluators"),
    [
        (Arms("new", "new"), ITEMS, {"accuracy": "e"}),
        (ARMS, (), {"accuracy": "e"}),
        (ARMS, ("a", "a"), {"accuracy": "e"}),
        (ARMS, ITEMS, {"format": "e"}),
    ],
)
def test_a_plan_that_is_none_is_refused(
    arms: Arms, items: tuple[str, ...], evaluators: dict[str, str]
) -> None:
    with pytest.raises(DecisionError, match="the plan of the decision"):
        Plan.of(RULE, arms, items, evaluators)


@pytest.mark.parametrize(
    "write",
    [
        lambda rows: "\n".join(json.dumps(row) for row in rows),
        lambda rows: "".join(json.dumps(row) + "\n" for row in rows),
        json.dumps,
        lambda rows: json.dumps(rows, indent=2),
        lambda rows: json.dumps({"observations": rows}),
        lambda rows: json.dumps({"observations": rows}, indent=2),
    ],
    ids=["lines", "ended lines", "array", "indented array", "object", "indented object"],
)
@pytest.mark.parametrize("count", [1, 3])
def test_every_form_of_file_reads_like_inline_rows(
    tmp_path: Path, write: Callable[[list[Any]], str], count: int
) -> None:
    rows = [ROW | {"item_id": f"item-{at}"} for at in range(count)]
    data = write(rows).encode()
    (tmp_path / "rows-1.data").write_bytes(data)
    reference = {"name": "rows-1.data", "sha256": sha256_bytes(data)}
    read = read_observations({"version": 1, "observations_file": reference}, tmp_path)
    assert read == read_observations({"version": 1, "observations": rows}, tmp_path)
    assert [row.item_id for row in read] == [row["item_id"] for row in rows]


@pytest.mark.parametrize(
    "document",
    [
        {"observations": []},
        {"version": 2, "observations": []},
        {"version": True, "observations": []},
        {"version": 1},
        {"version": 1, "observations": {}},
        {"version": 1, "observations_file": {"name": "../x", "sha256": "0" * 64}},
        {"version": 1, "observations_file": {"name": "a/x", "sha256": "0" * 64}},
        {"version": 1, "observations_file": {"name": "..", "sha256": "0" * 64}},
        {"version": 1, "observations_file": {"name": "x\n", "sha256": "0" * 64}},
        {"version": 1, "observations_file": {"name": "x", "sha256": "0" * 63}},
        {"version": 1, "observations_file": {"name": "x"}},
        {"version": 1, "observations_file": {"name": "absent", "sha256": "0" * 64}},
    ],
)
def test_a_document_without_one_good_source_is_refused(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    with pytest.raises(DocumentError):
        read_observations(document, tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"rows": []}', "wrong type|other fields"),
        (b'{"rows":\n []}', "another form"),
        (b'[{"item_id": NaN}]', "NaN"),
        (json.dumps(ROW).encode() + b"\n\n" + json.dumps(ROW).encode(), "line 2"),
        (b" " * (MAX_FILE_BYTES + 1), "too large"),
    ],
    ids=["other object", "pretty object", "NaN", "blank line", "size"],
)
def test_a_bad_file_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "rows").write_bytes(data)
    reference = {"name": "rows", "sha256": sha256_bytes(data)}
    with pytest.raises(DocumentError, match=message):
        read_observations({"version": 1, "observations_file": reference}, tmp_path)


def test_two_sources_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("[]")
    reference = {"name": "rows", "sha256": sha256_bytes(b"[]")}
    document = {"version": 1, "observations": [], "observations_file": reference}
    with pytest.raises(DocumentError, match="not both"):
        read_observations(document, tmp_path)


def test_changed_or_linked_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text(json.dumps([ROW]))
    (tmp_path / "link").symlink_to(tmp_path / "rows")
    digest = sha256_bytes((tmp_path / "rows").read_bytes())
    for reference, message in (
        ({"name": "rows", "sha256": "0" * 64}, "not the one"),
        ({"name": "link", "sha256": digest}, "symbolic link"),
    ):
        with pytest.raises(DocumentError, match=message):
            read_observations({"version": 1, "observations_file": reference}, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"value": "1"},
        {"value": True},
        {"value": None},
        {"seed": 3.0},
        {"seed": False},
        {"item_id": None},
        {"item_id": 1.5},
        {"arm": 1},
        {"evaluator_id": None},
        {"note": "an unknown field"},
    ],
)
def test_a_row_of_the_wrong_form_is_named(change: dict[str, Any]) -> None:
    with pytest.raises(DocumentError, match=r"rows\[1\]"):
        parse_rows([ROW, ROW | change], where="rows")


def test_too_many_rows_are_refused() -> None:
    with pytest.raises(DocumentError, match="too many"):
        parse_rows([ROW] * (MAX_ROWS + 1), where="rows")


BUDGETS = {arm: {"values_touched": 4, "proposals": 9} for arm in ("new", "old")}


@pytest.mark.parametrize(
    ("selection", "adaptive", "count"),
    [
        (None, False, 0),
        (None, True, 1),
        (None, None, 1),
        ({"frozen_before_confirmation": True}, True, 0),
        ({"frozen_before_confirmation": 1}, True, 1),
        ({"frozen_before_confirmation": False}, None, 1),
        ({"frozen_before_confirmation": True, "kind": "weight_edit"}, True, 1),
        ({"frozen_before_confirmation": True, "kind": "weight_edit", "budgets": BUDGETS}, True, 0),
        (
            {
                "frozen_before_confirmation": True,
                "kind": "weight_edit",
                "budgets": {"new": {"values_touched": 4, "proposals": -1}},
            },
            True,
            2,
        ),
    ],
)
def test_adaptive_selection_must_be_proven_frozen(
    selection: dict[str, Any] | None, adaptive: bool | None, count: int
) -> None:
    found = selection_defects({"selection": selection}, adaptive_selection=adaptive, arms=ARMS)
    assert sum(defect.count for defect in found) == count
    decision = decide(RULE, ROWS, PLAN, selection_defects=found)
    assert (decision.outcome_reason == "incomplete_execution") is bool(count)
