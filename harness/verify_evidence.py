"""The posted evidence and the deviations, compared with the run's own files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.deviations import executed_differences
from harness.digest import parse_json
from harness.evidence import completeness, parse_evidence
from harness.evidence_file import EvidenceFile
from harness.observations import ROW_FIELDS
from harness.plan import PlannedRun
from harness.result import ResultDocument
from harness.verify_rows import Check, Rows, failed, passed, unknown

_EXAMPLES = 3


def deviations_check(run: PlannedRun, result: ResultDocument) -> Check:
    """Compare what was executed with the spec again: nothing found may be missing from the list."""
    posted = [(row.field, row.original, row.effective) for row in result.deviations]
    found = executed_differences(run)
    hidden = [row for row in found if (row.field, row.original, row.effective) not in posted]
    if hidden:
        shown = "; ".join(f"{row.field}: {row.reason}" for row in hidden[:_EXAMPLES])
        return failed("deviations", f"{len(hidden)} not in the result: {shown}")
    late = sum(row.reason.startswith("UNRECORDED") for row in result.deviations)
    return passed(
        "deviations",
        f"{len(result.deviations)} recorded, {late} of them not before training;"
        f" {len(found)} found again by comparing what was executed with the spec",
    )


def evidence_check(run: PlannedRun, result: ResultDocument, predictions: Rows) -> Check:
    """Judge the posted record by contract §11 and compare its rows with the run's, in any order."""
    if result.evidence is None:
        return unknown("evidence", "nothing was posted yet")
    record = parse_evidence(result.evidence)
    posted = [row for file in record.files if file.kind == "predictions" for row in _rows(file)]
    own = [row for rows in predictions.values() for row in rows]
    if _keys(posted) != _keys(own):
        return failed("evidence", f"{len(posted)} posted rows are not the run's {len(own)}")
    arms = [arm.name for arm in run.spec.arms]
    found = completeness(record, arms=arms, patched=run.plan["code"].get("dirty"))
    if found.status != "complete":
        missing = ", ".join([*found.missing, *found.unchecked])
        return unknown("evidence", f"{found.status}: {missing}")
    return passed("evidence", f"{len(record.files)} files, every required kind is there")


def _rows(file: EvidenceFile) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate((file.content or "").splitlines(), start=1):
        yield parse_json(line, where=f"{file.name} line {number}")


def _keys(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a decision reads of each row: a posted text may have been redacted."""
    return sorted(str([row[name] for name in ROW_FIELDS]) for row in rows)
