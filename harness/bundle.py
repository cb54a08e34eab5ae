"""``python -m harness bundle RUN OUT``: the evidence of a run in one folder (contract §11).

Plain immutable names, every text redacted, one ``evidence.json`` with the digests. Nothing is
guessed: source text counts as the executed script only where its digest is the one that the
run's gates were bound to, and a patch only where the tree still is the one that ran. What cannot
be shown is printed as missing and the evidence is partial.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.arm import arm_folder, attempt_folder, read_done
from harness.attempts import arm_steps
from harness.bundle_code import SCRIPTS, code, executed_binding, scripts
from harness.bundle_piece import Piece, document, redacted, text_of
from harness.errors import DocumentError, StoreError
from harness.evaluation_record import BASE_ARM
from harness.evidence import Completeness, EvidenceRecord, completeness
from harness.plan import GATES_FOLDER, PlannedRun
from harness.redact import Redactor
from harness.result import ResultDocument, read_result
from harness.store import write_json_atomic, write_new
from harness.timings import read_timings

RECORD_NAME = "evidence.json"


@dataclass(frozen=True)
class Bundle:
    """What was collected.

    Attributes:
        record: the evidence.
        status: what the record owes and lacks.
        gaps: files that every run owes and that are not there, and why a file was refused.
    """

    record: EvidenceRecord
    status: Completeness
    gaps: tuple[str, ...]


def collect(run: PlannedRun, root: Path, redactor: Redactor) -> Bundle:
    """Collect a run's evidence.

    Args:
        run: the run.
        root: the working tree that may be the one that ran.
        redactor: applied to every text before it is taken.
    """
    result = read_result(run.folder / "result.json")
    record, gaps = EvidenceRecord.empty(), []
    for piece in pieces(run, result, root):
        try:
            record = record.with_file(piece.name, piece.kind, redacted(piece, redactor))
        except DocumentError as error:
            gaps.append(f"{piece.name}: {error.found or error.problem}")
    record = with_numbers(record, run, result)
    arms = [arm.name for arm in run.spec.arms]
    status = completeness(record, arms=arms, patched=run.plan["code"].get("dirty"))
    taken = {file.name for file in record.files}
    gaps += [f"{name}: {why}" for name, why in _owed(run) if name not in taken]
    return Bundle(record, status, tuple(gaps))


def _owed(run: PlannedRun) -> Iterator[tuple[str, str]]:
    """Yield every file a finished run owes by name, and what its absence means."""
    for stem in SCRIPTS:
        yield f"script.{stem}.py", "the text here is not proven to be what ran"
    for arm in run.spec.trainings:
        yield f"effective_config.{arm.name}.json", "the arm has not finished"
    for name in (BASE_ARM, *(arm.name for arm in run.spec.trainings)):
        yield f"predictions.{name}.jsonl", "not scored, or not taken"


def write_bundle(bundle: Bundle, folder: Path) -> None:
    """Write the files and their record into a new folder.

    Raises:
        StoreError: when the folder exists: evidence is immutable, an update is a new bundle.
    """
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise StoreError(
            "evidence is written once",
            expected="a folder that does not exist yet",
            found="one that does",
            where=folder.name,
            fix="name another folder",
        ) from error
    for file in bundle.record.files:
        write_new(folder / file.name, (file.content or "").encode())
    write_json_atomic(folder / RECORD_NAME, bundle.record.to_json())


def report_lines(bundle: Bundle) -> list[str]:
    """Return one line a file, one a gap, and the sum."""
    lines = [f"{file.kind:16} {file.name}  {file.sha256}" for file in bundle.record.files]
    lines += [f"missing          {what}" for what in bundle.status.missing]
    lines += [f"unchecked        {name}" for name in bundle.status.unchecked]
    lines += [f"gap              {why}" for why in bundle.gaps]
    count = len(bundle.record.files)
    return [*lines, f"evidence: {status_of(bundle)}, {count} files"]


def status_of(bundle: Bundle) -> str:
    """Return complete, partial or unknown; a gap keeps evidence from being complete."""
    complete = bundle.status.status == "complete"
    return "partial" if complete and bundle.gaps else bundle.status.status


def pieces(run: PlannedRun, result: ResultDocument, root: Path) -> Iterator[Piece]:
    """Yield every file of evidence that the run has so far, its text not redacted yet."""
    executed = executed_binding(run)
    yield from scripts(executed, root)
    yield from code(run, executed, root)
    for arm in run.spec.trainings:
        if read_done(run.folder, arm.name) is not None:
            path = attempt_folder(run.folder, arm.name) / "effective_config.json"
            yield Piece(f"effective_config.{arm.name}.json", "effective_config", text_of(path))
    for path in sorted((run.folder / "predictions").glob("*.jsonl")):
        yield Piece(f"predictions.{path.name}", "predictions", text_of(path))
    yield Piece("metrics.json", "metrics", document(result.metrics.model_dump(mode="json")))
    for path in sorted((run.folder / GATES_FOLDER).glob("*.jsonl")):
        yield Piece(f"gate_report.{path.name}", "gate_report", text_of(path))
    if timing := _timing(run):
        yield Piece("timing.json", "timing", document(timing))
    for name in ("decision.json", "evaluator.json", "manifest.jsonl", "plan.json", "spec.json"):
        if (run.folder / name).exists():
            yield Piece(f"audit.{name}", "audit", text_of(run.folder / name))


def _timing(run: PlannedRun) -> dict[str, Any]:
    """Return the measured seconds of every stage, and of every step of every finished arm."""
    steps = {
        arm.name: {
            key: [
                row[key] for row in arm_steps(arm_folder(run.folder, arm.name), done) if key in row
            ]
            for key in ("step_s", "training_s")
        }
        for arm in run.spec.trainings
        if (done := read_done(run.folder, arm.name)) is not None
    }
    stages = list(read_timings(run.folder))
    return {"stages": stages, "steps": steps} if stages or steps else {}


def with_numbers(record: EvidenceRecord, run: PlannedRun, result: ResultDocument) -> EvidenceRecord:
    """Return the record with the final checkpoint and the numbers of every arm that has them."""
    held = {row.uri for row in record.checkpoints}
    for arm in run.spec.trainings:
        done = read_done(run.folder, arm.name)
        if done is not None and done["sampler_uri"] not in held:
            record = record.with_checkpoint(
                run.spec.arm_of(arm.name), done["steps"], done["sampler_uri"]
            )
    for name, numbers in result.metrics.model_dump(mode="json")["arms"].items():
        record = record.with_metrics(name, numbers)
    return record
