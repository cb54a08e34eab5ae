"""The two committed specs carry the figures of contract §12, transcribed here by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.spec import hoeffding_half_width, load_spec
from harness.spec_model import ExperimentSpec
from harness.spec_rules import resolve_roles

SPECS = Path(__file__).parents[2] / "specs"


@pytest.fixture(scope="module")
def saved() -> ExperimentSpec:
    return load_spec(SPECS / "exp_6ba12d6b47.json").spec


@pytest.fixture(scope="module")
def local() -> ExperimentSpec:
    return load_spec(SPECS / "local.json").spec


def test_training_figures(saved: ExperimentSpec) -> None:
    assert saved.base_model == "Qwen/Qwen3.5-2B"
    assert (saved.lora_rank, saved.steps, saved.batch_size) == (32, 40, 64)
    assert (saved.optimizer.name, saved.optimizer.lr) == ("adam", 4e-5)
    assert (saved.dataset.hf_path, saved.dataset.n_examples) == ("openai/gsm8k", 7473)
    assert saved.eval.n_examples == 1319
    assert (saved.budget.gpu_hours, saved.budget.max_wall_minutes) == (2.0, 150)
    assert saved.feasibility_required is True


def test_execution_figures(saved: ExperimentSpec) -> None:
    execution = saved.execution
    assert execution.loss_fn == "importance_sampling"
    assert (execution.temperature, execution.max_tokens, execution.data_seed) == (1.0, 512, 0)
    moments = execution.optimizer
    assert (moments.beta1, moments.beta2, moments.eps) == (0.9, 0.95, 1e-8)


def test_arms_and_the_prompts_they_use(saved: ExperimentSpec) -> None:
    planned = [
        (arm.name, arm.advantage_mode, arm.group_size, arm.groups_per_batch, arm.seed, arm.tau)
        for arm in saved.arms
    ]
    assert planned == [
        ("grpo_gs8_seed0", "grpo", 8, 8, 0, None),
        ("gs1_seed0", "gs1", 1, 64, 0, 0.1),
    ]
    assert saved.arm("gs1_seed0").similarity == "tfidf_prompt_cosine"
    assert [arm.steps * arm.groups_per_batch for arm in saved.arms] == [320, 2560]


def test_activation_ranges(saved: ExperimentSpec) -> None:
    ranges = {
        check.metric: (check.min, check.max, check.one_of) for check in saved.activation_gate.checks
    }
    assert ranges == {
        "gs1_executed_group_size": (1, 1, None),
        "rollouts_per_step_both_arms": (64, 64, None),
        "gs1_effective_contributors_median": (2, 40, None),
        "gs1_mean_abs_baseline_minus_uniform_loo": (0.02, None, None),
        "batch_mean_reward_pilot": (0.1, 0.95, None),
        "executed_base_model": (None, None, ("Qwen/Qwen3.5-2B",)),
    }


def test_tolerances(saved: ExperimentSpec) -> None:
    (path,) = saved.correctness_preflight.paths
    found = {
        name: (tolerance.atol, tolerance.rtol, tolerance.min_cosine)
        for name in (
            "baseline_loss",
            "baseline_gradient",
            "reference_loss",
            "reference_gradient",
        )
        if (tolerance := getattr(path.tolerances, name))
    }
    assert found == {
        "baseline_loss": (1e-6, 1e-6, None),
        "baseline_gradient": (1e-6, 1e-5, 0.99999),
        "reference_loss": (1e-5, 1e-5, None),
        "reference_gradient": (1e-5, 1e-4, 0.9999),
    }


def test_restoration_holds_both_arms_with_one_optimizer(saved: ExperimentSpec) -> None:
    (group,) = saved.restoration_preflight.groups
    assert [arm.name for arm in group.arms] == ["grpo_gs8_seed0", "gs1_seed0"]
    for arm in group.arms:
        assert arm.optimizer_config.model_dump() == {
            "learning_rate": 4e-5,
            "beta1": 0.9,
            "beta2": 0.95,
            "eps": 1e-8,
            "lora_rank": 32,
            "init_seed": 0,
        }


def test_decision_rule(saved: ExperimentSpec) -> None:
    rule = saved.decision_rule
    assert (rule.version, rule.method, rule.unit) == (
        1,
        "paired_hoeffding",
        "fixed_checkpoint_items",
    )
    assert (rule.seeds, rule.alpha, rule.tie_band) == ((0,), 0.05, None)
    (criterion,) = rule.criteria
    assert (criterion.id, criterion.metric) == ("primary_noninferiority", "accuracy")
    assert (criterion.weights.treatment, criterion.weights.baseline) == (1, -1)
    assert (criterion.margin, criterion.bounds) == (-0.05, (0, 1))
    roles = resolve_roles(saved)
    assert (roles.treatment, roles.baseline) == ("gs1_seed0", "grpo_gs8_seed0")


def test_the_half_width_is_the_contracts_figure(saved: ExperimentSpec) -> None:
    half_width = hoeffding_half_width(saved, saved.decision_rule.criteria[0])
    assert half_width == pytest.approx(0.0747894, abs=5e-8), (
        f"half-width {half_width} against the contract's 0.0747894 (n 1319, alpha 0.05)"
    )


def test_the_local_spec_differs_only_in_scale(saved: ExperimentSpec, local: ExperimentSpec) -> None:
    assert local.decision_rule == saved.decision_rule
    assert local.experiment_features == saved.experiment_features
    assert local.correctness_preflight == saved.correctness_preflight
    for name in ("steps", "batch_size", "training_type", "feasibility_required"):
        assert getattr(local, name) == getattr(saved, name), name
    shapes = [
        [(arm.name, arm.advantage_mode, arm.group_size, arm.groups_per_batch) for arm in spec.arms]
        for spec in (local, saved)
    ]
    assert shapes[0] == shapes[1]
    assert local.eval.n_examples == saved.eval.n_examples
    assert local.dataset.n_examples == saved.dataset.n_examples


def test_the_local_spec_names_what_fixes_its_service(local: ExperimentSpec) -> None:
    assert local.base_model == "embedded/gradeschool"
    assert local.embedded is not None
    assert len(local.embedded.base_model_sha256) == 64
    assert local.activation_gate.checks[5].one_of == ("embedded/gradeschool",)
