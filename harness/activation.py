"""Does the treatment do anything? The activation numbers, their judgement and a diagnostic table.

Shape suffixes: ``_P`` prompts of a batch, ``_PP`` pairs of them, ``_B`` batches of a run.

A similarity baseline can fail to be one in two ways: weights so flat that it is the plain
leave-one-out mean, or so sharp that one neighbour decides. Three definitions of how many prompts
contribute, never mixed: *row* ``1 / sum_j w_ij^2`` (the one the gate uses), *column*
``(sum_j c_j)^2 / sum_j c_j^2`` with column sums ``c_j`` (how many prompts carry the batch's
baselines together), *perplexity* ``exp(-sum_j w_ij ln w_ij)``.

Pure: no service, no files. Sources: contract §5; design §4; issue 3, part 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.advantages import check_distinct
from harness.errors import AdvantageError
from harness.gates.verdict import Outcome
from harness.similarity import (
    FloatArray,
    Similarity,
    diagnostic_similarities,
    gs1_weights,
    uniform_loo_weights,
)
from harness.spec_preflight import ActivationCheck

CONTRIBUTORS_METRIC = "gs1_effective_contributors_median"
Value = float | str
"""What contract §5 allows as the value of a metric."""


def effective_contributors(weights_PP: FloatArray) -> FloatArray:
    """Return ``1 / sum_j w_ij^2`` of each row, shape (P,): from 1 (one neighbour) to P - 1."""
    return 1.0 / np.square(weights_PP).sum(axis=1)


def column_ess(weights_PP: FloatArray) -> float:
    """Return the effective number of prompts that carry all baselines together, from 1 to P."""
    columns_P = weights_PP.sum(axis=0)
    return float(np.square(columns_P.sum()) / np.square(columns_P).sum())


def perplexity(weights_PP: FloatArray) -> FloatArray:
    """Return ``exp(entropy)`` of each row, shape (P,), with ``0 ln 0 = 0``."""
    logs_PP = np.log(np.where(weights_PP > 0, weights_PP, 1.0))
    return np.exp(-(weights_PP * logs_PP).sum(axis=1))


def mean_abs_baseline_gap(weights_PP: FloatArray, rewards_P: FloatArray) -> float:
    """Return ``mean_i |b_i - u_i|``: similarity baseline against the uniform leave-one-out mean."""
    return float(np.abs((weights_PP - uniform_loo_weights(len(rewards_P))) @ rewards_P).mean())


@dataclass(frozen=True)
class Contributors:
    """The three definitions for one set of weights; two of them as medians over prompts."""

    row_median: float
    column_ess: float
    perplexity_median: float


def contributors(weights_PP: FloatArray) -> Contributors:
    """Return all three definitions; on uniform weights they are P - 1, P and P - 1."""
    return Contributors(
        row_median=float(np.median(effective_contributors(weights_PP))),
        column_ess=column_ess(weights_PP),
        perplexity_median=float(np.median(perplexity(weights_PP))),
    )


@dataclass(frozen=True)
class DryActivation:
    """Effective contributors on the prompts alone, for every batch of a run.

    Attributes:
        medians_B: median over the prompts of each batch, in step order.
        pooled_median: median over every prompt of every batch.
    """

    medians_B: tuple[float, ...]  # noqa: N815 - the shape suffix is part of the name
    pooled_median: float

    @property
    def lowest(self) -> float:
        """The smallest of the batches' medians."""
        return min(self.medians_B)

    @property
    def highest(self) -> float:
        """The largest of the batches' medians."""
        return max(self.medians_B)


def dry_activation(
    questions: Sequence[str], batches: Sequence[Sequence[int]], tau: float, similarity: Similarity
) -> DryActivation:
    """Measure the contributors of every batch that the run would train on, with no service.

    Args:
        questions: question texts of the training set.
        batches: for each step, the positions of its prompts in ``questions``.
        tau: softmax temperature, > 0.
        similarity: a value of ``SIMILARITIES``, or of the diagnostic vectorisers.

    Raises:
        AdvantageError: for no batch, a position outside the questions, or where gs1 is undefined.
    """
    cosines_B = _cosines(questions, batches, similarity)
    return _summary([gs1_weights(cosines_PP, tau) for cosines_PP in cosines_B])


@dataclass(frozen=True)
class DiagnosticRow:
    """What one vectoriser and one tau would give: nothing selects it, it explains a refusal."""

    vectoriser: str
    tau: float
    activation: DryActivation


def diagnostic_table(
    questions: Sequence[str], batches: Sequence[Sequence[int]], taus: Iterable[float]
) -> list[DiagnosticRow]:
    """Return a row for every diagnostic vectoriser and tau; cosines are computed once each."""
    grid = sorted(set(taus), reverse=True)
    rows: list[DiagnosticRow] = []
    for name, similarity in diagnostic_similarities(questions).items():
        cosines_B = _cosines(questions, batches, similarity)
        for tau in grid:
            weights_B = [gs1_weights(cosines_PP, tau) for cosines_PP in cosines_B]
            rows.append(DiagnosticRow(name, tau, _summary(weights_B)))
    return rows


def format_table(rows: Sequence[DiagnosticRow], check: ActivationCheck) -> str:
    """Return the table as text, marking the rows whose every batch the check would accept."""
    width = max(len(row.vectoriser) for row in rows)
    lines = [
        f"{'vectoriser':{width}}  {'tau':>8}  {'median':>7}  {'batches':>14}  in {allowed(check)}"
    ]
    for row in rows:
        measured = row.activation
        spread = f"{measured.lowest:.1f} to {measured.highest:.1f}"
        inside = _in_range(measured.lowest, check) and _in_range(measured.highest, check)
        lines.append(
            f"{row.vectoriser:{width}}  {row.tau:>8g}  {measured.pooled_median:>7.1f}"
            f"  {spread:>14}  {'yes' if inside else 'no'}"
        )
    return "\n".join(lines)


@dataclass(frozen=True)
class CheckOutcome:
    """One check judged, with what was measured and what is allowed in words."""

    metric: str
    outcome: Outcome
    measured: str
    allowed: str


def judge(
    values: Mapping[str, Value | Mapping[str, Value]], checks: Iterable[ActivationCheck]
) -> list[CheckOutcome]:
    """Judge measured values against a spec's checks, one outcome a check, in the spec's order.

    A missing value is unknown, and so is a check that allows everything. A value may be a mapping
    from arm to value: arms that disagree fail, all values named. Booleans, NaN, infinities fail.
    """
    return [_judge_one(values.get(check.metric), check) for check in checks]


def allowed(check: ActivationCheck) -> str:
    """Return what a check accepts, in words; empty when it accepts everything."""
    words = [
        f"{name} {x!r}" for name, x in (("min", check.min), ("max", check.max)) if x is not None
    ]
    return ", ".join(
        words + ([f"one of {list(check.one_of)!r}"] if check.one_of is not None else [])
    )


def _judge_one(value: Value | Mapping[str, Value] | None, check: ActivationCheck) -> CheckOutcome:
    limit = allowed(check) or "anything: the check cannot fail"
    words = "not measured" if value is None or value == {} else repr(value)
    by_arm = list(value.values()) if isinstance(value, Mapping) else [value]
    return CheckOutcome(check.metric, _outcome(by_arm, check), words, limit)


def _outcome(by_arm: Sequence[Value | None], check: ActivationCheck) -> Outcome:
    if not allowed(check):
        return Outcome.UNKNOWN
    measured = [value for value in by_arm if value is not None]
    agree = all(value == measured[0] for value in measured)
    if not agree or not all(_accepted(value, check) for value in measured):
        return Outcome.FAIL
    return Outcome.PASS if measured and len(measured) == len(by_arm) else Outcome.UNKNOWN


def _accepted(value: Value, check: ActivationCheck) -> bool:
    if isinstance(value, bool):
        return False
    if check.one_of is not None and value not in check.one_of:
        return False
    return (check.min is None and check.max is None) or _in_range(value, check)


def _in_range(value: Value, check: ActivationCheck) -> bool:
    """Say whether a finite number lies between the limits, both included."""
    if isinstance(value, str) or not math.isfinite(value):
        return False
    above = check.min is None or value >= check.min
    return above and (check.max is None or value <= check.max)


def _cosines(
    questions: Sequence[str], batches: Sequence[Sequence[int]], similarity: Similarity
) -> list[FloatArray]:
    last = len(questions) - 1
    if outside := [index for batch in batches for index in batch if not 0 <= index <= last]:
        raise AdvantageError(
            "a batch points outside the training set",
            expected=f"positions 0 to {last}",
            found=str(outside[0]),
        )
    texts_B = [[questions[index] for index in batch] for batch in batches]
    for texts_P in texts_B:
        check_distinct(texts_P)
    return [similarity(texts_P) for texts_P in texts_B]


def _summary(weights_B: Sequence[FloatArray]) -> DryActivation:
    if not weights_B:
        raise AdvantageError(
            "no batch was measured",
            expected="at least one batch of the run",
            found="none",
            fix="check the spec's steps and the size of the training set",
        )
    contributors_B = [effective_contributors(weights_PP) for weights_PP in weights_B]
    medians_B = tuple(float(np.median(contributors_P)) for contributors_P in contributors_B)
    return DryActivation(medians_B, float(np.median(np.concatenate(contributors_B))))
