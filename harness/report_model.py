"""``report.json``: everything a report shows, as one frozen document (issue 6).

The page and the Markdown text are rendered from this document alone, so all three give the same
numbers. ``None`` means that the run does not say: it was not measured, or has not happened yet.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Number = int | float
Scalar = str | bool | int | float


class ReportPart(BaseModel):
    """Base of every part: frozen, finite, nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Interval(ReportPart):
    """A secondary interval of a mean paired effect; it never decides."""

    method: str
    lower: float | None
    upper: float | None
    note: str
    role: str


class CriterionReport(ReportPart):
    """One criterion of the rule: the numbers in it, in the metric's units."""

    id: str
    metric: str
    treatment: str
    baseline: str
    n: int
    mean: float
    half_width: float
    lower: float
    upper: float
    margin: float
    effect_low: float
    effect_high: float
    state: Literal["pass", "fail", "open"]
    secondary: tuple[Interval, ...]


class Verdict(ReportPart):
    """The box at the top: question, verdict, reason, the rule and what fixes them.

    Attributes:
        by_rule: the verdict of the rule alone, where gates that are not proven weakened it.
        planned_at: UTC second in which the run was planned, from its name.
    """

    question: str
    status: str
    verdict: str | None
    outcome_reason: str | None
    explanation: str
    by_rule: str | None
    summary: str
    rule: tuple[str, ...]
    spec_digest: str
    planned_at: str | None
    original_hypothesis_tested: bool
    tested_instead: str | None
    stopped_by_capacity: str | None


class ArmScore(ReportPart):
    """An arm's mean score with a two-sided Hoeffding interval at the rule's alpha, descriptive."""

    arm: str
    role: str
    metric: str
    n: int
    value: float
    lower: float | None
    upper: float | None
    unfinished: int | None
    unanswered: int | None


class StepPoint(ReportPart):
    """One training step; ``rollouts`` counts all up to its end."""

    step: int
    rollouts: int
    reward: float | None
    accuracy: float | None
    format: float | None
    truncation: float | None
    contributors: float | None
    gap: float | None
    loss: float | None
    length: float | None


class ArmTraining(ReportPart):
    """The steps of one arm's last attempt."""

    arm: str
    mode: str
    planned_steps: int
    finished: bool
    attempts: int
    steps: tuple[StepPoint, ...]


class Measure(ReportPart):
    """One measurement of a gate and what is allowed; ``inside`` is recomputed from both."""

    name: str
    value: Scalar
    allowed: str
    where: str
    inside: bool


class GateReport(ReportPart):
    """One required gate: as recorded by the session the run relied on.

    Attributes:
        nearest: the measurement that came nearest to its limit; None where nothing was measured.
    """

    gate: str
    clause: str
    proves: str
    outcome: str
    reason: str
    measured_at: str | None
    nearest: Measure | None
    measures: tuple[Measure, ...]
    mutants_killed: int | None
    mutants_run: int | None


class Requirement(ReportPart):
    """One thing that would change the decision, computed from the rows."""

    what: str
    now: str
    needed: str
    note: str


class Change(ReportPart):
    """What would change the decision on one criterion.

    Attributes:
        wins, losses, ties: items on which the effect is above, below and at 0.
        discordance: the share of items that are no tie.
        by_rule: what the rule itself would need.
        secondary: what other methods would have needed; they never decide.
    """

    criterion: str
    n: int
    wins: int
    losses: int
    ties: int
    discordance: float
    by_rule: tuple[Requirement, ...]
    secondary: tuple[Requirement, ...]


class Answer(ReportPart):
    """One model's answer to an item; ``prediction`` is the extracted answer."""

    arm: str
    prediction: str | None
    value: float
    finished: bool | None
    training_grader_correct: bool | None
    text: str
    characters: int


class Example(ReportPart):
    """One item with the answers of all models beside each other."""

    item_id: str
    kind: str
    effect: float | None
    question: str | None
    reference: str
    answers: tuple[Answer, ...]


class ExampleKind(ReportPart):
    """How many items are of a kind, and how many of them are shown."""

    kind: str
    items: int
    shown: int


class Examples(ReportPart):
    """A selection of items, worst disagreements first."""

    kinds: tuple[ExampleKind, ...]
    items: tuple[Example, ...]
    questions_unknown: str | None
    grader_compared: int | None
    grader_disagreements: int | None


class DeviationReport(ReportPart):
    """One departure from the preregistered spec; values as canonical JSON."""

    field: str
    original: str
    effective: str
    reason: str


class Cost(ReportPart):
    """Projected and observed seconds of one phase or stage; None: not measured."""

    name: str
    projected_s: float | None
    observed_s: float | None
    source: str


class Feasibility(ReportPart):
    """Budget, projection and observed usage: three different things (contract §6)."""

    budget_wall_s: float
    budget_gpu_hours: float
    projected_wall_s: float | None
    projected_gpu_hours: float | None
    observed_wall_s: float | None
    observed_gpu_hours: float | None
    phases: tuple[Cost, ...]
    stages: tuple[Cost, ...]


class Fact(ReportPart):
    """One line of provenance."""

    name: str
    value: str


class Mutants(ReportPart):
    """The planted defects of the last session of ``tests/mutants``, copied into the run."""

    killed: int
    run: int
    not_run: int
    survivors: tuple[str, ...]
    false_alarms: int
    clean_runs: int


class Report(ReportPart):
    """The whole report of one run."""

    version: Literal[1]
    run: str
    spec: str
    title: str
    verdict: Verdict
    criteria: tuple[CriterionReport, ...]
    incomplete: tuple[str, ...]
    scores: tuple[ArmScore, ...]
    training: tuple[ArmTraining, ...]
    gates: tuple[GateReport, ...]
    mutants: Mutants | None
    change: tuple[Change, ...]
    examples: Examples
    deviations: tuple[DeviationReport, ...]
    feasibility: Feasibility
    provenance: tuple[Fact, ...]
    commands: tuple[Fact, ...]
