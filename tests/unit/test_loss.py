"""The importance-sampling loss and its gradient with respect to log-probabilities."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import reference
from harness.errors import AdvantageError, HarnessError
from harness.loss import (
    DatumArrays,
    LossError,
    importance_ratios,
    importance_sampling_gradient,
    importance_sampling_loss,
)

MATH = settings(
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
Token = tuple[float, float, float, int]
LOGPROB = st.floats(-8, 0)
TOKENS = st.lists(
    st.tuples(LOGPROB, LOGPROB, st.floats(-2, 2), st.integers(0, 1)), min_size=1, max_size=8
)
DATUMS = st.lists(TOKENS, min_size=1, max_size=5)


def datum(tokens: Sequence[Token]) -> DatumArrays:
    logprobs, sampling, advantages, mask = zip(*tokens, strict=True)
    return DatumArrays.of(logprobs, sampling, advantages, mask)


def plain(tokens: Sequence[Token]) -> reference.ReferenceDatum:
    return reference.ReferenceDatum(*zip(*tokens, strict=True))


def loss(datums: Sequence[Sequence[Token]]) -> float:
    return importance_sampling_loss([datum(tokens) for tokens in datums])


def assert_close(name: str, found: object, wanted: object, tolerance: float) -> None:
    gap = float(np.max(np.abs(np.asarray(found) - np.asarray(wanted))))
    assert gap <= tolerance, f"{name}: {found} against {wanted}, gap {gap} > {tolerance}"


def test_hand_worked_loss_and_gradient() -> None:
    # Ratios 1 and exp(0.5) = 1.6487213; the prompt token is masked whatever it carries.
    tokens = [(-3.0, 0.0, 9.0, 0), (-1.0, -1.0, 1.0, 1), (-2.0, -2.5, -0.5, 1)]
    assert_close("loss", loss([tokens]), -(1.0 - 0.5 * 1.6487213), 1e-7)
    gradient = importance_sampling_gradient([datum(tokens)])[0]
    assert_close("gradient", gradient, [0.0, -1.0, 0.5 * 1.6487213], 1e-7)
    assert_close("ratios", importance_ratios(datum(tokens)), [0.0, 1.0, 1.6487213], 1e-7)


def test_equals_the_plain_python_reference() -> None:
    reached: Counter[str] = Counter()

    @given(DATUMS)
    @MATH
    def check(datums: list[list[Token]]) -> None:
        every = [token for tokens in datums for token in tokens]
        reached["a masked token with an advantage"] += any(a and not m for _, _, a, m in every)
        reached["a stale token"] += any(abs(p - q) > 0.1 and a * m for p, q, a, m in every)
        reached["unequal lengths"] += len({len(tokens) for tokens in datums}) > 1
        plains = [plain(tokens) for tokens in datums]
        assert_close("loss", loss(datums), reference.importance_sampling_loss(plains), 1e-9)
        ours = importance_sampling_gradient([datum(tokens) for tokens in datums])
        for found, other in zip(ours, plains, strict=True):
            wanted = reference.token_gradients(other)
            scale = max(1.0, *(abs(entry) for entry in wanted))
            assert_close("gradient", found, wanted, 1e-12 * scale)

    check()
    assert len(reached) == 3
    assert min(reached.values()) >= 20, f"classes hardly reached: {dict(reached)}"


@given(DATUMS, st.data())
@MATH
def test_gradient_is_the_slope_of_the_loss(datums: list[list[Token]], data: st.DataObject) -> None:
    d = data.draw(st.integers(0, len(datums) - 1))
    t = data.draw(st.integers(0, len(datums[d]) - 1))

    def loss_at(step: float) -> float:
        moved = [[*tokens] for tokens in datums]
        logprob, sampling, advantage, mask = moved[d][t]
        moved[d][t] = (logprob + step, sampling, advantage, mask)
        return loss(moved)

    slope = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5
    found = importance_sampling_gradient([datum(tokens) for tokens in datums])[d][t]
    # Central differences: third derivative times 1e-10 / 6, and rounding of the loss over 2e-5.
    rounding = 2.0**-52 * (1 + abs(loss(datums))) / 1e-5
    assert_close(f"slope at datum {d} token {t}", found, slope, 1e-10 * abs(slope) + 4 * rounding)


@given(DATUMS)
@MATH
def test_a_second_copy_doubles_the_loss_because_it_is_a_sum(datums: list[list[Token]]) -> None:
    assert_close("two copies", loss(datums + datums), 2 * loss(datums), 1e-9)


@given(DATUMS, st.data())
@MATH
def test_packing_and_reordering_change_nothing_at_all(
    datums: list[list[Token]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(datums))
    packed: list[Token] = []
    for tokens in order:
        packed += [*tokens, (-1.0, 0.0, 0.0, 0)]
    assert loss([packed]) == loss(datums), f"packed {loss([packed])!r}, apart {loss(datums)!r}"


@given(TOKENS)
@MATH
def test_on_policy_the_loss_is_minus_the_summed_advantage(tokens: list[Token]) -> None:
    fresh = [(logprob, logprob, advantage, 1) for logprob, _, advantage, _ in tokens]
    wanted = -math.fsum(advantage for _, _, advantage, _ in fresh)
    assert_close("on-policy loss", loss([fresh]), wanted, 0.0)


def test_without_a_mask_every_token_counts() -> None:
    bare = DatumArrays.of([-1.0, -2.0], [-1.0, -2.0], [1.0, 2.0])
    assert importance_sampling_loss([bare]) == -3.0


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (DatumArrays.of([-1.0], [-1.0, -2.0], [1.0]), "sampling_logprobs_T"),
        (DatumArrays.of([-1.0], [-1.0], [1.0, 1.0]), "advantages_T"),
        (DatumArrays.of([-1.0], [-1.0], [1.0], [1.0, 1.0]), "mask_T"),
        (DatumArrays.of([math.nan], [-1.0], [1.0]), "found: logprobs_T"),
        (DatumArrays.of([-1.0], [-math.inf], [1.0]), "sampling_logprobs_T"),
        (DatumArrays.of([-1.0], [-1.0], [math.inf], [0]), "advantages_T"),
        (DatumArrays.of([-1.0], [-1.0], [1.0], [0.5]), "does not weigh"),
        (DatumArrays.of([0.0], [-1000.0], [1.0]), "overflows"),
        (DatumArrays.of([0.0, 0.0], [-709.0, -709.0], [2.0, 2.0]), "overflows"),
    ],
    ids=[
        "short logprobs",
        "long advantages",
        "long mask",
        "NaN",
        "sampling probability 0",
        "infinite off the mask",
        "fractional mask",
        "ratio overflows",
        "sum overflows",
    ],
)
def test_an_undefined_datum_is_refused_by_place(broken: DatumArrays, message: str) -> None:
    good = DatumArrays.of([-1.0], [-1.0], [1.0])
    with pytest.raises(LossError, match=message) as caught:
        importance_sampling_loss([good, broken])
    assert isinstance(caught.value, HarnessError)


def test_no_datum_is_refused() -> None:
    with pytest.raises(LossError, match="at least 1 datum"):
        importance_sampling_loss([])


@pytest.mark.parametrize("place", range(4))
def test_the_reference_refuses_what_is_not_finite(place: int) -> None:
    numbers = [-1.0, -1.0, 1.0, 1.0]
    numbers[place] = math.nan
    with pytest.raises(AdvantageError, match="not finite"):
        reference.importance_sampling_loss([reference.ReferenceDatum(*([n] for n in numbers))])


def test_the_reference_refuses_unequal_lengths() -> None:
    uneven = reference.ReferenceDatum([-1.0], [-1.0, -1.0], [1.0], [1.0])
    with pytest.raises(ValueError, match=r"shorter|longer"):
        reference.importance_sampling_loss([uneven])
