"""Activation: how many prompts a baseline rests on, and how a spec's checks judge the numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import reference
from harness.activation import (
    CONTRIBUTORS_METRIC,
    DiagnosticRow,
    DryActivation,
    Value,
    column_ess,
    contributors,
    diagnostic_table,
    dry_activation,
    effective_contributors,
    format_table,
    judge,
    mean_abs_baseline_gap,
    perplexity,
)
from harness.embedding_similarity import embedding_installed
from harness.errors import AdvantageError
from harness.gates.verdict import Outcome
from harness.similarity import gs1_weights, tfidf_cosine, uniform_loo_weights
from harness.spec_preflight import ActivationCheck

MATH = settings(
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
SQUARES = st.integers(2, 8).flatmap(
    lambda p: st.lists(
        st.lists(st.integers(0, 8).map(lambda k: k / 8), min_size=p, max_size=p),
        min_size=p,
        max_size=p,
    )
)
HAND = np.array([[0.0, 0.5, 0.5, 0.0], [1.0, 0, 0, 0], [0.25, 0.25, 0, 0.5], [0.5, 0.5, 0, 0]])
QUESTIONS = [
    "Ann has two red apples and one pear",
    "Ben has two green apples",
    "How far does the train travel in two hours",
    "A train travels five miles",
    "Ann and Ben share a pear",
    "The red train stops for two hours",
]
RANGE = ActivationCheck(metric=CONTRIBUTORS_METRIC, min=2, max=4)


def assert_close(name: str, found: object, wanted: object, tolerance: float) -> None:
    gap = float(np.max(np.abs(np.asarray(found) - np.asarray(wanted))))
    assert gap <= tolerance, f"{name}: {found} against {wanted}, gap {gap} > {tolerance}"


def test_three_definitions_on_hand_worked_weights() -> None:
    # Rows: 1/(2/4), 1/1, 1/(1/16 + 1/16 + 1/4) = 8/3, 2. Columns: 1.75, 1.25, 0.5, 0.5; their
    # squares sum to 5.125, (sum 4)^2 = 16. Entropies: ln 2, 0, 1.5 ln 2, ln 2.
    assert_close("row", effective_contributors(HAND), [2.0, 1.0, 8 / 3, 2.0], 1e-14)
    assert_close("column", column_ess(HAND), 16 / 5.125, 1e-14)
    assert_close("perplexity", perplexity(HAND), [2.0, 1.0, 2**1.5, 2.0], 1e-14)
    both = contributors(HAND)
    assert_close("medians", [both.row_median, both.perplexity_median], [2.0, 2.0], 1e-14)


@pytest.mark.parametrize("problems", [2, 3, 64])
def test_uniform_weights_count_everyone(problems: int) -> None:
    found = contributors(uniform_loo_weights(problems))
    wanted = [problems - 1, problems, problems - 1]
    measured = [found.row_median, found.column_ess, found.perplexity_median]
    assert_close(f"{problems} prompts", measured, wanted, 1e-11)


@given(SQUARES, st.floats(-2, 2), st.floats(0.01, 2))
@MATH
def test_a_larger_tau_never_has_fewer_contributors(
    rows: list[list[float]], exponent: float, more: float
) -> None:
    sharp = gs1_weights(np.array(rows), 10**exponent)
    flat = gs1_weights(np.array(rows), 10 ** (exponent + more))
    for name, measure in (("row", effective_contributors), ("perplexity", perplexity)):
        drop = float((measure(sharp) - measure(flat)).max())
        assert drop <= 1e-9, f"{name} fell by {drop} from tau 10^{exponent} to 10^{exponent + more}"


@given(SQUARES, st.floats(-2, 2))
@MATH
def test_definitions_stay_in_their_bounds(rows: list[list[float]], exponent: float) -> None:
    weights, p = gs1_weights(np.array(rows), 10**exponent), len(rows)
    row, spread = effective_contributors(weights), perplexity(weights)
    # Renyi: the order-2 diversity (row) is never above the order-1 diversity (perplexity).
    assert (row >= 1 - 1e-12).all(), f"a row of {row} is below 1"
    assert (row <= spread + 1e-9).all(), f"row {row} above perplexity {spread}"
    assert (spread <= p - 1 + 1e-9).all(), f"perplexity {spread} above {p - 1}"
    assert 1 - 1e-12 <= column_ess(weights) <= p + 1e-9, f"column ESS {column_ess(weights)}"


def test_baseline_gap_of_hand_worked_weights() -> None:
    # Baselines 0.5, 1, 0.25 + 0.25 + 0, 1 for rewards 1, 1, 0, 0; uniform 1/3, 1/3, 2/3, 2/3.
    rewards = np.array([1.0, 1.0, 0.0, 0.0])
    wanted = (abs(0.5 - 1 / 3) + abs(1 - 1 / 3) + abs(0.5 - 2 / 3) + abs(1 - 2 / 3)) / 4
    assert_close("gap", mean_abs_baseline_gap(HAND, rewards), wanted, 1e-14)
    assert_close("uniform", mean_abs_baseline_gap(uniform_loo_weights(4), rewards), 0.0, 1e-15)


def test_dry_activation_measures_every_batch() -> None:
    batches = [[0, 1, 2], [3, 4, 5], [5, 0, 3]]
    found = dry_activation(QUESTIONS, batches, 0.2, tfidf_cosine)
    rows = []
    for batch in batches:
        cosines = reference.cosines([QUESTIONS[i] for i in batch])
        weights = reference.gs1_weights(cosines, 0.2)
        rows.append([1 / math.fsum(w * w for w in row) for row in weights])
    medians = [sorted(row)[1] for row in rows]
    assert_close("medians", found.medians_B, medians, 1e-12)
    assert_close(
        "pooled", found.pooled_median, sorted(one for row in rows for one in row)[4], 1e-12
    )
    assert_close("range", [found.lowest, found.highest], [min(medians), max(medians)], 1e-12)


@pytest.mark.parametrize(
    ("batches", "message"),
    [([], "no batch"), ([[0]], "at least 2"), ([[0, 6]], "outside"), ([[-1, 0]], "outside")],
)
def test_a_batch_that_measures_nothing_is_refused(batches: list[list[int]], message: str) -> None:
    with pytest.raises(AdvantageError, match=message):
        dry_activation(QUESTIONS, batches, 0.1, tfidf_cosine)


def test_a_repeated_prompt_in_a_dry_batch_is_refused() -> None:
    with pytest.raises(AdvantageError, match="occurs twice"):
        dry_activation(QUESTIONS, [[0, 1, 0]], 0.1, tfidf_cosine)


def test_the_table_has_every_vectoriser_and_tau_and_marks_what_fits() -> None:
    rows = diagnostic_table(QUESTIONS, [range(6)], [0.05, 0.2, 1.0, 0.05])
    counts = Counter(row.vectoriser for row in rows)
    assert len(counts) == 6 + embedding_installed(), sorted(counts)
    assert set(counts.values()) == {3}, counts
    default = [row for row in rows if "default" in row.vectoriser]
    for row in default:
        wanted = dry_activation(QUESTIONS, [range(6)], row.tau, tfidf_cosine)
        assert row.activation == wanted, f"{row} against {wanted}"
    lines = format_table(rows, RANGE).splitlines()[1:]
    for row, line in zip(rows, lines, strict=True):
        inside = row.activation.lowest >= 2 and row.activation.highest <= 4
        assert line.endswith("yes" if inside else "no"), f"{line!r} for {row.activation}"
        assert f"{row.activation.pooled_median:.1f}" in line, line
    assert {line.split()[-1] for line in lines} == {"yes", "no"}, "one mark only: a weak example"


@pytest.mark.parametrize(
    ("medians", "mark"),
    [((2.0, 4.0), "yes"), ((1.9, 3.0, 3.0), "no"), ((3.0, 3.0, 4.1), "no"), ((5.0,), "no")],
)
def test_a_row_fits_only_if_every_batch_does(medians: tuple[float, ...], mark: str) -> None:
    row = DiagnosticRow("raw tf", 0.1, DryActivation(medians, pooled_median=3.0))
    line = format_table([row], RANGE).splitlines()[1]
    assert line.split()[-1] == mark, f"{line!r} for batches {medians}"


NAMED = ActivationCheck(metric="executed_base_model", one_of=("Q/one", "Q/two"))
LOW = ActivationCheck(metric="gap", min=0.02)
JUDGED: list[tuple[ActivationCheck, Value | Mapping[str, Value] | None, Outcome]] = [
    (RANGE, 2.0, Outcome.PASS),
    (RANGE, 4, Outcome.PASS),
    (RANGE, math.nextafter(4, 5), Outcome.FAIL),
    (RANGE, math.nextafter(2, 1), Outcome.FAIL),
    (RANGE, math.nan, Outcome.FAIL),
    (RANGE, "3", Outcome.FAIL),
    (RANGE, None, Outcome.UNKNOWN),
    (LOW, 0.02, Outcome.PASS),
    (LOW, 1e9, Outcome.PASS),
    (LOW, math.inf, Outcome.FAIL),
    (LOW, True, Outcome.FAIL),
    (LOW, 0.0199, Outcome.FAIL),
    (NAMED, "Q/two", Outcome.PASS),
    (NAMED, "q/two", Outcome.FAIL),
    (NAMED, 1.0, Outcome.FAIL),
    (RANGE, {"a": 3.0, "b": 3.0}, Outcome.PASS),
    (RANGE, {"a": 3.0, "b": 3.5}, Outcome.FAIL),
    (RANGE, {"a": 5.0, "b": 5.0}, Outcome.FAIL),
    (LOW, {"a": 1.0, "b": True}, Outcome.FAIL),
    (RANGE, {}, Outcome.UNKNOWN),
    (ActivationCheck(metric="free"), 1.0, Outcome.UNKNOWN),
]


@pytest.mark.parametrize(("check", "value", "wanted"), JUDGED)
def test_judging_one_check(
    check: ActivationCheck, value: Value | Mapping[str, Value] | None, wanted: Outcome
) -> None:
    values = {} if value is None else {check.metric: value}
    (found,) = judge(values, [check])
    assert found.outcome is wanted, f"{value!r} under {found.allowed}: {found.outcome}"
    assert found.measured == (repr(value) if value not in (None, {}) else "not measured")


def test_a_missing_arm_is_unknown_and_a_failing_one_still_fails() -> None:
    both = {"gap": {"a": 1.0, "b": None}, CONTRIBUTORS_METRIC: {"a": 9.0, "b": None}}
    outcomes = judge(both, [LOW, RANGE])  # pyright: ignore[reportArgumentType] - a missing value on purpose
    assert [one.outcome for one in outcomes] == [Outcome.UNKNOWN, Outcome.FAIL]


def test_judgements_keep_the_spec_s_order_and_name_what_is_allowed() -> None:
    found = judge({"gap": 0.5}, [NAMED, LOW, RANGE])
    assert [one.metric for one in found] == ["executed_base_model", "gap", CONTRIBUTORS_METRIC]
    words = [one.allowed for one in found]
    assert words == ["one of ['Q/one', 'Q/two']", "min 0.02", "min 2.0, max 4.0"]
