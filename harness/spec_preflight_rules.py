"""Rules of a spec's preflight sections that span fields (contract §3, §4, §5, §9)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from harness.spec_model import ExperimentSpec
from harness.spec_part import ABSENT, Violation, repeated
from harness.spec_preflight import ActivationCheck, CorrectnessPath

REQUIRED_TOLERANCES = {
    "loss": ("baseline_loss", "baseline_gradient", "reference_loss", "reference_gradient"),
    "optimizer": ("baseline_update", "reference_update"),
}
"""Errors that each kind of path measures (contract §4)."""


def preflight_violations(spec: ExperimentSpec) -> Iterator[Violation]:
    """Return the broken rules of the activation, restoration, correctness and audit sections."""
    return chain(
        _activation_rules(spec),
        _restoration_rules(spec),
        _correctness_rules(spec),
        _audit_rules(spec),
    )


def _activation_rules(spec: ExperimentSpec) -> Iterator[Violation]:
    gate = spec.activation_gate
    if gate.applicable and not gate.checks:
        yield Violation("activation_gate.checks", [], "at least one check, or applicable false")
    for index, name in repeated([check.metric for check in gate.checks]):
        yield Violation(f"activation_gate.checks[{index}].metric", name, "each metric once")
    for index, check in enumerate(gate.checks):
        yield from _check_rules(check, f"activation_gate.checks[{index}]")


def _check_rules(check: ActivationCheck, at: str) -> Iterator[Violation]:
    if check.min is None and check.max is None and not check.one_of:
        yield Violation(at, check.metric, "needs min, max or a non-empty one_of, or it cannot fail")
    if check.min is not None and check.max is not None and check.min > check.max:
        yield Violation(f"{at}.min", check.min, f"at most max {check.max}")


def _restoration_rules(spec: ExperimentSpec) -> Iterator[Violation]:
    preflight = spec.restoration_preflight
    if preflight.applicable and not preflight.groups:
        yield Violation("restoration_preflight.groups", [], "a group, or applicable false")
    known = [arm.name for arm in spec.arms]
    seen: list[str] = []
    for group_index, group in enumerate(preflight.groups):
        for index, arm in enumerate(group.arms):
            at = f"restoration_preflight.groups[{group_index}].arms[{index}]"
            if arm.name not in known:
                yield Violation(f"{at}.name", arm.name, f"one of the spec's arms {known}")
            if arm.name in seen:
                yield Violation(f"{at}.name", arm.name, "each arm in one group only")
            seen.append(arm.name)
            yield from _config_rules(spec, group_index, index, f"{at}.optimizer_config")


def _config_rules(
    spec: ExperimentSpec, group_index: int, index: int, at: str
) -> Iterator[Violation]:
    config = spec.restoration_preflight.groups[group_index].arms[index].optimizer_config
    moments = spec.execution.optimizer
    for name, value, source, planned in (
        ("learning_rate", config.learning_rate, "optimizer.lr", spec.optimizer.lr),
        ("lora_rank", config.lora_rank, "lora_rank", spec.lora_rank),
        ("beta1", config.beta1, "execution.optimizer.beta1", moments.beta1),
        ("beta2", config.beta2, "execution.optimizer.beta2", moments.beta2),
        ("eps", config.eps, "execution.optimizer.eps", moments.eps),
    ):
        if value != planned:
            yield Violation(f"{at}.{name}", value, f"must equal {source} {planned}")


def _correctness_rules(spec: ExperimentSpec) -> Iterator[Violation]:
    preflight = spec.correctness_preflight
    if preflight.required and not preflight.paths:
        yield Violation("correctness_preflight.paths", [], "a path, or required false")
    for index, name in repeated([path.id for path in preflight.paths]):
        yield Violation(f"correctness_preflight.paths[{index}].id", name, "each id once")
    for index, path in enumerate(preflight.paths):
        yield from _tolerance_rules(path, f"correctness_preflight.paths[{index}].tolerances")


def _tolerance_rules(path: CorrectnessPath, at: str) -> Iterator[Violation]:
    for name in REQUIRED_TOLERANCES[path.kind]:
        if getattr(path.tolerances, name) is None:
            yield Violation(f"{at}.{name}", ABSENT, f"a {path.kind} path needs {{atol, rtol}} here")


def _audit_rules(spec: ExperimentSpec) -> Iterator[Violation]:
    audit = spec.generation_audit
    if audit is None or not (audit.required or spec.experiment_features.generated_training_data):
        return
    for name in ("min_sample_size", "max_label_errors", "max_eval_overlaps"):
        if getattr(audit, name) is None:
            yield Violation(f"generation_audit.{name}", ABSENT, "an integer: the audit is required")
