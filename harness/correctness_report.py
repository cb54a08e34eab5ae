"""What follows from a correctness record (contract §4).

Statuses: passed, failed, missing, unresolved, not_applicable. Only measured errors decide.

Order within a path: open revisions make it unresolved whatever was measured, because nothing says
what was compared; after that one failed check fails it, and one missing check makes it missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.correctness import ParityError, lr_scaling_error
from harness.correctness_record import (
    CorrectnessRecord,
    ErrorRow,
    PathRecord,
    Planned,
    read_planned,
    read_record,
)
from harness.pins import PinnedPath, is_pinned
from harness.spec_preflight import CorrectnessPath, Tolerance

__all__ = ["ACCEPTED", "Check", "Status", "Verdict", "judge", "read_planned", "read_record"]


class Status(StrEnum):
    """What is known of a check, a path or the whole preflight."""

    PASSED = "passed"
    FAILED = "failed"
    MISSING = "missing"
    UNRESOLVED = "unresolved"
    NOT_APPLICABLE = "not_applicable"


ACCEPTED = frozenset({Status.PASSED, Status.NOT_APPLICABLE})
_WORST_FIRST = (Status.FAILED, Status.UNRESOLVED, Status.MISSING, Status.PASSED)
REVISIONS = ("baseline_revision", "reference_revision", "implementation_revision")


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    path_id: str
    name: str
    status: Status
    detail: str

    def __str__(self) -> str:
        return f"{self.path_id} {self.name}: {self.status} ({self.detail})"


@dataclass(frozen=True)
class Verdict:
    """Every check, and the status that follows."""

    status: Status
    checks: tuple[Check, ...]


def judge(planned: Planned, record: CorrectnessRecord) -> Verdict:
    """Return the status of every check and of the whole (see the module's head for the order)."""
    if not planned.required:
        detail = "the spec does not require parity"
        return Verdict(
            Status.NOT_APPLICABLE, (Check("-", "parity", Status.NOT_APPLICABLE, detail),)
        )
    measured = {row.id: row for row in record.paths}
    checks: list[Check] = []
    statuses: list[Status] = []
    for path, pinned in zip(planned.section.paths, planned.pinned, strict=True):
        found = list(_path_checks(path, pinned, measured.get(path.id)))
        checks += found
        statuses.append(_path_status(found))
    if not statuses:
        checks.append(Check("-", "paths", Status.MISSING, "the spec plans no path"))
        statuses.append(Status.MISSING)
    return Verdict(_worst(statuses), tuple(checks))


def _path_checks(
    path: CorrectnessPath, pinned: PinnedPath, row: PathRecord | None
) -> Iterator[Check]:
    for name in REVISIONS:
        yield Check(path.id, name, *_revision(name, getattr(pinned, name), row))
    for name in type(path.tolerances).model_fields:
        tolerance = getattr(path.tolerances, name)
        if name == "lr_scaling" and tolerance is not None:
            yield Check(path.id, name, *_lr_scaling(tolerance, row))
        elif tolerance is not None:
            yield Check(path.id, name, *_parity(tolerance, row and row.errors.get(name)))


def _revision(name: str, pinned: str | None, row: PathRecord | None) -> tuple[Status, str]:
    found = getattr(row, name) if row is not None else None
    if pinned is None and name != "implementation_revision":
        return Status.UNRESOLVED, "neither the spec nor the pins file records it"
    if found is None:
        return Status.MISSING, "the path was not measured"
    if not is_pinned(found):
        return Status.UNRESOLVED, f"measured under {found!r}"
    if pinned is not None and found != pinned:
        return Status.FAILED, f"measured {found!r}, pinned {pinned!r}"
    return Status.PASSED, found


def _parity(tolerance: Tolerance, row: ErrorRow | None) -> tuple[Status, str]:
    if row is None:
        return Status.MISSING, "not measured"
    allowed = tolerance.atol + tolerance.rtol * row.reference_max_abs
    accepted = row.max_abs_error <= allowed
    detail = f"max_abs_error {row.max_abs_error:.3g}, allowed {allowed:.3g}"
    if tolerance.min_cosine is not None:
        accepted = accepted and row.cosine_similarity >= tolerance.min_cosine
        detail += f"; cosine {row.cosine_similarity:.9g}, at least {tolerance.min_cosine:.9g}"
    return (Status.PASSED if accepted else Status.FAILED), detail


def _lr_scaling(tolerance: float, row: PathRecord | None) -> tuple[Status, str]:
    if row is None or not row.lr_scaling:
        return Status.MISSING, "not measured"
    try:
        change = lr_scaling_error([probe.model_dump() for probe in row.lr_scaling])
    except ParityError as error:
        return Status.FAILED, error.problem
    status = Status.PASSED if change <= tolerance else Status.FAILED
    return status, f"relative change {change:.3g}, allowed {tolerance:.3g}"


def _path_status(checks: Sequence[Check]) -> Status:
    statuses = [check.status for check in checks]
    return Status.UNRESOLVED if Status.UNRESOLVED in statuses else _worst(statuses)


def _worst(statuses: Sequence[Status]) -> Status:
    return next(status for status in _WORST_FIRST if status in statuses)
