"""Adaptive selection: what a decision must show when the treatment was picked by looking at data.

Contract §8: with the feature ``adaptive_selection`` the rows are confirmation items only and
``decision.selection.frozen_before_confirmation`` is true; a selection of kind ``weight_edit`` also
reports ``budgets: {arm: {values_touched, proposals}}`` for the selected and the control arm. The
plan's items are the confirmation items, so rows of any other item already count as extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.completeness import Defect
from harness.decision_rule import Arms

WEIGHT_EDIT = "weight_edit"
_BUDGET_FIELDS = {"values_touched", "proposals"}


def selection_defects(
    document: Mapping[str, Any], *, adaptive_selection: bool | None, arms: Arms
) -> tuple[Defect, ...]:
    """Return what the decision document leaves unproven about its selection.

    Args:
        document: the decision document.
        adaptive_selection: the spec's feature; None (unknown) asks for the same proof as True,
            because a missing feature is never false.
        arms: the selected arm (treatment) and its random control (baseline).
    """
    if adaptive_selection is False:
        return ()
    problems = _problems(document.get("selection"), arms)
    return (Defect("selection", len(problems), tuple(problems)),) if problems else ()


def _problems(selection: object, arms: Arms) -> list[str]:
    if not isinstance(selection, Mapping):
        return ["decision.selection is missing; adaptive_selection is not known to be false"]
    problems: list[str] = []
    frozen = selection.get("frozen_before_confirmation")
    if frozen is not True:
        problems.append(f"selection.frozen_before_confirmation must be true, found {frozen!r}")
    if selection.get("kind") == WEIGHT_EDIT:
        problems += _budget_problems(selection.get("budgets"), arms)
    return problems


def _budget_problems(budgets: object, arms: Arms) -> list[str]:
    if not isinstance(budgets, Mapping):
        return ["selection.budgets is missing for a weight_edit"]
    return [
        f"selection.budgets[{arm!r}] must be {{values_touched, proposals}}, whole numbers >= 0, "
        f"found {budgets.get(arm)!r}"
        for arm in (arms.treatment, arms.baseline)
        if not _is_budget(budgets.get(arm))
    ]


def _is_budget(budget: object) -> bool:
    if not isinstance(budget, Mapping) or set(budget) != _BUDGET_FIELDS:
        return False
    return all(type(count) is int and count >= 0 for count in budget.values())
