"""The evaluation's documents: evaluators, scores, comparisons and prediction rows (contract §7).

An evaluator's id is the digest of the object as written, so ``0`` and ``0.0`` are different
evaluators. The models keep numbers as they were read for that reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from harness.digest import canonical_json, sha256_json
from harness.errors import DocumentError
from harness.record_version import refuse_other_version
from harness.spec_part import Sha256

ItemId = str | int
Number = int | float
Model = TypeVar("Model", bound=BaseModel)
Text = Annotated[str, StringConstraints(min_length=1)]
LARGEST_VALUE = 1e290
"""Largest magnitude of a value, so that no sum of 100 000 of them overflows float64."""


def _summable(value: Number) -> Number:
    if abs(value) > LARGEST_VALUE:
        raise ValueError(f"expected a magnitude of at most {LARGEST_VALUE:g}")
    return value


Value = Annotated[Number, AfterValidator(_summable)]


class EvaluationPart(BaseModel):
    """Base of every part of the record."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Decoding(EvaluationPart):
    """How completions are sampled; ``stop`` holds strings or token ids."""

    temperature: Annotated[Number, Field(ge=0)]
    max_tokens: Annotated[int, Field(ge=1)]
    stop: str | tuple[str | int, ...] | None


class ItemIds(EvaluationPart):
    """The evaluated items by id, in order, each once."""

    ids: Annotated[tuple[ItemId, ...], Field(min_length=1)]


class ItemManifest(EvaluationPart):
    """The evaluated items by reference; no decision may rest on them (contract §7)."""

    manifest_ref: Text
    manifest_sha256: Sha256


class Evaluator(EvaluationPart):
    """Everything a score depends on but the weights."""

    code_sha256: Sha256
    prompt_template: str
    decoding: Decoding
    parser: Text
    items: ItemIds | ItemManifest

    @property
    def item_ids(self) -> tuple[ItemId, ...] | None:
        """The explicit item ids, or None where the items are a reference."""
        return self.items.ids if isinstance(self.items, ItemIds) else None


class Score(EvaluationPart):
    """One arm's unrounded mean over the items, and the rows it came from."""

    arm: Text
    metric: Text
    value: Value
    evaluator_id: Sha256
    seed: int
    predictions_ref: Text


class Comparison(EvaluationPart):
    """Arms that are held against each other on one metric."""

    metric: Text
    arms: Annotated[tuple[Text, ...], Field(min_length=2)]


class EvaluationRecord(EvaluationPart):
    """The result's ``evaluation``; old evaluators and scores stay, each under its own id."""

    version: Literal[1]
    evaluators: dict[str, Evaluator]
    scores: tuple[Score, ...]
    comparisons: tuple[Comparison, ...]


class PredictionRow(BaseModel):
    """One item's outcome; fields beyond the contract's are kept.

    ``value`` is in the metric's own units; an invalid or truncated output is a row with 0.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)

    item_id: ItemId
    arm: Text
    seed: int
    checkpoint: Text
    metric: Text
    evaluator_id: Sha256
    prediction: Any
    reference: Any
    value: Value


class ScoreKey(NamedTuple):
    """What one score and its rows share."""

    arm: str
    metric: str
    seed: int
    evaluator_id: str

    def __str__(self) -> str:
        return (
            f"arm {self.arm}, metric {self.metric}, seed {self.seed}, "
            f"evaluator {self.evaluator_id[:12]}"
        )

    @classmethod
    def of(cls, part: Score | PredictionRow) -> Self:
        """Return the key of a score or of one of its rows."""
        return cls(part.arm, part.metric, part.seed, part.evaluator_id)


def evaluator_id(evaluator: Mapping[str, Any]) -> str:
    """Return the digest that names an evaluator object, after checking its form.

    Raises:
        DocumentError: naming every field that breaks contract §7.
    """
    _checked(Evaluator, evaluator, "evaluator")
    return sha256_json(evaluator)


def parse_evaluation(raw: Any, *, where: str = "evaluation") -> EvaluationRecord:
    """Return the typed record of parsed JSON.

    Raises:
        DocumentError: naming another version, or every field that breaks contract §7.
    """
    refuse_other_version(raw, "evaluation", where=where)
    return _checked(EvaluationRecord, raw, where)


def parse_prediction(raw: Any, *, where: str) -> PredictionRow:
    """Return one typed row of a predictions file.

    Raises:
        DocumentError: naming every field that breaks contract §7.
    """
    return _checked(PredictionRow, raw, where)


def unrounded_mean(values: Sequence[Number]) -> float:
    """Return the mean of exactly summed values, in their own units, in any order the same.

    Raises:
        DocumentError: for no values.
    """
    if not values:
        raise DocumentError("a mean of no values is undefined", expected="at least one row")
    return math.fsum(values) / len(values)


def score_row(rows: Sequence[Mapping[str, Any]], predictions_ref: str) -> dict[str, Any]:
    """Return the score of one predictions file.

    Args:
        rows: the file's rows.
        predictions_ref: the file's name in the run or the evidence.

    Raises:
        DocumentError: for no rows, or rows of more than one arm, metric, seed or evaluator.
    """
    shared = ("arm", "metric", "seed", "evaluator_id")
    keys = {tuple(row[name] for name in shared) for row in rows}
    if len(keys) != 1:
        raise DocumentError(
            "a predictions file is not of one arm, metric, seed and evaluator",
            expected="one combination",
            found=f"{len(keys)}: {sorted(map(str, keys))[:3]}",
            where=predictions_ref,
            fix="write one file for each arm and seed, and start again after an evaluator change",
        )
    about = dict(zip(shared, keys.pop(), strict=True))
    value = unrounded_mean([row["value"] for row in rows])
    return {**about, "value": value, "predictions_ref": predictions_ref}


def _checked(model: type[Model], raw: Any, where: str) -> Model:
    try:
        return model.model_validate_json(canonical_json(raw))
    except ValidationError as error:
        found = [
            f"{'.'.join(map(str, detail['loc'])) or 'document'}: {detail['msg']}"
            for detail in error.errors(include_url=False, include_input=False)
        ]
        raise DocumentError(
            "the evaluation breaks contract §7", found="; ".join(found[:20]), where=where
        ) from error
