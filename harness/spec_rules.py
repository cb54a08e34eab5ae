"""Rules of an experiment spec that span fields (contract §1).

Every rule yields :class:`Violation` rows, so that a reader sees all that is wrong with a spec at
once. Nothing here reads a file or knows of a service.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from harness.advantage_domain import DOMAINS, outside
from harness.errors import SpecError
from harness.local_service.generated_data import GENERATED
from harness.spec_model import Arm, Criterion, ExperimentSpec
from harness.spec_part import ABSENT, Violation, repeated
from harness.spec_preflight_rules import preflight_violations
from harness.spec_revision import revision_violations

EMBEDDED_ROWS = "embedded:"
"""Data sets that are generated, in sizes that are fixed."""
EMBEDDED_PREFIX = "embedded/"
"""Base models whose bytes the spec itself must pin."""
SCORED_METRICS = ("accuracy",)
"""Metrics that the evaluation writes rows for; a criterion on another could only end incomplete."""
BASELINE_MODE = "grpo"
"""The mode that names the baseline arm where ``decision_rule.arms`` does not."""


@dataclass(frozen=True, slots=True)
class ArmRoles:
    """Names of the arms that a criterion's two weights belong to."""

    treatment: str
    baseline: str


def violations(
    spec: ExperimentSpec, *, modes: Iterable[str], similarities: Iterable[str]
) -> tuple[Violation, ...]:
    """Return every broken rule, in document order of the rules' subjects.

    Args:
        spec: a spec whose fields have the right types.
        modes: names an arm's ``advantage_mode`` may take.
        similarities: names an arm's ``similarity`` may take.
    """
    return tuple(
        chain(
            _arm_rules(spec, sorted(modes), sorted(similarities)),
            preflight_violations(spec),
            _decision_rules(spec),
            _execution_rules(spec),
            revision_violations(spec.revision),
        )
    )


def resolve_roles(spec: ExperimentSpec) -> ArmRoles:
    """Return which arm is the treatment and which the baseline.

    ``decision_rule.arms`` settles it. Without that field there must be two arms, exactly one of
    them in mode "grpo": that one is the baseline and the other the treatment.

    Raises:
        SpecError: when the arms do not settle it, saying what to add.
    """
    if spec.decision_rule.arms is not None:
        named = spec.decision_rule.arms
        return ArmRoles(treatment=named.treatment, baseline=named.baseline)
    baselines = [arm.name for arm in spec.arms if arm.advantage_mode == BASELINE_MODE]
    others = [arm.name for arm in spec.arms if arm.advantage_mode != BASELINE_MODE]
    if len(baselines) == len(others) == 1:
        return ArmRoles(treatment=others[0], baseline=baselines[0])
    raise SpecError(
        "the arms do not say which is the treatment and which the baseline",
        expected=f"one arm in mode {BASELINE_MODE!r} and one in another mode",
        found=f"{BASELINE_MODE}: {baselines}, other modes: {others}",
        where="decision_rule.arms",
        fix='add "arms": {"treatment": NAME, "baseline": NAME} to decision_rule',
    )


def _arm_rules(
    spec: ExperimentSpec, modes: Sequence[str], similarities: Sequence[str]
) -> Iterator[Violation]:
    for index, name in repeated([arm.name for arm in spec.arms]):
        yield Violation(f"arms[{index}].name", name, "each arm needs a name of its own")
    for index, arm in enumerate(spec.arms):
        yield from _size_rules(spec, arm, f"arms[{index}]")
        yield from _pairing_rules(spec, arm, f"arms[{index}]")
        yield from _mode_rules(arm, f"arms[{index}]", modes, similarities)


def _size_rules(spec: ExperimentSpec, arm: Arm, at: str) -> Iterator[Violation]:
    if arm.group_size * arm.groups_per_batch != spec.batch_size:
        yield Violation(
            f"{at}.group_size × {at}.groups_per_batch",
            arm.group_size * arm.groups_per_batch,
            f"must equal batch_size {spec.batch_size} "
            f"(found {arm.group_size} × {arm.groups_per_batch})",
        )
    prompts = arm.steps * arm.groups_per_batch
    if prompts > spec.dataset.n_examples:
        yield Violation(
            f"{at}.steps × {at}.groups_per_batch",
            prompts,
            f"at most dataset.n_examples {spec.dataset.n_examples}: the data is passed over once",
        )


def _pairing_rules(spec: ExperimentSpec, arm: Arm, at: str) -> Iterator[Violation]:
    if arm.lr != spec.optimizer.lr:
        yield Violation(f"{at}.lr", arm.lr, f"must equal optimizer.lr {spec.optimizer.lr}")
    if arm.steps != spec.steps:
        yield Violation(f"{at}.steps", arm.steps, f"must equal steps {spec.steps}")
    if arm.seed not in spec.decision_rule.seeds:
        seeds = list(spec.decision_rule.seeds)
        yield Violation(f"{at}.seed", arm.seed, f"must be one of decision_rule.seeds {seeds}")


def _mode_rules(
    arm: Arm, at: str, modes: Sequence[str], similarities: Sequence[str]
) -> Iterator[Violation]:
    if arm.advantage_mode not in modes:
        yield Violation(f"{at}.advantage_mode", arm.advantage_mode, f"one of {list(modes)}")
    if arm.similarity is not None and arm.similarity not in similarities:
        yield Violation(f"{at}.similarity", arm.similarity, f"one of {list(similarities)}")
    domain = DOMAINS.get(arm.advantage_mode)
    if domain is not None and domain.weighs_prompts:
        yield from _weight_rules(arm, at, similarities)
    for wrong in outside(arm.advantage_mode, arm.group_size, arm.groups_per_batch):
        yield Violation(f"{at}.{wrong.field}", wrong.found, wrong.allowed)


def _weight_rules(arm: Arm, at: str, similarities: Sequence[str]) -> Iterator[Violation]:
    mode = arm.advantage_mode
    if arm.tau is None:
        yield Violation(f"{at}.tau", ABSENT, f"mode {mode} needs a number > 0")
    if arm.similarity is None:
        yield Violation(
            f"{at}.similarity", ABSENT, f"mode {mode} needs one of {list(similarities)}"
        )


def _decision_rules(spec: ExperimentSpec) -> Iterator[Violation]:
    rule = spec.decision_rule
    for index, seed in repeated(rule.seeds):
        yield Violation(f"decision_rule.seeds[{index}]", seed, "each seed once")
    for index, name in repeated([criterion.id for criterion in rule.criteria]):
        yield Violation(f"decision_rule.criteria[{index}].id", name, "each id once")
    for index, criterion in enumerate(rule.criteria):
        yield from _criterion_rules(criterion, f"decision_rule.criteria[{index}]")
    if rule.tie_band is not None and rule.tie_band[0] > rule.tie_band[1]:
        yield Violation("decision_rule.tie_band", list(rule.tie_band), "[low, high], low <= high")
    yield from _role_rules(spec)


def _criterion_rules(criterion: Criterion, at: str) -> Iterator[Violation]:
    if criterion.metric not in SCORED_METRICS:
        allowed = f"one of {list(SCORED_METRICS)}: nothing else is scored, so no row would decide"
        yield Violation(f"{at}.metric", criterion.metric, allowed)
    extra = sorted(criterion.weights.model_extra or {})
    if extra:
        yield Violation(f"{at}.weights", extra, "only treatment and baseline carry a weight")
    if criterion.bounds[0] >= criterion.bounds[1]:
        yield Violation(f"{at}.bounds", list(criterion.bounds), "[low, high] with low < high")
        return
    low, high = criterion.effect_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        weights = criterion.weights.model_dump()
        yield Violation(f"{at}.weights", weights, "at least one weight must not be 0")
    elif not low < criterion.margin < high:
        yield Violation(
            f"{at}.margin",
            criterion.margin,
            f"strictly between {low} and {high}, the effect's range under weights and bounds",
        )


def _role_rules(spec: ExperimentSpec) -> Iterator[Violation]:
    try:
        roles = resolve_roles(spec)
    except SpecError as error:
        yield Violation("decision_rule.arms", ABSENT, f"{error.problem}; {error.fix}")
        return
    counts = Counter(arm.name for arm in spec.arms)
    for role, name in (("treatment", roles.treatment), ("baseline", roles.baseline)):
        if not counts[name]:
            yield Violation(f"decision_rule.arms.{role}", name, f"one of {sorted(counts)}")
    if roles.treatment == roles.baseline:
        yield Violation("decision_rule.arms.baseline", roles.baseline, "not the treatment itself")


def _execution_rules(spec: ExperimentSpec) -> Iterator[Violation]:
    if spec.execution.max_tokens >= spec.max_seq_len:
        yield Violation(
            "execution.max_tokens",
            spec.execution.max_tokens,
            f"less than max_seq_len {spec.max_seq_len}, or no prompt fits",
        )
    if spec.base_model.startswith(EMBEDDED_PREFIX) and spec.embedded is None:
        yield Violation("embedded", ABSENT, f"base_model {spec.base_model!r} needs this object")
    if spec.embedded is not None and not spec.base_model.startswith(EMBEDDED_PREFIX):
        yield Violation(
            "base_model",
            spec.base_model,
            f"begins with {EMBEDDED_PREFIX!r} where the spec has an embedded section",
        )
    if spec.dataset.hf_path.startswith(EMBEDDED_ROWS):
        yield from _generated_row_rules(spec)


def _generated_row_rules(spec: ExperimentSpec) -> Iterator[Violation]:
    """The sizes of generated data are known before any row is."""
    data = GENERATED.get(spec.dataset.hf_path)
    if data is None:
        yield Violation("dataset.hf_path", spec.dataset.hf_path, f"one of {sorted(GENERATED)}")
        return
    for path, planned, split in (
        ("dataset.n_examples", spec.dataset.n_examples, "train"),
        ("eval.n_examples", spec.eval.n_examples, "test"),
    ):
        if planned != data.sizes[split]:
            yield Violation(path, planned, f"{data.sizes[split]}, the rows of {split} there are")
