"""Is the treatment active on the prompts themselves? Measured before any service is called.

The contributors of a similarity baseline depend on prompts, tau and similarity only, so they are
known for every batch of the run before a rollout exists (contract §5, design §4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.activation import (
    CONTRIBUTORS_METRIC,
    DryActivation,
    diagnostic_table,
    dry_activation,
    format_table,
)
from harness.errors import AdvantageError
from harness.problems import Problem, ProblemSet, step_batches, training_order
from harness.similarity import SIMILARITIES
from harness.spec_model import Arm, ExperimentSpec
from harness.spec_preflight import ActivationCheck

TABLE_TAUS = (0.2, 0.1, 0.07, 0.05, 0.03)


@dataclass(frozen=True)
class PromptActivation:
    """One arm's contributors over all batches of the run, and the spec's range for them."""

    arm: Arm
    measured: DryActivation
    check: ActivationCheck


def contributors_check(spec: ExperimentSpec) -> ActivationCheck | None:
    """Return the spec's range for effective contributors, if it has one."""
    found = [check for check in spec.activation_gate.checks if check.metric == CONTRIBUTORS_METRIC]
    return found[0] if found else None


def measure_prompts(spec: ExperimentSpec, train: ProblemSet) -> list[PromptActivation]:
    """Measure every gs1 arm on every batch it would train on.

    Raises:
        AdvantageError: when the spec has such an arm but no range, or an arm without tau.
    """
    check = contributors_check(spec)
    questions, positions = _positions(train)
    results: list[PromptActivation] = []
    for arm in spec.arms:
        if arm.advantage_mode != "gs1":
            continue
        if check is None or arm.tau is None or arm.similarity is None:
            raise AdvantageError(
                "the spec cannot be checked for activity",
                expected=f"tau, similarity and a range for {CONTRIBUTORS_METRIC}",
                found=f"tau {arm.tau}, similarity {arm.similarity}, range {check}",
                where=f"arm {arm.name}",
                fix="complete the spec",
            )
        batches = _batch_positions(spec, train, arm, positions)
        similarity = SIMILARITIES[arm.similarity]
        results.append(
            PromptActivation(arm, dry_activation(questions, batches, arm.tau, similarity), check)
        )
    return results


def table_text(spec: ExperimentSpec, train: ProblemSet, arm: Arm, check: ActivationCheck) -> str:
    """Return what each tau and vectoriser would give on the arm's batches: it changes nothing."""
    questions, positions = _positions(train)
    batches = _batch_positions(spec, train, arm, positions)
    taus = {*TABLE_TAUS, *([arm.tau] if arm.tau else [])}
    return format_table(diagnostic_table(questions, batches, sorted(taus)), check)


def _positions(train: ProblemSet) -> tuple[list[str], dict[str, int]]:
    questions = [problem.question for problem in train.problems]
    return questions, {problem.item_id: row for row, problem in enumerate(train.problems)}


def _batch_positions(
    spec: ExperimentSpec, train: ProblemSet, arm: Arm, positions: dict[str, int]
) -> list[list[int]]:
    batches: Sequence[Sequence[Problem]] = step_batches(
        training_order(train, spec.execution.data_seed), arm
    )
    return [[positions[problem.item_id] for problem in batch_P] for batch_P in batches]
