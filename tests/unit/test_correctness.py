"""Parity errors and learning-rate scaling against exact arithmetic and hand-worked cases."""

from __future__ import annotations

import json
import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.correctness import ParityError, lr_scaling_error, parity_errors
from harness.errors import HarnessError

MATH = settings(derandomize=True, deadline=None, max_examples=300)
ENTRY = st.floats(-1e3, 1e3).map(lambda x: 0.0 if abs(x) < 1e-3 else x)
PAIRS = st.lists(st.tuples(ENTRY, ENTRY), min_size=1, max_size=12)


def exact_norm(values: list[Fraction]) -> float:
    return math.sqrt(sum((v * v for v in values), Fraction(0)))


def assert_close(name: str, found: float, wanted: float, tolerance: float = 1e-12) -> None:
    gap = abs(found - wanted)
    assert gap <= tolerance * max(1.0, abs(wanted)), f"{name}: {found} against {wanted}, gap {gap}"


def test_hand_worked_example() -> None:
    errors = parity_errors([3.0, 4.0], [3.0, 0.0])
    assert errors == {
        "max_abs_error": 4.0,
        "reference_max_abs": 3.0,
        "relative_l2_error": pytest.approx(4.0 / 3.0, rel=1e-15),
        "cosine_similarity": pytest.approx(0.6, rel=1e-15),
    }


@MATH
@given(PAIRS)
def test_errors_are_their_definitions_in_exact_arithmetic(pairs: list[tuple[float, float]]) -> None:
    a, r = [list(map(Fraction, side)) for side in zip(*pairs, strict=True)]
    assume(any(r) and any(a))
    difference = [x - y for x, y in zip(a, r, strict=True)]
    found = parity_errors([x for x, _ in pairs], [y for _, y in pairs])
    dot = float(sum((x * y for x, y in zip(a, r, strict=True)), Fraction(0)))
    assert_close("max_abs_error", found["max_abs_error"], float(max(map(abs, difference))))
    assert_close("reference_max_abs", found["reference_max_abs"], float(max(map(abs, r))))
    assert_close(
        "relative_l2_error", found["relative_l2_error"], exact_norm(difference) / exact_norm(r)
    )
    assert_close("cosine", found["cosine_similarity"], dot / exact_norm(a) / exact_norm(r))


@pytest.mark.parametrize(
    ("actual", "reference", "cosine", "relative"),
    [
        ([0.0, 0.0], [0.0, -0.0], 1.0, 0.0),
        ([0.0, 0.0], [2.0, 1.0], 0.0, 1.0),
        ([2.0], [-2.0], -1.0, 2.0),
        ([1e200, 1e200], [1e200, 1e200], 1.0, 0.0),
        ([2e-320], [1e-320], 1.0, 1.0),
    ],
)
def test_zeros_signs_and_extremes(
    actual: list[float], reference: list[float], cosine: float, relative: float
) -> None:
    found = parity_errors(actual, reference)
    assert_close("cosine", found["cosine_similarity"], cosine)
    assert_close("relative_l2_error", found["relative_l2_error"], relative, 1e-3)


def test_a_zero_reference_is_a_large_error_that_json_can_hold() -> None:
    found = parity_errors([1e-3, 0.0], [0.0, 0.0])
    assert found["cosine_similarity"] == 0.0
    assert found["relative_l2_error"] > 1e300
    json.dumps(found, allow_nan=False)
    assert parity_errors([1e9], [0.0])["relative_l2_error"] == sys.float_info.max


def test_equal_norms_do_not_make_parity() -> None:
    found = parity_errors([1.0, 0.0], [0.0, 1.0])
    assert (found["max_abs_error"], found["cosine_similarity"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("actual", "reference", "problem"),
    [
        ([math.nan], [1.0], "not finite"),
        ([1.0], [math.inf], "not finite"),
        ([math.nan], [math.nan], "not finite"),
        ([1.0, 2.0], [1.0], "one shape"),
        ([[1.0], [2.0]], [[1.0, 2.0]], "one shape"),
        (1.0, [1.0], "one shape"),
        ([], [], "nothing that can be compared"),
        (["1.0"], [1.0], "nothing that can be compared"),
        ([1j], [1.0], "nothing that can be compared"),
        ([True], [True], "nothing that can be compared"),
        ([1.7e308], [-1.7e308], "overflows"),
    ],
)
def test_what_cannot_be_compared_is_an_error(actual: Any, reference: Any, problem: str) -> None:
    with pytest.raises(ParityError, match=problem) as caught:
        parity_errors(actual, reference)
    assert isinstance(caught.value, HarnessError)
    assert isinstance(caught.value, ValueError)


def test_numbers_arrays_and_tensors_are_read_alike() -> None:
    plain = parity_errors([1.5, -2.0], [1.0, -2.0])
    tensor = torch.tensor([1.5, -2.0], dtype=torch.bfloat16, requires_grad=True)
    assert parity_errors(tensor, np.array([1, -2], dtype=np.int64)) == plain
    assert parity_errors(1.5, 1.0)["max_abs_error"] == 0.5


def test_float32_inputs_are_compared_in_float64() -> None:
    found = parity_errors(np.array([0.1], dtype=np.float32), np.array([0.1]))
    assert_close("max_abs_error", found["max_abs_error"], abs(float(np.float32(0.1)) - 0.1), 0.0)


def probes(*rows: tuple[Any, Any]) -> list[dict[str, Any]]:
    return [{"learning_rate": rate, "update_norm": norm} for rate, norm in rows]


def test_scaling_is_the_largest_change_against_the_first_probe() -> None:
    assert lr_scaling_error(probes((1e-3, 2.0), (2e-3, 4.0))) == 0.0
    found = lr_scaling_error(probes((1.0, 2.0), (2.0, 4.4), (4.0, 7.2)))
    assert_close("change", found, 0.1)


def test_an_update_that_ignores_the_learning_rate_is_far_off() -> None:
    assert lr_scaling_error(probes((1.0, 2.0), (10.0, 2.0))) == pytest.approx(0.9)
    assert lr_scaling_error(probes((1.0, 2.0), (10.0, 0.0))) == 1.0


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(1.0, 1.0)],
        [(1.0, 1.0), (1.0, 1.0)],
        [(1.0, 0.0), (2.0, 0.0)],
        [(0.0, 1.0), (2.0, 1.0)],
        [(-1.0, 1.0), (2.0, 1.0)],
        [(1.0, -1.0), (2.0, 1.0)],
        [(1.0, math.nan), (2.0, 1.0)],
        [(1.0, None), (2.0, 1.0)],
        [(True, 1.0), (2.0, 1.0)],
    ],
)
def test_probes_that_show_nothing_are_refused(rows: list[tuple[Any, Any]]) -> None:
    with pytest.raises(ParityError):
        lr_scaling_error(probes(*rows))
