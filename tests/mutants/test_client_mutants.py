"""Every planted client-side defect must raise an alarm of the guard that is named beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import (
    client_mutants,
    evidence_mutants,
    mode_mutants,
    verdict_mutants,
    wiring_mutants,
)
from tests.mutants.client_guards import GUARDS
from tests.mutants.client_registry import CLIENT_MUTANTS

LISTS = (client_mutants, mode_mutants, wiring_mutants, verdict_mutants, evidence_mutants)


@pytest.mark.parametrize("guard", list(GUARDS))
def test_honest_code_raises_no_alarm(guard: str, tmp_path: Path) -> None:
    alarms = GUARDS[guard](tmp_path)
    assert alarms == [], f"false alarm of {guard}: {alarms}"


@pytest.mark.parametrize("name", list(CLIENT_MUTANTS))
def test_a_planted_defect_raises_an_alarm(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    record_property: Callable[[str, Any], None],
) -> None:
    planted = CLIENT_MUTANTS[name]
    about = {"name": name, "gate": planted.guard, "effect": planted.effect, "caught_by": []}
    record_property("mutant", about)
    with monkeypatch.context() as patch:
        planted.patch(patch)
        alarms = GUARDS[planted.guard](tmp_path)
    about["caught_by"] = alarms[:5]
    assert alarms, f"{name} survived {planted.guard}: no alarm ({planted.effect})"


def test_every_guard_has_a_defect_to_catch_and_every_list_is_registered() -> None:
    used = {planted.guard for planted in CLIENT_MUTANTS.values()}
    assert used == set(GUARDS), f"guards and defects differ: {used ^ set(GUARDS)}"
    modules = {planted.patch.__module__ for planted in CLIENT_MUTANTS.values()}
    assert modules == {module.__name__ for module in LISTS}
