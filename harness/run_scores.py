"""The scores of a run from its prediction rows, and whether they suffice (contract §7)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.digest import parse_json, sha256_json
from harness.errors import DecisionError
from harness.evaluate import BASE_ARM, EVALUATOR_NAME, METRIC, predictions_path
from harness.evaluation_record import judge_evaluation
from harness.gates.verdict import Outcome
from harness.plan import PlannedRun
from harness.reading import read_regular
from harness.store import read_jsonl


def scored_rows(run: PlannedRun) -> dict[str, tuple[dict[str, Any], ...]]:
    """Return the prediction rows of the base model and of every arm that was scored.

    Rows of several seeds follow each other in the order of their files' names.
    """
    found: dict[str, tuple[dict[str, Any], ...]] = {}
    for arm in (BASE_ARM, *(arm.name for arm in run.spec.arms)):
        paths = [predictions_path(run.folder, name) for name in _scored_as(run, arm)]
        rows = tuple(row for path in paths if path.exists() for row in read_jsonl(path))
        if rows:
            found[arm] = rows
    return found


def whole_arm_rows(run: PlannedRun, training: str) -> tuple[dict[str, Any], ...] | None:
    """Return the rows of all seeds of a training's arm, or None while one is not scored."""
    arm = run.spec.arm_of(training)
    names = _scored_as(run, arm)
    if not all(predictions_path(run.folder, name).exists() for name in names):
        return None
    return scored_rows(run)[arm]


def _scored_as(run: PlannedRun, arm: str) -> list[str]:
    """Return the names under which an arm, or the base model, is scored."""
    if arm == BASE_ARM:
        return [BASE_ARM]
    return sorted(found.name for found in run.spec.trainings if run.spec.arm_of(found.name) == arm)


def is_whole(
    run: PlannedRun,
    evaluation: Mapping[str, Any],
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
) -> bool:
    """Return whether everything compared, and the base model, was scored under one evaluator.

    Raises:
        DecisionError: when the evaluation contradicts itself or its rows.
    """
    judged = judge_evaluation(
        evaluation,
        [row for found in rows.values() for row in found],
        seeds=run.spec.decision_rule.seeds,
        current=evaluator_id_of(run),
    )
    if judged.outcome is Outcome.FAIL:
        raise DecisionError(
            "the evaluation contradicts its own rows",
            expected="scores and items as the prediction rows give them (contract §7)",
            found="; ".join(judged.contradictions[:3]),
            where=run.folder.name,
            fix="score every arm and the base model again in a new run: --fresh",
        )
    return judged.outcome is Outcome.PASS


def evaluator_id_of(run: PlannedRun) -> str:
    """Return the id of the evaluator that the run froze, recomputed from its file."""
    return sha256_json(frozen_evaluator(run))


def frozen_evaluator(run: PlannedRun) -> dict[str, Any]:
    """Return the evaluator that the run froze before its first score."""
    return parse_json(read_regular(run.folder / EVALUATOR_NAME), where=EVALUATOR_NAME)


def evaluation_section(run: PlannedRun) -> dict[str, Any]:
    """Return contract §7's record: the evaluator, every score, and what is compared."""
    evaluator = frozen_evaluator(run)
    names = [BASE_ARM, *(arm.name for arm in run.spec.trainings)]
    scored = [name for name in names if predictions_path(run.folder, name).exists()]
    return {
        "version": 1,
        "evaluators": {sha256_json(evaluator): evaluator},
        "scores": [_score(run.folder, name) for name in scored],
        "comparisons": [{"metric": METRIC, "arms": [arm.name for arm in run.spec.arms]}],
    }


def _score(folder: Path, arm_name: str) -> dict[str, Any]:
    path = predictions_path(folder, arm_name)
    rows = read_jsonl(path)
    return {
        "arm": rows[0]["arm"],
        "metric": METRIC,
        "value": math.fsum(row["value"] for row in rows) / len(rows),
        "evaluator_id": rows[0]["evaluator_id"],
        "seed": rows[0]["seed"],
        "predictions_ref": path.relative_to(folder).as_posix(),
    }
