"""How a run's ``result.json`` grows as its stages end: scores, deviations, evidence (contract §2).

Each function reads the document from disk and publishes the next one, so a stage that is run again
alone finds what the others left.
"""

from __future__ import annotations

from pathlib import Path

from harness.bundle import pieces, redacted, with_numbers
from harness.conclusion import score_numbers
from harness.deviations import with_executed
from harness.errors import DocumentError
from harness.evaluate import BASE_ARM, METRIC, predictions_path
from harness.evidence import EvidenceRecord, parse_evidence
from harness.plan import PlannedRun
from harness.redact import Redactor
from harness.result import RESULT_NAME, ResultDocument, publish, read_result
from harness.run_scores import whole_arm_rows
from harness.store import read_jsonl
from harness.timings import TIMINGS_NAME

FINAL_AT_ONCE = frozenset(
    {"script", "code_revision", "code_patch", "effective_config", "predictions"}
)
"""Kinds whose files never change once they are there; the others are posted when the run ends."""
GROWING_FILES = frozenset({RESULT_NAME, TIMINGS_NAME})
"""Files that a run still writes to; they are entered in the manifest when it ends."""
NEVER_POSTED = frozenset({"audit.manifest.jsonl"})
"""The manifest enters the result itself, so the result cannot hold it."""


def post_scores(run: PlannedRun, arm_name: str) -> float:
    """Post the base model's numbers, or an arm's once all its seeds are scored.

    Args:
        run: the run.
        arm_name: ``base`` or a training whose rows are on disk.

    Returns:
        The accuracy of that training alone.
    """
    numbers = score_numbers(read_jsonl(predictions_path(run.folder, arm_name)))
    document = read_result(run.folder / RESULT_NAME)
    if document.status != "running":
        # A run that was cut off between its verdict and its seal has every number already.
        return numbers[METRIC]
    if arm_name == BASE_ARM:
        document = document.with_metrics(numbers)
    elif (whole := whole_arm_rows(run, arm_name)) is not None:
        arm = run.spec.arm_of(arm_name)
        document = document.with_metrics(score_numbers(whole), arm=arm).arm_completed(
            arm, [planned.name for planned in run.spec.arms]
        )
    publish(run.folder / RESULT_NAME, document.with_summary(_progress(run)))
    return numbers[METRIC]


def post_stage(run: PlannedRun, root: Path, redactor: Redactor) -> None:
    """Post what the stage that just ended gives: deviations found, evidence that is final.

    Args:
        run: the run.
        root: the working tree that ran.
        redactor: applied to every text before it is posted.
    """
    document = read_result(run.folder / RESULT_NAME)
    if document.status != "running":
        return
    document = with_executed(document, run)
    document = with_evidence(document, run, root, redactor, ended=False)
    publish(run.folder / RESULT_NAME, document)


def with_evidence(
    document: ResultDocument, run: PlannedRun, root: Path, redactor: Redactor, *, ended: bool
) -> ResultDocument:
    """Return the document with every file of evidence that is final and not posted yet.

    A file over the limits of contract §11 is left out: the record is then partial, and both
    ``verify`` and ``bundle`` say what is missing.

    Args:
        document: the result so far.
        run: the run.
        root: the working tree that ran.
        redactor: applied to every text before it is posted.
        ended: whether the run is over, so that every kind is final.
    """
    held = document.evidence
    record = EvidenceRecord.empty() if held is None else parse_evidence(held)
    posted = {file.name for file in record.files} | NEVER_POSTED
    for piece in pieces(run, document, root):
        if piece.name in posted or not (ended or piece.kind in FINAL_AT_ONCE):
            continue
        try:
            record = record.with_file(piece.name, piece.kind, redacted(piece, redactor))
        except DocumentError:
            # Its absence is the record of this; the reason is printed by bundle, which asks again.
            continue
    return document.with_section("evidence", with_numbers(record, run, document).to_json())


def _progress(run: PlannedRun) -> str:
    """Say how far the run is. What is trained and scored are trainings: each arm once a seed."""
    arms, trainings = run.spec.arms, run.spec.trainings
    done = sum(predictions_path(run.folder, found.name).exists() for found in trainings)
    seeds = len(run.spec.decision_rule.seeds)
    what = "arms" if seeds == 1 else f"trainings ({len(arms)} arms, {seeds} seeds)"
    return (
        f"{run.plan['spec']}: {done} of {len(trainings)} {what} trained and scored, no verdict yet."
    )
