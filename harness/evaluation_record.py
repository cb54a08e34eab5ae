"""The evaluation record, judged from documents alone (contract §7).

Ids are recomputed from the evaluator objects and scores from the rows; every compared arm, seed
and the base model must be scored under one evaluator.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.digest import sha256_json
from harness.errors import DocumentError
from harness.evaluator import (
    Comparison,
    EvaluationRecord,
    Evaluator,
    ItemId,
    PredictionRow,
    Score,
    ScoreKey,
    evaluator_id,
    parse_evaluation,
    parse_prediction,
    score_row,
    unrounded_mean,
)
from harness.gates.verdict import Outcome

__all__ = [
    "EvaluationJudgement",
    "EvaluationRecord",
    "evaluator_id",
    "judge_evaluation",
    "parse_evaluation",
    "score_row",
    "unrounded_mean",
]

BASE_ARM = "base"
"""The name under which the base model is scored."""
SUMMATION_ERROR = 1e-12
"""Accepted distance of a score from the rows' mean, relative to the largest value: another order
of summation in float64, far below any rounding of a score."""
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class EvaluationJudgement:
    """What an evaluation proves.

    Attributes:
        outcome: fail where the record contradicts itself or its rows, else unknown where
            anything is missing or mixed, else pass.
        contradictions: what is false, a sentence each.
        incomplete: what is missing, a sentence each; the comparison is then inconclusive.
        scores: the recomputed means.
    """

    outcome: Outcome
    contradictions: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    scores: Mapping[ScoreKey, float] = field(default_factory=dict)


def judge_evaluation(
    record: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    *,
    seeds: Sequence[int] | None = None,
    current: str | None = None,
    base_arm: str = BASE_ARM,
) -> EvaluationJudgement:
    """Judge an evaluation record against every prediction row of the run, in any order.

    Args:
        record: the result's ``evaluation``, as parsed JSON.
        rows: the rows of all predictions files.
        seeds: the scheduled seeds; None: those that any compared arm was scored with.
        current: the frozen evaluator's id. With it, scores under other ids are history; without
            it, a partial set of scores under any id leaves its comparison mixed.
        base_arm: the base model's name.

    Returns:
        The judgement. Documents of a wrong form are contradictions, not exceptions.
    """
    try:
        parsed = parse_evaluation(record)
        typed = [parse_prediction(row, where=f"row {n}") for n, row in enumerate(rows, start=1)]
    except DocumentError as error:
        return EvaluationJudgement(Outcome.FAIL, (str(error),))
    rows_by_key = _grouped(typed)
    contradictions = (
        *_id_contradictions(record["evaluators"]),
        *_score_contradictions(parsed, rows_by_key),
    )
    scored = Counter(ScoreKey.of(score) for score in parsed.scores)
    incomplete = (
        *(f"rows without a score: {key}" for key in sorted(rows_by_key.keys() - scored.keys())),
        *_gaps(parsed, _Coverage(scored, seeds, current, base_arm)),
    )
    outcome = Outcome.UNKNOWN if incomplete else Outcome.PASS
    means = {
        key: unrounded_mean([row.value for row in found]) for key, found in rows_by_key.items()
    }
    return EvaluationJudgement(
        Outcome.FAIL if contradictions else outcome, contradictions, incomplete, means
    )


def _grouped(rows: Iterable[PredictionRow]) -> dict[ScoreKey, list[PredictionRow]]:
    grouped: defaultdict[ScoreKey, list[PredictionRow]] = defaultdict(list)
    for row in rows:
        grouped[ScoreKey.of(row)].append(row)
    return dict(grouped)


def _id_contradictions(evaluators: Mapping[str, Any]) -> Iterator[str]:
    for claimed, evaluator in evaluators.items():
        # From the raw object: a model would turn 0 into 0.0 and so into another evaluator.
        actual = sha256_json(evaluator)
        if claimed != actual:
            yield f"evaluators: an object with digest {actual} is listed under {claimed}"
        ids = evaluator["items"].get("ids", ())
        if repeated := [item for item, times in Counter(ids).items() if times > 1]:
            yield f"evaluators.{claimed[:12]}: items listed twice: {_few(repeated)}"


def _score_contradictions(
    record: EvaluationRecord, rows_by_key: Mapping[ScoreKey, Sequence[PredictionRow]]
) -> Iterator[str]:
    scored = Counter(ScoreKey.of(score) for score in record.scores)
    yield from (f"scored {times} times: {key}" for key, times in scored.items() if times > 1)
    for score in record.scores:
        evaluator = record.evaluators.get(score.evaluator_id)
        if evaluator is None:
            yield f"the evaluator of a score is not in evaluators: {ScoreKey.of(score)}"
        found = rows_by_key.get(ScoreKey.of(score), ())
        yield from _row_contradictions(score, found, evaluator)


def _row_contradictions(
    score: Score, rows: Sequence[PredictionRow], evaluator: Evaluator | None
) -> Iterator[str]:
    if not rows:
        yield f"a score without rows: {ScoreKey.of(score)} from {score.predictions_ref}"
        return
    mean = unrounded_mean([row.value for row in rows])
    allowed = SUMMATION_ERROR * max(abs(row.value) for row in rows)
    if abs(score.value - mean) > allowed:
        yield (
            f"a score is not its rows' mean: {ScoreKey.of(score)}: posted {score.value!r}, "
            f"{len(rows)} rows give {mean!r}"
        )
    checkpoints = sorted({row.checkpoint for row in rows})
    if len(checkpoints) > 1:
        yield f"rows of several checkpoints: {ScoreKey.of(score)}: {_few(checkpoints)}"
    counted = Counter(row.item_id for row in rows)
    planned = set(counted if evaluator is None else evaluator.item_ids or counted)
    for problem, items in (
        ("items have no row", planned - counted.keys()),
        ("rows are of other items", counted.keys() - planned),
        ("items have several rows", {item for item, times in counted.items() if times > 1}),
    ):
        if items:
            yield f"{len(items)} {problem}: {ScoreKey.of(score)}: {_few(items)}"


@dataclass(frozen=True, slots=True)
class _Coverage:
    """What is scored, and what a comparison needs."""

    scored: Mapping[ScoreKey, int]
    seeds: Sequence[int] | None
    current: str | None
    base_arm: str

    def lacking(self, comparison: Comparison, evaluator: str) -> list[str]:
        """Return what a comparison has no score for under one evaluator."""
        metric = comparison.metric
        seeds = self.needed_seeds(comparison)
        if not seeds:
            return ["any seed of any arm"]
        missing = [
            f"{arm} seed {seed}"
            for arm in comparison.arms
            for seed in seeds
            if ScoreKey(arm, metric, seed, evaluator) not in self.scored
        ]
        # Greedy decoding of the base model has no training seed, so one score is enough.
        has_base = any(
            (key.arm, key.metric, key.evaluator_id) == (self.base_arm, metric, evaluator)
            for key in self.scored
        )
        return missing if has_base else [*missing, f"the base model ({self.base_arm})"]

    def needed_seeds(self, comparison: Comparison) -> list[int]:
        """Return the scheduled seeds, or those any compared arm was scored with."""
        if self.seeds is not None:
            return sorted(set(self.seeds))
        return sorted({key.seed for key in self.of(comparison) if key.arm != self.base_arm})

    def of(self, comparison: Comparison) -> list[ScoreKey]:
        """Return every score of a comparison's arms and of the base model on its metric."""
        arms = {*comparison.arms, self.base_arm}
        return [k for k in self.scored if k.metric == comparison.metric and k.arm in arms]

    def evaluators(self, comparison: Comparison) -> list[str]:
        """Return the ids under which a comparison must be whole."""
        if self.current is not None:
            return [self.current]
        return sorted({key.evaluator_id for key in self.of(comparison)})


def _gaps(record: EvaluationRecord, coverage: _Coverage) -> Iterator[str]:
    if not record.comparisons:
        yield "comparisons: nothing is compared"
    for comparison in record.comparisons:
        name = f"comparison of {' and '.join(comparison.arms)} on {comparison.metric}"
        if len(set(comparison.arms)) < len(comparison.arms):
            yield f"{name}: an arm is compared with itself"
        ids = coverage.evaluators(comparison)
        if not ids:
            yield f"{name}: nothing is scored"
        for evaluator in ids:
            if missing := coverage.lacking(comparison, evaluator):
                mixed = f"{len(ids)} evaluators are mixed; " if len(ids) > 1 else ""
                yield f"{name}: {mixed}under {evaluator[:12]} not scored: {', '.join(missing)}"
            known = record.evaluators.get(evaluator)
            if known is not None and known.item_ids is None:
                yield f"{name}: evaluator {evaluator[:12]} does not list its items (items.ids)"


def _few(items: Iterable[ItemId]) -> str:
    return ", ".join(sorted(map(str, items))[:_EXAMPLES])
