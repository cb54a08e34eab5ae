"""Evaluators, prediction rows and records for tests of contract §7."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

from harness.evaluation_record import EvaluationJudgement, judge_evaluation, score_row

ITEMS = [f"item-{n}" for n in range(6)]
ARMS = ["grpo", "gs1"]


def evaluator(**changes: Any) -> dict[str, Any]:
    return {
        "code_sha256": "c" * 64,
        "prompt_template": "{question}",
        "decoding": {"temperature": 0.0, "max_tokens": 80, "stop": [2]},
        "parser": "strict_final_number/1",
        "items": {"ids": ITEMS},
    } | changes


def reference_id(obj: Any) -> str:
    """The digest of the contract's head, from the standard library only."""
    text = json.dumps(
        obj, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def rows_of(
    arm: str, scored_by: dict[str, Any], seed: int = 0, values: list[float] | None = None
) -> list[dict[str, Any]]:
    generator = random.Random(f"{arm} {seed}")
    drawn = values or [float(generator.random() < 0.6) for _ in ITEMS]
    return [
        {
            "item_id": item,
            "arm": arm,
            "seed": seed,
            "checkpoint": f"ckpt-{arm}-{seed}",
            "metric": "accuracy",
            "evaluator_id": reference_id(scored_by),
            "prediction": None,
            "reference": "1",
            "value": value,
            "finished": True,
        }
        for item, value in zip(ITEMS, drawn, strict=True)
    ]


Files = dict[str, list[dict[str, Any]]]


def record_of(files: Files, *evaluators: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": 1,
        "evaluators": {reference_id(obj): obj for obj in evaluators},
        "scores": [score_row(rows, name) for name, rows in files.items()],
        "comparisons": [{"metric": "accuracy", "arms": ARMS}],
    }


def scored(scored_by: dict[str, Any], *arms: str, seed: int = 0) -> Files:
    prefix = reference_id(scored_by)[:4]
    return {f"{prefix}-{arm}-{seed}.jsonl": rows_of(arm, scored_by, seed) for arm in arms}


def all_rows(files: Files) -> list[dict[str, Any]]:
    return [row for rows in files.values() for row in rows]


def judged(files: Files, *evaluators: dict[str, Any], **options: Any) -> EvaluationJudgement:
    return judge_evaluation(record_of(files, *evaluators), all_rows(files), **options)


OLD, NEW = evaluator(), evaluator(parser="strict_final_number/2")
WHOLE = scored(OLD, "base", *ARMS)
