"""Exact comparison of answers by table and by property (contract §9)."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.generation_audit import answer_agreement

PROPERTY = settings(derandomize=True, deadline=None, max_examples=200)


@pytest.mark.parametrize(
    ("label", "answer"),
    [
        ("18", "18"),
        ("18", "18.00"),
        ("18", "+018"),
        ("-0.5", "-1/2"),
        ("-0.5", "\u22120.50"),
        ("1/3", "2/6"),
        ("1/3", "2 / 6"),
        ("1,234.5", "2469/2"),
        ("1.2e3", "1200"),
        (" 7 ", "7"),
        (0.1, "1/10"),
        (12, "12.0"),
        ("0", "-0"),
    ],
)
def test_equal_numbers_agree_however_they_are_written(label: Any, answer: Any) -> None:
    assert answer_agreement(label, answer, "numeric_exact") is True
    assert answer_agreement(answer, label, "numeric_exact") is True


@pytest.mark.parametrize(
    ("label", "answer"),
    [
        ("1/3", "0.3333333333333333"),
        ("0.1", "0.10000000000000001"),
        (0.3, 0.1 + 0.2),
        ("10000000000000000", "10000000000000001"),
        ("12", "12 apples"),
        ("50", "50%"),
        ("5", "$5"),
        ("1,23", "123"),
        ("1 1/2", "1.5"),
        ("1/0", "1/0"),
        ("abc", "abc"),
        ("", ""),
        ("nan", "nan"),
        ("inf", "inf"),
        (float("inf"), 10**400),
        (True, 1),
        (None, None),
        ("١٢", "12"),
        ("9" * 501, "9" * 501),
        ("--5", "5"),
        ("1e999999999", "1e999999999"),
    ],
)
def test_numbers_that_differ_or_are_none_never_agree(label: Any, answer: Any) -> None:
    assert answer_agreement(label, answer, "numeric_exact") is False


def test_integers_of_any_size_are_compared() -> None:
    # More digits than Python turns into text.
    assert answer_agreement(10**5000, 10**5000, "numeric_exact") is True
    assert answer_agreement(10**5000, 10**5000 + 1, "numeric_exact") is False


@PROPERTY
@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_ratios_agree_exactly_when_the_rationals_are_equal(a: Fraction, b: Fraction) -> None:
    scaled = f"{a.numerator * 6}/{a.denominator * 6}"
    assert answer_agreement(scaled, f"{a.numerator}/{a.denominator}", "numeric_exact") is True
    assert answer_agreement(str(a), str(b), "numeric_exact") is (a == b)


@PROPERTY
@given(st.decimals(allow_nan=False, allow_infinity=False, places=6), st.integers(-3, 3))
def test_one_unit_in_the_last_place_is_a_disagreement(value: Decimal, units: int) -> None:
    other = value + units * Decimal("0.000001")
    agreed = answer_agreement(f"{value:f}", f"{other:f}", "numeric_exact")
    assert agreed is (Fraction(value) == Fraction(other))


@pytest.mark.parametrize(
    ("label", "answer", "agree"),
    [
        ("Paris", "Paris", True),
        ("Paris", "paris", False),
        ("Paris", "Paris ", False),
        ("\u00e9", "e\u0301", False),
        ("1", "1.0", False),
        ("", "", False),
        ("  ", "  ", False),
        (1, 1, False),
        (None, None, False),
    ],
)
def test_categories_are_compared_character_by_character(
    label: Any, answer: Any, agree: bool
) -> None:
    assert answer_agreement(label, answer, "categorical_exact") is agree


@pytest.mark.parametrize("strategy", [None, "", "llm_judge", "NUMERIC_EXACT", "numeric"])
def test_another_strategy_verifies_nothing(strategy: str | None) -> None:
    assert answer_agreement("1", "1", strategy) is None
    assert answer_agreement("1", "2", strategy) is None
