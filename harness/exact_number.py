"""Exact values of written numbers: decimals, groupings, exponents, ratios and mixed numbers.

Values are ``fractions.Fraction``, never rounded. Digits and exponents are capped, so that a
hostile literal costs no more than a few hundred digits of arithmetic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 500
"""Longest digit string that is read as a number; a longer one is no number."""

MAX_EXPONENT = 500
"""Largest power of ten, either sign, that is read; a larger one is no number."""

_PLAIN = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<decimals>[0-9]+))?")
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3})++(?:\.[0-9]+)?")
_EXPONENT = re.compile(r"[eE](?P<power>[-+]?[0-9]+)$")


@dataclass(frozen=True, slots=True)
class ExactNumber:
    """One number as written: its exact value and its canonical text.

    Attributes:
        value: the exact rational value.
        text: "18", "8.5" or, for a value that was written as a ratio, "2/3".
    """

    value: Fraction
    text: str


def read_decimal(literal: str) -> Fraction | None:
    """Return the value of an unsigned decimal literal, or None where it is not one.

    Accepts "18", "007", ".5", "1,234.50" and "1.2e3". A comma must stand before every third
    digit and the first group must not begin with 0: "1,23", "12,34,567" and "0,5" could each
    be meant in two ways and are no number.
    """
    power = 0
    if found := _EXPONENT.search(literal):
        bounded = _bounded_power(found["power"])
        if bounded is None:
            return None
        power, literal = bounded, literal[: found.start()]
    if "," in literal:
        if not _GROUPED.fullmatch(literal):
            return None
        literal = literal.replace(",", "")
    return _scaled(literal, power)


def _bounded_power(text: str) -> int | None:
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > len(str(MAX_EXPONENT)):
        return None
    power = int(digits or "0")
    if power > MAX_EXPONENT:
        return None
    return -power if text.startswith("-") else power


def _scaled(literal: str, power: int) -> Fraction | None:
    found = _PLAIN.fullmatch(literal)
    if found is None:
        return None
    decimals = found["decimals"] or ""
    digits = (found["whole"] + decimals).lstrip("0")
    if not found["whole"] + decimals or max(len(digits), len(decimals)) > MAX_DIGITS:
        return None
    shift = power - len(decimals)
    scale = Fraction(10) ** abs(shift)
    whole = Fraction(int(digits or "0"))
    return whole * scale if shift >= 0 else whole / scale


def ratio(numerator: Fraction | None, denominator: Fraction | None) -> Fraction | None:
    """Return numerator / denominator, or None where a side is missing or the divisor is 0."""
    if numerator is None or not denominator:
        return None
    return numerator / denominator


def mixed(whole: Fraction | None, part: Fraction | None) -> Fraction | None:
    """Return whole + part for a mixed number such as "1 1/2", or None.

    The whole must be an integer and the part a proper positive fraction; otherwise the two
    numbers are a product or a pair, which is no single number.
    """
    if whole is None or part is None or whole.denominator != 1 or not 0 < part < 1:
        return None
    return whole + part


def as_decimal(value: Fraction) -> ExactNumber:
    """Return the number with its shortest exact decimal text ("18.00" becomes "18").

    The value must have a finite decimal expansion, as every decimal literal has.
    """
    places = 0
    numerator, denominator = abs(value.numerator), value.denominator
    while denominator % 10 == 0:
        denominator //= 10
        places += 1
    while denominator > 1:
        factor = 5 if denominator % 2 == 0 else 2
        numerator *= factor
        denominator //= 10 // factor
        places += 1
    digits = str(numerator).rjust(places + 1, "0")
    text = digits if not places else f"{digits[:-places]}.{digits[-places:]}"
    return ExactNumber(value, f"-{text}" if value < 0 else text)


def as_ratio(value: Fraction) -> ExactNumber:
    """Return the number with its text in lowest terms: "1/2", or "18" for 36/2."""
    return ExactNumber(value, str(value))
