"""Audit of generated training tasks: are their labels right, and is the test set kept out?

Contract §9. A sample that nobody could choose (it follows from a seed and the item ids) is
answered again by a resolver that does not see the labels. :func:`validate` recomputes counts,
sample, label errors and overlaps from the frozen rows and believes no number of the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from harness.answer_agreement import STRATEGIES, answer_agreement
from harness.digest import canonical_json
from harness.errors import DocumentError
from harness.generation_report import (
    AuditRecord,
    EvaluationRow,
    FrozenFile,
    GenerationReport,
    ItemId,
    TaskRow,
)
from harness.record_version import version_refusal
from harness.task_selection import evaluation_overlap, is_trained_on, select_sample

__all__ = ["answer_agreement", "evaluation_overlap", "select_sample", "validate"]

EXAMPLES = 5
"""How many offending items a finding names; all are counted."""

_LONGEST_LIST = 50
_LIMITS = ("min_sample_size", "max_label_errors", "max_eval_overlaps")


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """What an audit proves.

    Attributes:
        status: "failed" when something is wrong, else "unverified" when something is not known.
        failures: what is wrong, a sentence each.
        unverified: what could not be known, a sentence each.
        label_errors: sampled labels the resolver contradicts; None without a known strategy.
        overlaps: accepted tasks whose prompt is also an evaluation prompt; None if not computed.
    """

    status: Literal["passed", "failed", "unverified"]
    failures: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    label_errors: int | None = None
    overlaps: int | None = None


def validate(
    report: Mapping[str, Any],
    contract: Mapping[str, Any] | BaseModel,
    *,
    tasks: Sequence[Mapping[str, Any]],
    evaluation: Sequence[Mapping[str, Any]],
    require_comparison: bool = True,
) -> AuditVerdict:
    """Judge an audit report against the frozen rows and the spec's limits.

    Args:
        report: the ``generation_audit`` of the result.
        contract: the spec's ``generation_audit``; its ``required`` is not read here, see
            :func:`harness.features.check_applicability`.
        tasks: rows of the frozen dataset file.
        evaluation: rows of the frozen evaluation file.
        require_comparison: False for a spec that names no strategy on purpose: labels then stay
            unverified (``label_errors`` is None) without making the audit so.

    Returns:
        The verdict, with every failure named. Bad documents are failures, not exceptions.
    """
    refusal = version_refusal(report, "generation audit", where="report", error=DocumentError)
    if refusal is not None:
        return AuditVerdict("failed", (str(refusal),))
    limits = contract.model_dump() if isinstance(contract, BaseModel) else dict(contract)
    problems: list[str] = []
    parsed = _parsed(GenerationReport, report, "report", problems)
    for index, task in enumerate(tasks):
        _parsed(TaskRow, task, f"tasks[{index}]", problems)
    for index, item in enumerate(evaluation):
        _parsed(EvaluationRow, item, f"evaluation[{index}]", problems)
    if parsed is None or problems:
        return AuditVerdict("failed", tuple(_shortened(problems)))
    audit = _Audit(parsed, limits, tasks, evaluation)
    failures = tuple(audit.failures())
    unverified = tuple(audit.unverified(require_comparison=require_comparison))
    status = "failed" if failures else "unverified" if unverified else "passed"
    return AuditVerdict(status, failures, unverified, audit.label_errors, len(audit.overlaps))


def _shortened(problems: Sequence[str]) -> list[str]:
    """Return the first problems and how many there are beyond them."""
    more = len(problems) - _LONGEST_LIST
    return [*problems[:_LONGEST_LIST], *([f"and {more} more problems"] if more > 0 else [])]


_Model = TypeVar("_Model", bound=AuditRecord)


def _parsed(model: type[_Model], raw: object, where: str, problems: list[str]) -> _Model | None:
    """Return the typed document, or None after adding what is wrong with it."""
    try:
        return model.model_validate_json(canonical_json(raw))
    except DocumentError as error:
        problems.append(f"{where}: {error}")
    except ValidationError as error:
        problems += [
            f"{'.'.join((where, *map(str, detail['loc'])))}: {detail['msg']}"
            for detail in error.errors(include_url=False)
        ]
    return None


class _Audit:
    """Everything a report claims, computed again from the rows."""

    def __init__(
        self,
        report: GenerationReport,
        limits: Mapping[str, Any],
        tasks: Sequence[Mapping[str, Any]],
        evaluation: Sequence[Mapping[str, Any]],
    ) -> None:
        self.report = report
        self.tasks, self.evaluation = tasks, evaluation
        self.strategy = limits.get("answer_comparison")
        self.limits = {name: _whole(limits.get(name)) for name in _LIMITS}
        self.overlaps = evaluation_overlap(tasks, evaluation)
        self.label_errors = self._label_errors()

    def _label_errors(self) -> int | None:
        labels = {task["item_id"]: task["answer"] for task in self.tasks}
        agreements = [
            answer_agreement(labels.get(row.item_id), row.independent_answer, self.strategy)
            for row in self.report.samples
        ]
        return None if self.strategy not in STRATEGIES else agreements.count(False)

    def failures(self) -> Iterator[str]:
        yield from self._row_failures()
        yield from self._count_failures()
        yield from self._sample_failures()
        yield from self._limit_failures()

    def _row_failures(self) -> Iterator[str]:
        for name, rows in (("tasks", self.tasks), ("evaluation", self.evaluation)):
            counted = Counter(row["item_id"] for row in rows)
            if twice := [item for item, times in counted.items() if times > 1]:
                yield f"{name}: {len(twice)} item ids are not unique: {_few(twice)}"
        blank = [row["item_id"] for row in self.tasks if is_trained_on(row) and _is_blank(row)]
        if blank:
            yield f"tasks: {len(blank)} accepted tasks lack a prompt or answer: {_few(blank)}"
        files = (self.report.dataset_file, self.report.evaluation_file, self.report.audit_file)
        names = [file if isinstance(file, str) else file.name for file in files]
        if len(set(names)) < len(names):
            yield f"report: dataset, evaluation and audit are not three files: {names}"
        for file, kind in zip(files, ("generated_tasks", "generated_tasks", "audit"), strict=True):
            if isinstance(file, FrozenFile) and file.kind not in (None, kind):
                yield f"report: {file.name} must have kind {kind}, found {file.kind}"

    def _count_failures(self) -> Iterator[str]:
        by_disposition = Counter(task["disposition"] for task in self.tasks)
        actual = {
            "counts.generated": len(self.tasks),
            "counts.accepted": by_disposition["accepted"],
            "counts.rejected": by_disposition["rejected"],
            "counts.execution_errors": by_disposition["execution_error"],
            "overlap_count": len(self.overlaps),
            "label_error_count": self.label_errors,
        }
        counts = self.report.counts.model_dump()
        claimed = {f"counts.{name}": value for name, value in counts.items()}
        claimed["overlap_count"] = self.report.overlap_count
        claimed["label_error_count"] = self.report.label_error_count
        for name, value in actual.items():
            if value is not None and claimed[name] != value:
                yield f"report.{name} is {claimed[name]}, the rows give {value}"
        if not by_disposition["accepted"]:
            yield "tasks: none is accepted, so there is nothing to train on"

    def _sample_failures(self) -> Iterator[str]:
        size = self.limits["min_sample_size"]
        if size is None:
            return
        planned = {
            row["item_id"] for row in select_sample(self.tasks, size, self.report.sample_seed)
        }
        sampled = [row.item_id for row in self.report.samples]
        for problem, items in (
            ("samples lacks selected tasks", planned - set(sampled)),
            ("samples holds tasks that were not selected", set(sampled) - planned),
            ("samples holds tasks twice", {i for i, n in Counter(sampled).items() if n > 1}),
        ):
            if items:
                yield f"report.{problem}: {len(items)}, as in {_few(items)}"

    def _limit_failures(self) -> Iterator[str]:
        errors = self.label_errors
        errors = self.report.label_error_count if errors is None else errors
        for name, value in (
            ("max_label_errors", errors),
            ("max_eval_overlaps", len(self.overlaps)),
        ):
            allowed = self.limits[name]
            if allowed is not None and value > allowed:
                found = f": {_few(self.overlaps)}" if name == "max_eval_overlaps" else ""
                yield f"{name} allows {allowed}, found {value}{found}"

    def unverified(self, *, require_comparison: bool) -> Iterator[str]:
        if require_comparison and self.strategy not in STRATEGIES:
            allowed = " or ".join(STRATEGIES)
            yield f"labels: answer_comparison is {self.strategy!r}, expected {allowed}"
        for name, allowed in self.limits.items():
            if allowed is None:
                yield f"contract.{name} is not set to a whole number, so nothing holds it"
        if self.limits["min_sample_size"] == 0:
            yield "labels: a sample of 0 tasks proves nothing (min_sample_size)"
        if not self.evaluation:
            yield "overlap: there are no evaluation rows to compare with"


def _whole(value: object) -> int | None:
    """Return a limit that is a whole number, or None where it is none."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


def _is_blank(task: Mapping[str, Any]) -> bool:
    answer = task["answer"]
    lacks_answer = answer is None or (isinstance(answer, str) and not answer.strip())
    return lacks_answer or not task["prompt"].strip()


def _few(items: Iterable[ItemId]) -> str:
    return ", ".join(sorted(map(str, items))[:EXAMPLES])
