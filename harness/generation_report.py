"""The documents of a generation audit as strict, frozen models (contract §9).

Tasks and evaluation items are rows of frozen files; the report is the result's
``generation_audit``. Unknown fields are refused.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from harness.spec_part import Sha256

ItemId = str | int
Answer = str | int | float
Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,200}$")]
Tally = Annotated[int, Field(ge=0)]


class AuditRecord(BaseModel):
    """Base of every document of the audit."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class TaskRow(AuditRecord):
    """One generated task; only an accepted one is trained on."""

    item_id: ItemId
    prompt: str
    answer: Answer | None
    disposition: Literal["accepted", "rejected", "execution_error"]
    code: str | None = None
    error: str | None = None


class EvaluationRow(AuditRecord):
    """One held-out item."""

    item_id: ItemId
    prompt: Text


class FrozenFile(AuditRecord):
    """An evidence file by name and digest."""

    name: FileName
    sha256: Sha256
    kind: Literal["generated_tasks", "audit"] | None = None


class Counts(AuditRecord):
    """How many tasks there are of each disposition, and in all."""

    generated: Tally
    accepted: Tally
    rejected: Tally
    execution_errors: Tally


class Sample(AuditRecord):
    """One task answered again without sight of its label."""

    item_id: ItemId
    independent_answer: Answer | None
    resolver_id: Text
    method: Literal["independent_resolve"]
    reasoning: Text
    blind_to_label: Literal[True]


class GenerationReport(AuditRecord):
    """The result's ``generation_audit``, finished before the first training step."""

    version: Literal[1]
    stage: Literal["before_training"]
    dataset_file: FileName | FrozenFile
    evaluation_file: FileName | FrozenFile
    audit_file: FileName | FrozenFile
    sample_seed: int | str
    counts: Counts
    samples: tuple[Sample, ...]
    label_error_count: Tally
    overlap_count: Tally
