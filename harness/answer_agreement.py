"""Does an independent answer confirm a label? Exact comparison only (contract §9)."""

from __future__ import annotations

import re
from fractions import Fraction

from harness.exact_number import ratio, read_decimal

STRATEGIES = ("numeric_exact", "categorical_exact")
"""The only comparisons that verify a label; under any other it stays unverified."""

_NUMBER = re.compile(r"(?P<sign>[-+\u2212]?)(?P<top>[0-9.,eE+-]+)(?:\s*/\s*(?P<bottom>[0-9]+))?")


def answer_agreement(label: object, answer: object, strategy: str | None) -> bool | None:
    """Return whether an independent answer confirms a label; None: unverified.

    Args:
        label: the task's own answer.
        answer: the resolver's.
        strategy: ``numeric_exact`` compares integers, decimals and fractions as exact rationals;
            ``categorical_exact`` compares non-blank strings character by character. Under any
            other strategy, or none, nothing is verified. What a strategy cannot read never
            agrees, not even with itself.
    """
    if strategy == "numeric_exact":
        expected = exact_value(label)
        return expected is not None and expected == exact_value(answer)
    if strategy == "categorical_exact":
        return isinstance(label, str) and bool(label.strip()) and label == answer
    return None


def exact_value(written: object) -> Fraction | None:
    """Return the exact value of a written number, or None where it is none.

    Reads "18", "-0.5", "1,234.50", "1.2e3", "3/4" and JSON numbers (a float counts as its
    shortest decimal). Units, currency, percent, mixed numbers and words make it no number.
    """
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        return None
    if isinstance(written, int):
        return Fraction(written)
    found = _NUMBER.fullmatch(str(written).strip())
    if found is None:
        return None
    value = read_decimal(found["top"])
    if found["bottom"] is not None:
        value = ratio(value, read_decimal(found["bottom"])) if found["top"].isdigit() else None
    return -value if value is not None and found["sign"] not in ("", "+") else value
