"""Rules that span fields of a spec: each one broken alone, and the arm roles."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import SpecError
from harness.spec import parse_spec
from harness.spec_model import Criterion
from harness.spec_rules import resolve_roles

SAVED = Path(__file__).parents[2] / "specs" / "exp_6ba12d6b47.json"
CORRECTNESS = ("correctness_preflight", "paths", 0)
RESTORED = ("restoration_preflight", "groups", 0, "arms", 1)
CRITERION = ("decision_rule", "criteria", 0)


def saved() -> dict[str, Any]:
    return json.loads(SAVED.read_text())


def changed(*edits: tuple[tuple[str | int, ...], Any]) -> dict[str, Any]:
    document = saved()
    for keys, value in edits:
        target: Any = document
        for key in keys[:-1]:
            target = target[key]
        target[keys[-1]] = value
    return document


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as caught:
        parse_spec(document, where="trial.json")
    return str(caught.value)


@pytest.mark.parametrize(
    ("keys", "value", "path", "allowed"),
    [
        (("arms", 0, "group_size"), 4, "arms[0].group_size", "must equal batch_size 64"),
        (("batch_size",), 63, "arms[1].group_size", "must equal batch_size 63"),
        (("arms", 1, "name"), "grpo_gs8_seed0", "arms[1].name", "a name of its own"),
        (("arms", 1, "advantage_mode"), "gs2", "arms[1].advantage_mode", "'grpo_std', 'gs1'"),
        (("arms", 0, "group_size"), 1, "arms[0].group_size", "2 or more"),
        (("arms", 1, "advantage_mode"), "rloo", "arms[1].group_size", "another rollout of the"),
        (("arms", 1, "advantage_mode"), "james_stein", "arms[1].group_size", "2 or more"),
        (("arms", 0, "advantage_mode"), "gs1", "arms[0].group_size", "one rollout a prompt"),
        (("arms", 1, "tau"), None, "arms[1].tau", "a number > 0"),
        (("arms", 1, "similarity"), None, "arms[1].similarity", "tfidf_prompt_cosine"),
        (("arms", 1, "similarity"), "bm25", "arms[1].similarity", "tfidf_prompt_cosine"),
        (("arms", 0, "seed"), 1, "arms[0].seed", "decision_rule.seeds [0]"),
        (("arms", 1, "lr"), 5e-5, "arms[1].lr", "optimizer.lr 4e-05"),
        (("arms", 1, "steps"), 41, "arms[1].steps", "must equal steps 40"),
        (("dataset", "n_examples"), 2559, "arms[1].steps", "dataset.n_examples 2559"),
        (("activation_gate", "checks"), [], "activation_gate.checks", "at least one check"),
        (("activation_gate", "checks", 2, "min"), 41, "activation_gate.checks[2].min", "max 40"),
        (("activation_gate", "checks", 3, "min"), None, "activation_gate.checks[3]", "cannot fail"),
        (("activation_gate", "checks", 5, "one_of"), [], "activation_gate.checks[5]", "one_of"),
        (
            ("activation_gate", "checks", 1, "metric"),
            "gs1_executed_group_size",
            "activation_gate.checks[1].metric",
            "each metric once",
        ),
        ((*RESTORED, "name"), "gs9", "restoration_preflight.groups[0].arms[1].name", "gs1_seed0"),
        (
            (*RESTORED, "name"),
            "grpo_gs8_seed0",
            "restoration_preflight.groups[0].arms[1].name",
            "in one group only",
        ),
        (("restoration_preflight", "groups"), [], "restoration_preflight.groups", "a group"),
        ((*RESTORED, "optimizer_config", "learning_rate"), 1e-4, "learning_rate", "optimizer.lr"),
        ((*RESTORED, "optimizer_config", "lora_rank"), 8, "lora_rank", "must equal lora_rank 32"),
        ((*RESTORED, "optimizer_config", "beta1"), 0.8, "beta1", "execution.optimizer.beta1"),
        ((*RESTORED, "optimizer_config", "beta2"), 0.99, "beta2", "execution.optimizer.beta2"),
        ((*RESTORED, "optimizer_config", "eps"), 1e-12, "eps", "execution.optimizer.eps"),
        (("correctness_preflight", "paths"), [], "correctness_preflight.paths", "a path"),
        (
            (*CORRECTNESS, "tolerances", "baseline_gradient"),
            None,
            "correctness_preflight.paths[0].tolerances.baseline_gradient",
            "{atol, rtol}",
        ),
        (
            (*CORRECTNESS, "kind"),
            "optimizer",
            "correctness_preflight.paths[0].tolerances.reference_update",
            "{atol, rtol}",
        ),
        ((*CRITERION, "metric"), "brevity", "decision_rule.criteria[0].metric", "accuracy"),
        ((*CRITERION, "margin"), 1, "decision_rule.criteria[0].margin", "between -1.0 and 1.0"),
        ((*CRITERION, "margin"), -1.5, "decision_rule.criteria[0].margin", "between -1.0 and 1.0"),
        ((*CRITERION, "bounds"), [1, 0], "decision_rule.criteria[0].bounds", "low < high"),
        (
            (*CRITERION, "weights"),
            {"treatment": 0, "baseline": 0},
            "decision_rule.criteria[0].weights",
            "must not be 0",
        ),
        (
            (*CRITERION, "weights", "placebo"),
            1,
            "decision_rule.criteria[0].weights",
            "only treatment and baseline",
        ),
        (("decision_rule", "tie_band"), [0.1, -0.1], "decision_rule.tie_band", "low <= high"),
        (("decision_rule", "seeds"), [0, 0], "decision_rule.seeds[1]", "each seed once"),
        (
            ("decision_rule", "arms", "treatment"),
            "gs9",
            "decision_rule.arms.treatment",
            "gs1_seed0",
        ),
        (
            ("decision_rule", "arms", "baseline"),
            "gs1_seed0",
            "decision_rule.arms.baseline",
            "not the treatment itself",
        ),
        (("execution", "max_tokens"), 1024, "execution.max_tokens", "less than max_seq_len 1024"),
        (("base_model",), "embedded/gradeschool", "embedded", "needs this object"),
        (("generation_audit", "required"), True, "generation_audit.min_sample_size", "an integer"),
        (
            ("experiment_features", "generated_training_data"),
            True,
            "generation_audit.max_label_errors",
            "an integer",
        ),
    ],
)
def test_a_broken_rule_is_refused_with_path_and_allowed(
    keys: tuple[str | int, ...], value: Any, path: str, allowed: str
) -> None:
    lines = [line for line in refusal(changed((keys, value))).splitlines() if path in line]
    assert any(allowed in line for line in lines), f"{path!r} with {allowed!r} not in {lines}"


@pytest.mark.parametrize(
    ("index", "group_size", "groups", "allowed"),
    [
        (0, 1, 64, "always 0"),
        (1, 8, 8, "one rollout a prompt"),
    ],
)
def test_a_group_size_that_its_mode_is_not_defined_for_is_refused(
    index: int, group_size: int, groups: int, allowed: str
) -> None:
    document = changed(
        (("arms", index, "group_size"), group_size),
        (("arms", index, "groups_per_batch"), groups),
    )
    assert f"arms[{index}].group_size = {group_size}: " in (message := refusal(document))
    assert allowed in message


def test_a_leave_one_out_baseline_over_one_prompt_is_refused() -> None:
    document = changed(
        (("batch_size",), 1),
        (("arms", 1, "groups_per_batch"), 1),
    )
    assert "arms[1].groups_per_batch = 1: 2 or more" in refusal(document)


def test_all_broken_rules_are_reported_together() -> None:
    message = refusal(
        changed((("arms", 1, "lr"), 1.0), (("arms", 0, "seed"), 3), ((*CRITERION, "margin"), 2))
    )
    assert "3 rules" in message
    for path in ("arms[1].lr", "arms[0].seed", "decision_rule.criteria[0].margin"):
        assert path in message


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        (("decision_rule", "criteria"), "decision_rule.criteria[1].id"),
        (("correctness_preflight", "paths"), "correctness_preflight.paths[1].id"),
    ],
)
def test_an_id_used_twice_is_refused(keys: tuple[str, str], path: str) -> None:
    document = saved()
    rows = document[keys[0]][keys[1]]
    rows.append(rows[0])
    assert f'{path} = "{rows[0]["id"]}": each id once' in refusal(document)


def test_gates_that_do_not_apply_need_no_content() -> None:
    document = changed(
        (("activation_gate",), {"applicable": False, "reason": "stock arms only"}),
        (("restoration_preflight",), {"applicable": False, "reason": "no paired arms"}),
        (("correctness_preflight",), {"required": False, "status": None, "paths": []}),
    )
    spec = parse_spec(document, where="trial.json")
    assert not spec.activation_gate.checks


def test_a_check_on_the_very_edge_of_its_range_is_allowed() -> None:
    document = changed((("activation_gate", "checks", 2, "min"), 40))
    check = parse_spec(document, where="trial.json").activation_gate.checks[2]
    assert (check.min, check.max) == (40.0, 40.0)


def test_roles_follow_from_the_modes_where_the_rule_does_not_name_them() -> None:
    document = saved()
    del document["decision_rule"]["arms"]
    roles = resolve_roles(parse_spec(document, where="trial.json"))
    assert (roles.treatment, roles.baseline) == ("gs1_seed0", "grpo_gs8_seed0")


def test_named_roles_beat_the_modes() -> None:
    document = changed(
        (("decision_rule", "arms"), {"treatment": "grpo_gs8_seed0", "baseline": "gs1_seed0"})
    )
    roles = resolve_roles(parse_spec(document, where="trial.json"))
    assert (roles.treatment, roles.baseline) == ("grpo_gs8_seed0", "gs1_seed0")


def test_ambiguous_roles_are_refused_with_what_to_add() -> None:
    document = saved()
    del document["decision_rule"]["arms"]
    document["arms"].append({**document["arms"][0], "name": "grpo_again"})
    message = refusal(document)
    assert "decision_rule.arms = (absent)" in message
    assert '"arms": {"treatment": NAME, "baseline": NAME}' in message


number = st.floats(-10, 10, allow_nan=False)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(number, number, st.tuples(number, number).map(sorted))
def test_the_effect_range_spans_every_corner(
    treatment: float, baseline: float, bounds: list[float]
) -> None:
    criterion = Criterion.model_validate_json(
        json.dumps(
            {
                "id": "c",
                "metric": "accuracy",
                "weights": {"treatment": treatment, "baseline": baseline},
                "margin": 0,
                "bounds": bounds,
            }
        )
    )
    corners = [
        treatment * value_t + baseline * value_b
        for value_t, value_b in itertools.product(bounds, repeat=2)
    ]
    assert criterion.effect_range == (min(corners), max(corners))
