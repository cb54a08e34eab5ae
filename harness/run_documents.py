"""Form of the files of a run's folder that no other module owns: plan, steps, rollouts, timings.

The code that writes them is :mod:`harness.plan`, :mod:`harness.step_record` and
:mod:`harness.bundle`; these models say to a reader elsewhere what stands in them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from harness.record_version import VersionOne
from harness.spec_part import Beta, Count, NonNegative, Positive, Seed, Sha256

Text = Annotated[str, StringConstraints(min_length=1)]
Whole = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
GateOutcome = Literal["pass", "fail", "unknown"]


class RunDocument(BaseModel):
    """Base of every part: frozen, strict, finite, nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class CodeState(RunDocument):
    """Git's view of the tree; null outside a repository."""

    head: str | None
    dirty: bool | None


class PlannedOptimizer(RunDocument):
    """AdamW as the service is asked for it."""

    name: Text
    learning_rate: Positive
    beta1: Beta
    beta2: Beta
    eps: Positive


class EffectiveConfig(RunDocument):
    """``effective_config.json``: everything an arm's training is configured with."""

    arm: Text
    base_model: Text
    lora_rank: Count
    advantage_mode: Text
    tau: Positive | None
    similarity: Text | None
    similarity_parameters: dict[str, Any] | None
    group_size: Count
    groups_per_batch: Count
    rollouts_per_step: Count
    seed: Seed
    steps: Count
    num_substeps: Count
    loss_fn: Text
    optimizer: PlannedOptimizer
    temperature: NonNegative
    max_tokens: Count
    renderer: Text
    fewshot_prefix: Text
    data_seed: Seed
    remove_constant_reward_groups: bool
    kl_penalty_coef: float
    checkpoint_every: Count
    sampling_seeds: Text


class TimingRow(RunDocument):
    """One line of ``timings.jsonl``: wall seconds of a stage that ended, its start included."""

    stage: Text
    arm: Text
    seconds: NonNegative


class PlannedArm(RunDocument):
    """One arm of the plan, and the digest of its prompts in the order of its steps."""

    effective_config: EffectiveConfig
    prompts_sha256: Sha256


class PlannedRows(RunDocument):
    """Where a split's rows come from, and their digest."""

    source: Text
    sha256: Sha256


class PlannedProblems(RunDocument):
    """The rows of both splits."""

    train: PlannedRows
    test: PlannedRows


class PlannedGate(RunDocument):
    """How a gate stood when the run was planned; ``session`` is "" where nothing was recorded."""

    outcome: GateOutcome
    session: str


class PlanDocument(RunDocument):
    """``plan.json``: what will be done, written before anything is done."""

    version: VersionOne
    run: Text
    spec: Text
    spec_digest: Sha256
    spec_notes: tuple[str, ...]
    service: dict[str, Any]
    binding_digest: Sha256
    offline_binding_digest: Sha256
    versions: dict[str, str]
    code: CodeState
    problems: PlannedProblems
    arms: dict[str, PlannedArm]
    gates: dict[str, PlannedGate] = Field(default_factory=dict)
    pilot_steps: Count | None = None


class AdvantageMoments(RunDocument):
    """Moments of a step's advantages, in units of reward."""

    sum: float
    mean: float
    std: NonNegative
    min: float
    max: float
    mean_abs: NonNegative


class StepActivation(RunDocument):
    """How active a similarity baseline was on one step."""

    effective_contributors_median: NonNegative
    mean_abs_baseline_minus_uniform_loo: NonNegative


class LogprobGap(RunDocument):
    """Sampling minus training log-probabilities over action tokens, in nats."""

    mean: float
    max_abs: NonNegative
    tokens: Count


class StepRow(RunDocument):
    """One line of ``steps.jsonl``; seconds are wall clock."""

    arm: Text
    step: Whole
    rollouts: Count
    groups: Count
    group_size: Count
    prompt_ids_sha256: Sha256
    reward_mean: float
    accuracy: Share
    format: Share
    truncation: Share
    completion_tokens_mean: NonNegative
    advantage: AdvantageMoments
    activation: StepActivation | None
    attempt: Count
    sampler_version: Whole
    sampling_session: Text
    datums: Count
    loss_sum: float
    sampler_trainer_gap: LogprobGap
    training_s: NonNegative
    step_s: NonNegative


class RolloutRow(RunDocument):
    """One line of ``rollouts.jsonl``; digests are over token ids as little-endian int64."""

    arm: Text
    step: Whole
    item_id: Text
    rollout: Whole
    reward: float
    correct: Share
    format: Share
    advantage: float
    stop_reason: Literal["stop", "length"]
    completion_tokens: Count
    completion_sha256: Sha256


class ArmTiming(RunDocument):
    """Measured seconds of an arm's steps, in order: the whole step, and its training part."""

    step_s: tuple[NonNegative, ...]
    training_s: tuple[NonNegative, ...]
