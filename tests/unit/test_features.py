"""Which checks a spec needs: true features win, what is not said is unknown (contract §9)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.features import CHECKS, FEATURES, check_applicability
from harness.spec import load_spec


def spec_with(features: dict[str, bool | None], required: bool | None) -> dict[str, Any]:
    stated = {name: value for name, value in features.items() if value is not None}
    section = {} if required is None else {"required": required}
    return {"experiment_features": stated, "generation_audit": section}


@pytest.mark.parametrize(
    ("first", "second", "required"), list(itertools.product((True, False, None), repeat=3))
)
def test_every_combination_of_two_features_and_a_switch(
    first: bool | None, second: bool | None, required: bool | None
) -> None:
    spec = spec_with({"generated_training_data": first, "learned_generator": second}, required)
    found = check_applicability(spec, "generation_audit")
    anything_true = first is True or second is True or required is True
    both_denied = first is False and second is False
    expected = "required" if anything_true else "not_applicable" if both_denied else "unknown"
    assert found == expected, f"{spec}: expected {expected}, found {found}"


def test_a_true_feature_overrides_a_stale_switch() -> None:
    spec = spec_with({"generated_training_data": True, "learned_generator": False}, required=False)
    assert check_applicability(spec, "generation_audit") == "required"


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize(
    ("stated", "expected"), [(True, "required"), (False, "not_applicable"), (None, "unknown")]
)
def test_a_feature_answers_for_itself(name: str, stated: bool | None, expected: str) -> None:
    assert check_applicability({"experiment_features": {name: stated}}, name) == expected


@pytest.mark.parametrize("vague", ["true", "false", "", 0, 1, None, [], {"value": True}])
def test_what_is_not_a_boolean_says_nothing(vague: Any) -> None:
    spec = {"experiment_features": {"custom_loss": vague, "custom_optimizer": False}}
    assert check_applicability(spec, "correctness_preflight") == "unknown"
    assert check_applicability({"feasibility_required": vague}, "feasibility") == "unknown"


@pytest.mark.parametrize("broken", [None, [], "text", 3])
@pytest.mark.parametrize("name", sorted(CHECKS))
def test_a_broken_or_empty_spec_leaves_every_check_unknown(name: str, broken: Any) -> None:
    spec = {"experiment_features": broken, "generation_audit": broken, "activation_gate": broken}
    assert check_applicability(spec, name) == "unknown"
    assert check_applicability({}, name) == "unknown"


@pytest.mark.parametrize("feature", ["paired_training_arms", "checkpoint_restore"])
def test_restoration_is_needed_by_either_of_its_features(feature: str) -> None:
    denied = {"paired_training_arms": False, "checkpoint_restore": False}
    stale = {"applicable": False}
    spec = {"experiment_features": denied | {feature: True}, "restoration_preflight": stale}
    assert check_applicability(spec, "restoration_preflight") == "required"
    spec["experiment_features"] = denied
    assert check_applicability(spec, "restoration_preflight") == "not_applicable"


@pytest.mark.parametrize("name", ["local", "exp_6ba12d6b47"])
def test_the_typed_spec_and_its_raw_document_agree(name: str) -> None:
    loaded = load_spec(Path(__file__).parents[2] / "specs" / f"{name}.json")
    typed = {check: check_applicability(loaded.spec, check) for check in CHECKS}
    raw = {check: check_applicability(loaded.raw, check) for check in CHECKS}
    assert typed == raw
    assert typed["generation_audit"] == "not_applicable"
    assert typed["correctness_preflight"] == "required"
    assert typed["restoration_preflight"] == "required"


@pytest.mark.parametrize("name", ["", "generation-audit", "Generation_Audit", "required"])
def test_a_name_nobody_answers_for_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no check or feature"):
        check_applicability({}, name)
