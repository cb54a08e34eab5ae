"""``result.json``: the one structured output of a run (contract §2).

:class:`ResultDocument` is a value: each operation returns the next document or refuses. Numbers
once posted neither vanish nor change unnoticed, and a verdict cannot disagree with its reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.digest import canonical_json, parse_json
from harness.errors import DocumentError
from harness.reading import MAX_ROWS_BYTES, read_regular
from harness.result_rules import Reason, Status, Verdict, broken_result_rule, refuse_losses
from harness.run_files import RESULT_NAME as RESULT_NAME
from harness.store import write_json_atomic

Number = int | float
Section = dict[str, Any]
SECTIONS = (
    "correctness_preflight",
    "initialization_provenance",
    "activation_calibration",
    "feasibility",
    "generation_audit",
    "evaluation",
    "decision",
    "evidence",
)
"""Fields of contract §§3–9 and 11, each shaped by the module that measures it."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Metrics(_Record):
    """The base model's numbers by name, and each arm's under ``arms``."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride] - pydantic's way to type extra fields

    arms: dict[str, dict[str, Number]] = Field(default_factory=dict)


class CapacityBlock(_Record):
    """Present only when the service's capacity stopped the run (contract §10)."""

    error: str
    comparison_steps_completed: Annotated[int, Field(ge=0)]
    released_clients: Annotated[int, Field(ge=0)]


class Deviation(_Record):
    """One departure from the preregistered spec."""

    field: Literal[
        "model", "objective", "effective_batch", "steps", "dataset", "evaluator", "endpoint"
    ]
    original: Any
    effective: Any
    reason: Annotated[str, Field(min_length=1)]


class ResultDocument(_Record):
    """One state of the run's result; absent fields are left out of the JSON, not null."""

    status: Status
    summary: str
    metrics: Metrics = Metrics()
    completed_arms: tuple[str, ...] = ()
    verdict: Verdict | None = None
    outcome_reason: Reason | None = None
    capacity_block: CapacityBlock | None = None
    deviations: tuple[Deviation, ...] = ()
    original_hypothesis_tested: bool = True
    tested_instead: str | None = None
    correctness_preflight: Section | None = None
    initialization_provenance: Section | None = None
    activation_calibration: Section | None = None
    feasibility: Section | None = None
    generation_audit: Section | None = None
    evaluation: Section | None = None
    decision: Section | None = None
    evidence: Section | None = None

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if broken := broken_result_rule(self):
            raise ValueError(broken)
        return self

    @classmethod
    def start(cls, summary: str) -> ResultDocument:
        """Return the document of a run that has just begun."""
        return parse_result({"status": "running", "summary": summary})

    def to_json(self) -> dict[str, Any]:
        """Return the document as strict JSON, without its absent fields."""
        whole = self.model_dump(mode="json")
        return {name: value for name, value in whole.items() if value is not None}

    def with_metrics(
        self, numbers: Mapping[str, Number], *, arm: str | None = None
    ) -> ResultDocument:
        """Post numbers of the base model, or of one arm.

        Raises:
            DocumentError: when a number was posted before with another value.
        """
        metrics = self.metrics.model_dump()
        target = metrics if arm is None else metrics["arms"].setdefault(arm, {})
        target.update(numbers)
        return self._next({"metrics": metrics})

    def with_summary(self, summary: str) -> ResultDocument:
        """Say in at most two sentences where the run stands.

        Raises:
            DocumentError: once the run has ended, or for more than two sentences.
        """
        self._refuse_unless_running("a new summary")
        return self._next({"summary": summary})

    def arm_completed(self, arm: str, order: Sequence[str] = ()) -> ResultDocument:
        """Add an arm that ended; adding it again changes nothing.

        Args:
            arm: the arm.
            order: all arms; those that ended are listed in this order, whichever ended first.
        """
        if arm in self.completed_arms:
            return self
        ended = [*self.completed_arms, arm]
        ended.sort(key=lambda name: order.index(name) if name in order else len(order))
        return self._next({"completed_arms": ended})

    def with_deviation(
        self, deviation: Deviation, *, before_training: bool, tested_instead: str | None = None
    ) -> ResultDocument:
        """Record a departure from the spec.

        Args:
            deviation: what changed.
            before_training: whether no step has been trained with it yet; if one has, the reason
                says that the deviation was not recorded in time.
            tested_instead: the experiment that is really run; needed for objective and endpoint.

        Raises:
            DocumentError: once the run has ended, or where ``tested_instead`` is missing.
        """
        self._refuse_unless_running("a deviation")
        row = deviation.model_dump()
        if not before_training:
            row["reason"] = f"UNRECORDED before training: {row['reason']}"
        changed = {"deviations": [*self.to_json()["deviations"], row]}
        if tested_instead is not None:
            changed |= {"original_hypothesis_tested": False, "tested_instead": tested_instead}
        return self._next(changed)

    def with_section(
        self, name: str, section: Section, *, revised: Collection[str] = ()
    ) -> ResultDocument:
        """Post one of :data:`SECTIONS`.

        Args:
            name: the section.
            section: its whole content, which keeps every number posted before.
            revised: paths inside it, as in "arms.gs1_seed0.restore_count", whose
                numbers may change.

        Raises:
            DocumentError: for an unknown section, or a number lost or changed unannounced.
        """
        if name not in SECTIONS:
            raise DocumentError(
                "the result has no such section", expected=", ".join(SECTIONS), found=repr(name)
            )
        return self._next({name: section}, revised=[f"{name}.{path}" for path in revised])

    def finish(
        self,
        status: Literal["succeeded", "failed"],
        verdict: Verdict,
        reason: Reason,
        summary: str,
        *,
        capacity_block: CapacityBlock | None = None,
    ) -> ResultDocument:
        """End the run; ``capacity_block`` only where the service had no room for it.

        Raises:
            DocumentError: when the run has ended already, or verdict and reason disagree.
        """
        self._refuse_unless_running("an ending")
        return self._next(
            {
                "status": status,
                "verdict": verdict,
                "outcome_reason": reason,
                "summary": summary,
                "capacity_block": capacity_block and capacity_block.model_dump(),
            }
        )

    def reopened(self, summary: str) -> ResultDocument:
        """Return to running, for a run that ended before its arms did; numbers stay.

        Raises:
            DocumentError: when it reached a verdict on complete data or was stopped by capacity.
        """
        if self.outcome_reason != "incomplete_execution" or self.capacity_block:
            raise DocumentError(
                "this run cannot be taken up again",
                expected="outcome_reason incomplete_execution and no capacity_block",
                found=f"{self.outcome_reason}, capacity_block {self.capacity_block}",
                fix="start a new run (--fresh)",
            )
        ended = {"verdict": None, "outcome_reason": None}
        return self._next({"status": "running", "summary": summary, **ended})

    def _refuse_unless_running(self, what: str) -> None:
        if self.status != "running":
            raise DocumentError(
                f"{what} cannot be added to a run that has ended",
                expected="status running",
                found=self.status,
                fix="start a new run (--fresh)",
            )

    def _next(self, changes: Mapping[str, Any], *, revised: Collection[str] = ()) -> ResultDocument:
        raw = {**self.to_json(), **changes}
        refuse_losses(self.to_json(), raw, revised=revised)
        return parse_result(raw)


def read_result(path: Path) -> ResultDocument:
    """Read a result document from disk, as strictly as it was written.

    It holds the posted evidence, so it may be as large as a file of rows.
    """
    return parse_result(
        parse_json(read_regular(path, max_bytes=MAX_ROWS_BYTES), where=str(path)), where=str(path)
    )


def publish(path: Path, document: ResultDocument, *, revised: Collection[str] = ()) -> None:
    """Replace ``result.json`` atomically, never by one that lost what it held.

    Args:
        path: the file.
        document: the next state.
        revised: number paths that this update may change, as in "feasibility.recovery.seconds".

    Raises:
        DocumentError: when the file on disk holds a number, arm or deviation that this one lacks.
        StoreError: when it cannot be written.
    """
    if path.exists():
        refuse_losses(read_result(path).to_json(), document.to_json(), revised=revised)
    write_json_atomic(path, document.to_json())


def result_line(document: ResultDocument) -> str:
    """Return the document as the one line ``RESULT {…}``."""
    return "RESULT " + canonical_json(document.to_json()).decode()


def parse_result(raw: Any, *, where: str = "result") -> ResultDocument:
    """Return the typed document of parsed JSON.

    Raises:
        DocumentError: naming every field that breaks contract §2.
    """
    try:
        return ResultDocument.model_validate_json(canonical_json(raw))
    except ValidationError as error:
        rows = [
            f"{'.'.join(map(str, detail['loc'])) or 'document'}: {detail['msg']}"
            for detail in error.errors(include_url=False)
        ]
        raise DocumentError(
            "the result document breaks contract §2", found="; ".join(rows), where=where
        ) from error
