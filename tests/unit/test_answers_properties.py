"""Properties of the parser on hostile texts and on random numbers that the tests render."""

from __future__ import annotations

import re
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.answers import final_number

FAST = settings(derandomize=True, deadline=None, max_examples=300)
WORDS = st.text("abc .,;()\n", max_size=30)
LATEX = [r"\boxed{", r"\boxed", r"\frac{", r"\frac12", r"\text{", r"\$", r"\times", r"\,", r"\!"]
MARKS = [*"{}()$-\u2212+=/^_.,~*!%\\ \n\x00½²１٣x1e", "**", "^{", "^2", "_1", "####", "\\\\"]
FRAGMENTS = [*LATEX, *MARKS, "10^3", "23", "456", ",000", "1e5", "<think>", "</think>"]
HOSTILE = st.lists(
    st.sampled_from(FRAGMENTS) | st.text(st.characters(), max_size=4), max_size=40
).map("".join)


def grouped(digits: str, separator: str) -> str:
    """Write a separator before every third digit, from the right."""
    return re.sub(r"(?<=\d)(?=(?:\d{3})+$)", lambda _: separator, digits)


@st.composite
def written_numbers(draw: st.DrawFn) -> tuple[Fraction, str]:
    """Draw a value and one way to write it."""
    negative = draw(st.booleans())
    whole = draw(st.integers(0, 10**12))
    separator = draw(st.sampled_from(["", ",", "{,}", r",\!", r"\,", "\u2009", "\u202f", "~"]))
    form = draw(st.sampled_from(["decimal", "frac", "slash", "mixed", "exponent"]))
    digits = grouped(str(whole), separator)
    below = draw(st.integers(2, 999))
    above = draw(st.integers(1, below - 1))
    value, text = Fraction(whole), digits
    if form == "decimal":
        places = draw(st.text("0123456789", max_size=8))
        value += Fraction(int(places or "0"), 10 ** len(places))
        text = f"{digits}.{places}"
    elif form == "frac":
        value, text = Fraction(whole, below), f"\\frac{{{digits}}}{{{below}}}"
    elif form == "slash":
        value, text = Fraction(whole, below), f"{digits}/{below}"
    elif form == "mixed":
        value, text = whole + Fraction(above, below), f"{digits}\\frac{{{above}}}{{{below}}}"
    else:
        power = draw(st.integers(-30, 30))
        value, text = whole * Fraction(10) ** power, f"{digits}e{power}"
    sign = draw(st.sampled_from(["-", "\u2212", "-\\$", "\\$-"])) if negative else ""
    return (-value if negative else value), sign + text


@FAST
@given(written_numbers())
def test_every_notation_of_a_number_is_read_exactly(written: tuple[Fraction, str]) -> None:
    value, text = written
    found = final_number(f"\\boxed{{{text}}}", finished=True)
    assert found is not None, f"{text!r} was not read, expected {value}"
    assert found.value == value, f"{text!r} was read as {found.value}, expected {value}"


@FAST
@given(written_numbers(), WORDS)
def test_digit_free_text_around_a_box_changes_nothing(
    written: tuple[Fraction, str], words: str
) -> None:
    value, text = written
    found = final_number(f"{words} \\boxed{{{text}}} {words}", finished=True)
    assert found is not None
    assert found.value == value


@FAST
@given(HOSTILE, st.booleans())
def test_no_text_raises_and_predictions_read_back(text: str, finished: bool) -> None:
    found = final_number(text, finished=finished)
    if found is not None:
        assert re.fullmatch(r"-?\d+(\.\d*[1-9]|/\d+)?", found.text, re.ASCII), found.text
        again = final_number(f"\\boxed{{{found.text}}}", finished=True)
        assert again is not None, f"{text!r} gave {found.text!r}, which does not read back"
        assert (again.value, again.text) == (found.value, found.text)


@FAST
@given(HOSTILE)
def test_a_complete_last_box_counts_whether_or_not_the_text_was_cut(text: str) -> None:
    boxed = f"{text}</think> \\boxed{{18}}"
    cut, whole = (final_number(boxed, finished=finished) for finished in (False, True))
    assert cut == whole


@FAST
@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.sampled_from([" ", "  ", ", ", " and ", "; ", " = ", "\n", "\t", " or ", ": "]),
)
def test_two_numbers_are_never_one(first: int, second: int, between: str) -> None:
    pair = f"{first}{between}{second}"
    assert final_number(f"\\boxed{{{pair}}}", finished=True) is None
    last = final_number(f"They are {pair}.", finished=True)
    assert last is not None
    assert last.value == second, f"{pair!r} was read as {last.value}, expected {second}"


@FAST
@given(st.integers(), st.integers(), st.integers(1, 40))
def test_a_tiny_difference_is_a_difference(whole: int, digit: int, places: int) -> None:
    exact = f"{whole}.{'0' * places}{digit % 9 + 1}"
    found = final_number(f"\\boxed{{{exact}}}", finished=True)
    assert found is not None
    assert found.value != whole
    assert found.text == exact


def test_a_million_hostile_characters_are_read_in_a_bounded_number_of_steps() -> None:
    """No timing: a pattern that backtracks would not end within the session at all."""
    for piece in FRAGMENTS:
        body = piece * (200_000 // max(1, len(piece)))
        for text in (body, f"\\boxed{{{body}", f"#### {body}", f"{body}\\boxed{{18}}"):
            final_number(text, finished=True)
