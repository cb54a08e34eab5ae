"""The experiment spec as frozen, strict models (contract §1).

A field that may be absent is ``None`` when it is: for a feature that means unknown, never false.
The preflight sections are in :mod:`harness.spec_preflight`, rules that span fields in
:mod:`harness.spec_rules`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from harness.spec_part import (
    Beta,
    Count,
    NonNegative,
    PlainName,
    Positive,
    Seed,
    Sha256,
    SpecPart,
)
from harness.spec_preflight import (
    ActivationGate,
    CorrectnessPreflight,
    GenerationAudit,
    RestorationPreflight,
)
from harness.spec_revision import SpecRevision


class RowDigests(SpecPart):
    """Digest of each split's (question, answer) pairs, as ``plan.json`` records it."""

    train: Sha256
    test: Sha256


class Dataset(SpecPart):
    """Training data; ``split`` may carry a configuration in prose, as in "train (config main)".

    ``revision`` and ``rows_sha256`` pin its rows (:mod:`harness.dataset_pin`).
    """

    name: str
    hf_path: str
    split: str
    n_examples: Count
    revision: Annotated[str, StringConstraints(min_length=1)] | None = None
    rows_sha256: RowDigests | None = None


class Optimizer(SpecPart):
    """The optimizer both arms share; ``lr`` is the learning rate of every step."""

    name: Literal["adam"]
    lr: Positive


class Eval(SpecPart):
    """The held-out evaluation; ``n_examples`` is the number of items."""

    benchmark: str
    metric: str
    n_examples: Count
    aggregation: str | None = None


class Arm(SpecPart):
    """One training arm: ``groups_per_batch`` prompts of ``group_size`` rollouts a step."""

    name: PlainName
    advantage_mode: str
    group_size: Count
    groups_per_batch: Count
    seed: Seed
    lr: Positive
    steps: Count
    tau: Positive | None = None
    similarity: str | None = None


class ExperimentFeatures(SpecPart):
    """What the experiment does; ``None`` means that the spec does not say."""

    custom_loss: bool | None = None
    custom_optimizer: bool | None = None
    paired_comparison: bool | None = None
    paired_training_arms: bool | None = None
    checkpoint_restore: bool | None = None
    warmup_adaptation: bool | None = None
    generated_training_data: bool | None = None
    learned_generator: bool | None = None
    heldout_loss: bool | None = None
    adaptive_selection: bool | None = None


class Weights(SpecPart):
    """Weight of each role in the per-item effect d_i = sum of weight * value."""

    treatment: float
    baseline: float


class Criterion(SpecPart):
    """One test of the decision: is the effect's lower bound above ``margin``?"""

    id: PlainName
    metric: str
    weights: Weights
    margin: float
    bounds: tuple[float, float]

    @property
    def effect_range(self) -> tuple[float, float]:
        """Least and greatest d_i that ``weights`` and ``bounds`` admit (contract §8)."""
        ends = [
            sorted((weight * self.bounds[0], weight * self.bounds[1]))
            for weight in (self.weights.treatment, self.weights.baseline)
        ]
        return ends[0][0] + ends[1][0], ends[0][1] + ends[1][1]


class DecisionArms(SpecPart):
    """Which arm plays which role, for specs where the modes do not settle it."""

    treatment: str
    baseline: str


class DecisionRule(SpecPart):
    """How the verdict follows from paired rows, fixed before the data (contract §8)."""

    version: Literal[1]
    estimand: str
    unit: Literal["fixed_checkpoint_items"]
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    alpha: Annotated[float, Field(gt=0, lt=1)]
    method: Literal["paired_hoeffding"]
    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1)]
    tie_band: tuple[float, float] | None = None
    arms: DecisionArms | None = None


class Budget(SpecPart):
    """What the run may cost."""

    gpu_hours: NonNegative
    max_wall_minutes: Positive


class AdamMoments(SpecPart):
    """Adam's decay rates and epsilon; the defaults are the figures of contract §12."""

    beta1: Beta = 0.9
    beta2: Beta = 0.95
    eps: Positive = 1e-8


class Execution(SpecPart):
    """Sampling, rendering and loss of both arms; the defaults are the figures of contract §12.

    ``checkpoint_every`` is how many steps an interruption may cost: the state is saved so often.
    """

    loss_fn: Literal["importance_sampling", "ppo", "cispo", "dro"] = "importance_sampling"
    temperature: Positive = 1.0
    max_tokens: Count = 512
    renderer: str = "qwen3_5_disable_thinking"
    fewshot_prefix: Literal["standard", "none"] = "standard"
    data_seed: Seed = 0
    optimizer: AdamMoments = AdamMoments()
    checkpoint_every: Count = 1


class Embedded(SpecPart):
    """What fixes the embedded service: its model's bytes, its task and its arithmetic."""

    base_model_sha256: Sha256
    task_seed: Seed
    dtype: Literal["float32", "float64"]
    service_seed: Seed


class ExperimentSpec(SpecPart):
    """The preregistered experiment (contract §1)."""

    title: str
    hypothesis: str
    method: str
    baseline: str
    success_criterion: str
    primary_endpoint: str
    command: str
    base_model: Annotated[str, StringConstraints(min_length=1)]
    lora_rank: Count
    training_type: Literal["rl"]
    dataset: Dataset
    optimizer: Optimizer
    steps: Count
    batch_size: Count
    max_seq_len: Count
    eval: Eval
    arms: Annotated[tuple[Arm, ...], Field(min_length=1)]
    experiment_features: ExperimentFeatures = ExperimentFeatures()
    activation_gate: ActivationGate
    restoration_preflight: RestorationPreflight
    correctness_preflight: CorrectnessPreflight
    decision_rule: DecisionRule
    budget: Budget
    generation_audit: GenerationAudit | None = None
    feasibility_required: bool
    feasibility: Any = None
    feasibility_check: Any = None
    execution: Execution = Execution()
    embedded: Embedded | None = None
    revision: SpecRevision | None = None

    @property
    def trainings(self) -> tuple[Arm, ...]:
        """What is trained: the arms, or with several seeds each arm once a seed, seed by seed.

        A training of several is named ``ARM.seedN`` and carries that seed; everything else is the
        arm's. Files of a run are named by training, rows and numbers by arm and seed.
        """
        return tuple(training for seed in self.decision_rule.seeds for training in self.at(seed))

    def at(self, seed: int) -> tuple[Arm, ...]:
        """Return the trainings with one of the scheduled seeds, in the order of the arms."""
        if len(self.decision_rule.seeds) == 1:
            return self.arms
        return tuple(
            arm.model_copy(update={"name": f"{arm.name}.seed{seed}", "seed": seed})
            for arm in self.arms
        )

    def arm_of(self, training: str) -> str:
        """Return the name of the arm that a training, or an arm, of that name belongs to.

        Raises:
            KeyError: when the spec has neither.
        """
        for seed in self.decision_rule.seeds:
            for arm, trained in zip(self.arms, self.at(seed), strict=True):
                if training in (arm.name, trained.name):
                    return arm.name
        raise KeyError(training)

    def arm(self, name: str) -> Arm:
        """Return the arm or the training called ``name``.

        Raises:
            KeyError: when the spec has neither.
        """
        for arm in (*self.arms, *self.trainings):
            if arm.name == name:
                return arm
        raise KeyError(name)
