"""Form of what a run's judgement rests on: sections of ``result.json`` and ``decision.json``.

The result keeps its sections as they were measured. These models say what stands in those that no
other module has a model for: the decision, the activation calibration and feasibility as posted.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from harness.feasibility import FeasibilityRecord
from harness.record_version import VersionOne
from harness.result_rules import Reason, Verdict
from harness.run_documents import PlannedGate, RunDocument, Text, Whole
from harness.spec_part import Count, NonNegative, PlainName, Sha256

Number = int | float
ItemId = str | int


class PostedObservation(RunDocument):
    """One arm's value on one item with one seed, in the metric's units."""

    item_id: ItemId
    arm: Text
    seed: int
    metric: Text
    value: Number
    evaluator_id: Sha256


class ObservationsFile(RunDocument):
    """Rows by name and digest: JSON lines, an array, or ``{observations}``."""

    name: PlainName
    sha256: Sha256


class SelectionBudget(RunDocument):
    """What a weight edit was allowed."""

    values_touched: Whole
    proposals: Whole


class Selection(RunDocument):
    """How the treatment was picked, where it was picked by looking at data."""

    frozen_before_confirmation: Literal[True]
    kind: Text | None = None
    budgets: dict[str, SelectionBudget] | None = None


class DecisionSection(RunDocument):
    """The result's ``decision`` (contract §8): exactly one source of rows."""

    version: VersionOne
    observations: tuple[PostedObservation, ...] | None = None
    observations_file: ObservationsFile | None = None
    selection: Selection | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.observations is None) == (self.observations_file is None):
            raise ValueError("expected exactly one of observations and observations_file")
        return self


class ComparedArms(RunDocument):
    """Names of the two compared arms."""

    treatment: Text
    baseline: Text


class CriterionReport(RunDocument):
    """The deciding interval of one criterion, in the metric's units."""

    id: Text
    metric: Text
    n: Count
    mean: float
    half_width: NonNegative
    lower: float
    upper: float
    effect_low: float
    effect_high: float
    margin: float
    state: Literal["pass", "fail", "open"]


class DefectReport(RunDocument):
    """One way in which the rows are not what was planned."""

    kind: Text
    count: Count
    examples: tuple[str, ...]


class SecondaryReport(RunDocument):
    """An interval that is shown and never decides; null where its method does not apply."""

    method: Text
    lower: float | None
    upper: float | None
    note: str
    role: Literal["secondary, never deciding"]


class GraderDisagreements(RunDocument):
    """Rows that both graders judged, and the items of each arm on which they differ."""

    compared: Whole
    items: dict[str, tuple[ItemId, ...]]


class DecisionReport(RunDocument):
    """``decision.json``: the decision recomputed from its rows, before and after the gates' cap."""

    verdict: Verdict
    outcome_reason: Reason
    method: Literal["paired_hoeffding"]
    unit: Literal["fixed_checkpoint_items"]
    arms: ComparedArms
    alpha: Annotated[float, Field(gt=0, lt=1)]
    alpha_splitting: Text
    seeds: Annotated[tuple[int, ...], Field(min_length=1)]
    criteria: tuple[CriterionReport, ...]
    defects: tuple[DefectReport, ...]
    capped_verdict: Verdict
    capped_reason: Reason
    gates: dict[str, PlannedGate]
    secondary: dict[str, tuple[SecondaryReport, ...]]
    grader_disagreements: GraderDisagreements


class ActivationCalibration(RunDocument):
    """The result's ``activation_calibration`` (contract §5): one value a metric."""

    values: dict[str, Number | str]
    note: str


class ObservedUsage(RunDocument):
    """What the run really used; GPU-hours only by allocation evidence."""

    wall_seconds: NonNegative
    gpu_hours: NonNegative | None
    stages: dict[str, NonNegative]


class PostedFeasibility(FeasibilityRecord):
    """The result's ``feasibility``: the record, both projections and what was used, apart."""

    projected_wall_seconds: NonNegative | None
    projected_gpu_hours: NonNegative | None
    observed_usage: ObservedUsage | None
