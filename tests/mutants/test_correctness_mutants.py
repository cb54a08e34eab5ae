"""Planted defects on the way from rollouts to a gradient, and the comparison that must show each.

The offline gate's measuring function runs on every defect; the rows named with it must leave the
spec's tolerances, or the path must refuse the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tinker_cookbook.rl import data_processing, train

from harness.errors import ArmError, HarnessError
from harness.gates import parity
from harness.gates.parity_facts import parity_facts
from harness.gates.parity_measure import measure_parity
from harness.spec import LoadedSpec, load_spec
from tests.mutants import wire_mutants
from tests.mutants.path_mutants import MUTANTS

ROOT = Path(__file__).parents[2]


def small_spec() -> LoadedSpec:
    """The local spec with 16 rollouts a step, so that a measurement takes about a second."""
    loaded = load_spec(ROOT / "specs" / "local.json")
    sizes = {"grpo": {"group_size": 4, "groups_per_batch": 4}, "gs1": {"groups_per_batch": 16}}
    arms = tuple(arm.model_copy(update=sizes[arm.advantage_mode]) for arm in loaded.spec.arms)
    return replace(loaded, spec=loaded.spec.model_copy(update={"arms": arms}))


def failing_rows(folder: Path) -> set[str]:
    """Measure, and return the names of the error rows with a value outside its tolerance."""
    loaded = small_spec()
    facts = parity_facts(loaded, measure_parity(loaded.spec, folder), ROOT).failures()
    endings = ("max_abs_error", "cosine_similarity")
    return {fact.name.split()[0] for fact in facts if fact.name.split()[-1] in endings}


def test_the_clean_path_has_no_failing_row(tmp_path: Path) -> None:
    assert failing_rows(tmp_path) == set()


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_the_defect_leaves_the_tolerances(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    record_property: Callable[[str, Any], None],
) -> None:
    planted = MUTANTS[name]
    record_property(
        "mutant", {"name": name, "gate": "loss_gradient_parity", "effect": planted.effect}
    )
    with monkeypatch.context() as patch:
        planted.patch(patch)
        failing = failing_rows(tmp_path)
    survived = set(planted.rows) - failing
    assert not survived, (
        f"{name} ({planted.effect}): {sorted(survived)} stayed inside the spec's tolerances;"
        f" outside were {sorted(failing) or 'none'}"
    )


# --- defects that the path refuses ------------------------------------------------------------


@contextmanager
def bound_elsewhere(record: Any) -> Iterator[None]:
    """Bind the seam in the module that defines the stock function, where nobody looks for it."""
    honest = data_processing.compute_advantages
    data_processing.compute_advantages = record.seam
    try:
        yield
    finally:
        data_processing.compute_advantages = honest


def test_a_seam_in_the_wrong_module_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(parity, "recorded_training", bound_elsewhere)
    with pytest.raises(ArmError, match="exactly once"):
        failing_rows(tmp_path)


def test_groups_dropped_before_the_seam_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    honest = train.prepare_minibatch

    def fewer(builders_P: Any, groups_P: Any, *rest: Any) -> Any:
        return honest(builders_P[:-1], groups_P[:-1], *rest)

    monkeypatch.setattr(train, "prepare_minibatch", fewer)
    with pytest.raises(HarnessError, match="planned groups"):
        failing_rows(tmp_path)


def test_both_lists_of_defects_are_registered() -> None:
    assert wire_mutants.ratio_clipped.__name__ in MUTANTS
    assert len(MUTANTS) >= 30, f"{len(MUTANTS)} defects"
