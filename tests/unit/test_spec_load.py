"""Loading a spec: what is kept, what is noted, what is refused as a document."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.digest import sha256_json
from harness.errors import SpecError
from harness.spec import describe, load_spec

SPECS = Path(__file__).parents[2] / "specs"
SAVED = SPECS / "exp_6ba12d6b47.json"

Write = Callable[[Any], Path]


@pytest.fixture
def saved() -> dict[str, Any]:
    return json.loads(SAVED.read_text())


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(document: Any) -> Path:
        path = tmp_path / "trial.json"
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    return to_file


def test_unknown_fields_load_are_kept_and_are_named(saved: dict[str, Any], write: Write) -> None:
    saved["origin"] = {"who": "a planner"}
    saved["arms"][1]["note"] = "main arm"
    saved["decision_rule"]["criteria"][0]["weights_note"] = None
    saved["correctness_preflight"]["paths"][0]["tolerances"]["baseline_loss"]["unit"] = "nats"

    loaded = load_spec(write(saved))

    kept = sorted(note for note in loaded.notes if note.startswith("unknown field kept"))
    assert kept == [
        'unknown field kept: arms[1].note = "main arm"',
        'unknown field kept: correctness_preflight.paths[0].tolerances.baseline_loss.unit = "nats"',
        "unknown field kept: decision_rule.criteria[0].weights_note = null",
        'unknown field kept: origin = {"who": "a planner"}',
    ]
    assert loaded.raw == saved, "the document as read must survive loading unchanged"
    assert loaded.digest == sha256_json(saved), "the digest must cover the unknown fields too"


def test_changing_an_unknown_field_changes_the_digest(saved: dict[str, Any], write: Write) -> None:
    before = load_spec(write(saved)).digest
    changed = copy.deepcopy(saved)
    changed["arms"][0]["remark"] = 1
    assert load_spec(write(changed)).digest != before


def test_layout_and_key_order_do_not_change_the_digest(saved: dict[str, Any], write: Write) -> None:
    shuffled = json.dumps(dict(reversed(list(saved.items()))), indent=7)
    assert load_spec(write(shuffled)).digest == load_spec(SAVED).digest


def test_an_integer_is_a_valid_float(saved: dict[str, Any], write: Write) -> None:
    saved["arms"][1]["tau"] = 1
    tau = load_spec(write(saved)).spec.arm("gs1_seed0").tau
    assert tau == 1.0
    assert isinstance(tau, float)


def test_absent_execution_uses_the_contract_figures_and_says_so(
    saved: dict[str, Any], write: Write
) -> None:
    del saved["execution"]
    loaded = load_spec(write(saved))
    execution = loaded.spec.execution
    assert (execution.loss_fn, execution.temperature, execution.max_tokens) == (
        "importance_sampling",
        1.0,
        512,
    )
    assert (execution.optimizer.beta1, execution.optimizer.beta2, execution.optimizer.eps) == (
        0.9,
        0.95,
        1e-8,
    )
    noted = {note.split(" is absent")[0] for note in loaded.notes if "is absent" in note}
    assert noted == {
        "execution.loss_fn",
        "execution.temperature",
        "execution.max_tokens",
        "execution.renderer",
        "execution.fewshot_prefix",
        "execution.data_seed",
        "execution.checkpoint_every",
        "execution.optimizer.beta1",
        "execution.optimizer.beta2",
        "execution.optimizer.eps",
    }


def test_only_the_missing_part_of_execution_is_noted(saved: dict[str, Any], write: Write) -> None:
    del saved["execution"]["temperature"]
    noted = [note for note in load_spec(write(saved)).notes if "is absent" in note]
    assert noted == [
        "execution.temperature is absent: the default 1.0 is used",
        "execution.checkpoint_every is absent: the default 1 is used",
    ]


def test_a_missing_feature_is_unknown_not_false(saved: dict[str, Any], write: Write) -> None:
    del saved["experiment_features"]["generated_training_data"]
    loaded = load_spec(write(saved))
    assert loaded.spec.experiment_features.generated_training_data is None
    assert loaded.spec.experiment_features.learned_generator is False
    assert any("unknown: generated_training_data" in note for note in loaded.notes)


def test_a_spec_cannot_be_changed_after_loading() -> None:
    loaded = load_spec(SAVED)
    with pytest.raises(ValueError, match="frozen"):
        loaded.spec.arms[0].steps = 1  # pyright: ignore[reportAttributeAccessIssue] - the point
    with pytest.raises(AttributeError):
        loaded.digest = "0" * 64  # pyright: ignore[reportAttributeAccessIssue] - the point


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"title": "a", "title": "b"}', "'title' again"),
        ('{"optimizer": {"lr": NaN}}', "NaN"),
        ('{"optimizer": {"lr": 1e999}}', "1e999"),
        ("[1]", "not a JSON object"),
        ("{", "not strict JSON"),
        ("", "not strict JSON"),
    ],
)
def test_a_document_that_is_not_strict_json_is_refused(
    text: str, problem: str, write: Write
) -> None:
    path = write(text)
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert problem in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"absent\.json"):
        load_spec(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("keys", "value", "path"),
    [
        (("steps",), True, "steps = true"),
        (("steps",), 40.0, "steps = 40.0"),
        (("batch_size",), "64", 'batch_size = "64"'),
        (("lora_rank",), 0, "lora_rank = 0"),
        (("optimizer", "lr"), "4e-5", 'optimizer.lr = "4e-5"'),
        (("optimizer", "lr"), True, "optimizer.lr = true"),
        (("optimizer", "lr"), -1e-5, "optimizer.lr = -1e-05"),
        (("optimizer", "name"), "sgd", 'optimizer.name = "sgd"'),
        (("training_type",), "sft", 'training_type = "sft"'),
        (("arms", 1, "tau"), 0, "arms[1].tau = 0"),
        (("arms", 1, "tau"), -0.1, "arms[1].tau = -0.1"),
        (("arms", 0, "name"), "../gs1", 'arms[0].name = "../gs1"'),
        (("arms",), [], "arms = []"),
        (("experiment_features", "custom_loss"), "yes", 'experiment_features.custom_loss = "yes"'),
        (("activation_gate", "checks", 2, "max"), "40", 'activation_gate.checks[2].max = "40"'),
        (
            ("activation_gate", "checks", 5, "one_of"),
            [True],
            "activation_gate.checks[5].one_of[0] = true",
        ),
        (("decision_rule", "alpha"), 0, "decision_rule.alpha = 0"),
        (("decision_rule", "alpha"), 1, "decision_rule.alpha = 1"),
        (("decision_rule", "seeds"), [], "decision_rule.seeds = []"),
        (("decision_rule", "seeds"), [0.5], "decision_rule.seeds[0] = 0.5"),
        (("decision_rule", "method"), "t_test", 'decision_rule.method = "t_test"'),
        (
            ("correctness_preflight", "paths", 0, "tolerances", "reference_loss", "atol"),
            -1e-9,
            "correctness_preflight.paths[0].tolerances.reference_loss.atol = -1e-09",
        ),
        (("execution", "temperature"), 0, "execution.temperature = 0"),
        (("execution", "fewshot_prefix"), "two", 'execution.fewshot_prefix = "two"'),
        (("steps",), 10**30, f"steps = {10**30}"),
    ],
)
def test_a_wrong_field_is_refused_with_path_and_value(
    keys: tuple[str | int, ...], value: Any, path: str, saved: dict[str, Any], write: Write
) -> None:
    target: Any = saved
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = value
    with pytest.raises(SpecError) as caught:
        load_spec(write(saved))
    assert path in str(caught.value)


def test_a_missing_field_is_said_to_be_absent(saved: dict[str, Any], write: Write) -> None:
    del saved["budget"]["gpu_hours"]
    with pytest.raises(SpecError, match=r"budget\.gpu_hours = \(absent\): field required"):
        load_spec(write(saved))


def test_every_error_is_reported_at_once(saved: dict[str, Any], write: Write) -> None:
    saved["steps"] = "40"
    saved["arms"][1]["tau"] = 0
    del saved["eval"]["metric"]
    with pytest.raises(SpecError) as caught:
        load_spec(write(saved))
    message = str(caught.value)
    assert "3 rules" in message
    for path in ('steps = "40"', "arms[1].tau = 0", "eval.metric = (absent)"):
        assert path in message


def test_the_description_names_digest_arms_roles_gates_and_half_width() -> None:
    loaded = load_spec(SAVED)
    text = "\n".join(describe(loaded, ["advantage_properties", "activation_pilot"]))
    for part in (
        loaded.digest,
        "arm grpo_gs8_seed0: advantage grpo, group size 8 × 8 groups, seed 0",
        "arm gs1_seed0: advantage gs1, group size 1 × 64 groups, seed 0, tau 0.1",
        "treatment gs1_seed0, baseline grpo_gs8_seed0",
        "half-width 0.0747894",
        "gates required before any arm (2): advantage_properties, activation_pilot",
    ):
        assert part in text, f"{part!r} is missing from:\n{text}"
