"""What a box holds: exactly one number with its surroundings, or no answer.

Each vector names the fault it is for; ``None`` means "no answer".
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from harness.answers import final_number, gold_number, grade
from harness.errors import DocumentError

ONE_NUMBER = [
    (r"18", "18", "a plain number"),
    (r"18.00", "18", "trailing zeros"),
    (r"0.10", "0.1", "a trailing zero of a fraction part"),
    (r"17.999999999", "17.999999999", "never rounded"),
    (r"8.5", "8.5", "never rounded to an integer"),
    (r"007", "7", "leading zeros"),
    (r".5", "0.5", "no leading digit"),
    (r"5.", "5", "a trailing period"),
    (r"-0", "0", "zero has no sign"),
    (r"8,000", "8000", "thousands comma"),
    (r"1,234,567.89", "1234567.89", "commas and decimals"),
    (r"1{,}500", "1500", "LaTeX comma"),
    (r"1,\!234,\!567", "1234567", "comma with negative space"),
    (r"1\,200", "1200", "LaTeX thin space"),
    (r"1\;200\;300", "1200300", "LaTeX medium space, twice"),
    (r"1~000", "1000", "LaTeX tie"),
    ("1\u2009200", "1200", "Unicode thin space"),
    ("1\u202f234\u202f567", "1234567", "narrow no-break space"),
    (r"\$18", "18", "currency"),
    (r"$18$", "18", "math delimiters"),
    (r"\$1,234.00", "1234", "currency, comma and cents"),
    ("€18", "18", "euro sign"),
    ("£2.50", "2.5", "pound sign"),
    ("₹1,500", "1500", "rupee sign"),
    ("Rs500", "500", "a currency code touching the number"),
    ("US$5", "5", "letters before the currency sign"),
    (r"60\%", "60", "escaped percent"),
    (r"60%", "60", "percent"),
    (r"90^\circ", "90", "degrees"),
    (r"90^{\circ}\text{C}", "90", "degrees with a unit"),
    ("90°", "90", "degree sign"),
    (r"18 \text{ dollars}", "18", "unit in text"),
    (r"18 dollars", "18", "bare unit"),
    (r"18\,\mathrm{kg}", "18", "thin space before a unit is no separator"),
    (r"18\text{ cm}^2", "18", "the exponent belongs to the unit"),
    (r"18~\mathrm{m}^{3}", "18", "braced exponent of a unit"),
    ("18 cm²", "18", "superscript of a unit"),
    (r"18\text{ m/s}", "18", "a slash between units"),
    (r"\$5/\text{hour}", "5", "a rate"),
    (r"5-year", "5", "hyphen before a unit"),
    (r"3^{\text{rd}}", "3", "an ordinal"),
    (r"\textbf{18}", "18", "bold macro"),
    (r"\text{\textbf{18 eggs}}", "18", "nested macros"),
    (r"**18**", "18", "Markdown emphasis"),
    (r"_18_", "18", "Markdown emphasis, underscores"),
    (r"\left(18\right)", "18", "brackets"),
    (r"\{5\}", "5", "escaped braces"),
    (r"18 \\", "18", "a line break"),
    (r"x = 5", "5", "an aside"),
    (r"x_1 = 5", "5", "the index of a name is no number"),
    (r"x_{12}=5", "5", "braced index"),
    (r"\theta = -5", "-5", "Greek name"),
    (r"\text{Total cost} = \$5", "5", "words and currency"),
    (r"\text{Answer: } 5", "5", "a label"),
    (r"-5", "-5", "sign"),
    (r"+5", "5", "plus"),
    (r"- 5", "-5", "a sign apart"),
    (r"-\$5", "-5", "sign before the currency"),
    (r"\$-5", "-5", "sign after the currency"),
    (r"(-5)", "-5", "sign in brackets"),
    (r"-(5)", "-5", "sign before brackets"),
    ("\u22125", "-5", "Unicode minus"),
    ("\u20135", "-5", "en dash as minus"),
    (r"1.2e3", "1200", "exponent"),
    (r"1.2E+3", "1200", "exponent with a sign"),
    (r"12e-1", "1.2", "negative exponent"),
    (r"1.2 \times 10^3", "1200", "scientific notation in LaTeX"),
    (r"1.2\times10^{-3}", "0.0012", "negative power of ten"),
    (r"\frac{36}{2}", "18", "an integer fraction"),
    (r"\dfrac{1}{2}", "1/2", "display fraction"),
    (r"\tfrac12", "1/2", "fraction without braces"),
    (r"\frac1{2}", "1/2", "half braced"),
    (r"-\frac{1}{2}", "-1/2", "sign before a fraction"),
    (r"\frac{-1}{2}", "-1/2", "sign inside a fraction"),
    (r"\frac{1,000}{4}", "250", "a comma inside a fraction"),
    (r"2/3", "2/3", "slash"),
    (r"-2/3", "-2/3", "signed slash"),
    (r"36 / 2", "18", "spaced slash"),
    (r"1\frac{1}{2}", "3/2", "mixed number"),
    (r"-1\frac12", "-3/2", "the sign takes the whole mixed number"),
    (r"2 1/2", "5/2", "mixed number with a slash"),
    ("1e500", "1" + "0" * 500, "the largest power"),
    ("18元", "18", "a unit in another script"),
    ("18\u200b", "18", "zero-width space"),
]

NO_NUMBER = [
    ("", "empty"),
    ("   ", "blank"),
    ("eighteen", "words"),
    ("5 or 6", "two numbers"),
    ("5, 6", "a list"),
    ("(3,5)", "a pair"),
    ("5 6", "never glued"),
    (r"\text{1}\text{8}", "never glued across macros"),
    ("{1}{8}", "never glued across braces"),
    ("1 200", "a plain blank separates numbers"),
    (r"3\,5", "a thin space that groups nothing"),
    ("1,23", "a malformed grouping"),
    ("12,34,567", "a malformed grouping"),
    ("1.234.567", "another country's grouping"),
    ("0,500", "a comma that could be a decimal point"),
    ("2+3", "a sum"),
    (r"2\times 3", "a product"),
    (r"2 \cdot 10", "a product with ten"),
    ("10-5", "a difference"),
    ("--5", "two signs"),
    (r"\pm 5", "two values"),
    ("3-5", "a range"),
    ("10:30", "a time"),
    ("2^3", "a power"),
    ("5²", "a power in superscript"),
    (r"{5}^2", "a power of a group"),
    (r"9^{9^{9^9}}", "a tower of powers"),
    (r"\sqrt{4}", "a root"),
    ("5!", "a factorial"),
    ("|5|", "an absolute value"),
    ("2x", "a term"),
    (r"2\pi", "a multiple of pi"),
    ("x - 5", "an expression with one number"),
    ("x + y = 5", "the left side is no name"),
    ("2x = 10", "the left side holds a number"),
    ("5 = 5", "two numbers"),
    ("5 = x", "the aside comes first"),
    ("x = y = 5", "two equals signs"),
    (r"\approx 5", "an approximation"),
    ("< 5", "a bound"),
    ("1/0", "division by zero"),
    (r"\frac{1}{0}", "division by zero"),
    (r"\frac{x}{2}", "a fraction of a variable"),
    (r"3\frac{5}{2}", "no proper fraction: a product"),
    ("1/2/3", "a chain"),
    ("5 million", "a word that scales"),
    ("5k", "a letter that scales"),
    ("minus 5", "a word that negates"),
    ("0x1F", "hexadecimal"),
    ("1½", "a vulgar fraction beside a number"),
    ("5 万", "a numeral of another script that scales"),
    ("１８", "full-width digits"),
    ("٣", "Arabic digits"),
    ("x1", "a name"),
    ("1e999999999", "a number too large to hold"),
    ("1e501", "beyond the largest power"),
    ("9" * 5000, "a number too long to hold"),
    ("18" + " " * 30_000, "far too much around it"),
    ("18 \ud800", "a lone surrogate"),
]


def boxed(content: str, *, finished: bool = True) -> str | None:
    found = final_number(f"So the answer is \\boxed{{{content}}}.", finished=finished)
    return found.text if found else None


@pytest.mark.parametrize(("content", "prediction", "why"), ONE_NUMBER)
@pytest.mark.parametrize("finished", [True, False])
def test_a_box_with_one_number_is_read(
    content: str, prediction: str, why: str, finished: bool
) -> None:
    found = boxed(content, finished=finished)
    assert found == prediction, f"{why}: read {found!r}, expected {prediction!r}"


@pytest.mark.parametrize(("content", "why"), NO_NUMBER)
def test_a_box_without_exactly_one_number_is_no_answer(content: str, why: str) -> None:
    found = boxed(content)
    assert found is None, f"{why}: read {found!r}, expected no answer"


@pytest.mark.parametrize(
    ("text", "prediction"),
    [
        (r"\boxed{5}. No: \boxed{7}", "7"),
        (r"\boxed{840} and again \boxed{840}", "840"),
        (r"\boxed{18} but wait, \boxed{", None),
        (r"\boxed{18} but wait, \boxed{7", None),
        (r"The answer is 18. \boxed{}", None),
        (r"\boxed{18}. I used 3 steps.", "18"),
        (r"\boxed{18} #### 5", "18"),
        (r"\boxed {18}", "18"),
        (r"\fbox{18} after 3 tries", "18"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{\text{a\}}18}", "18"),
        (r"Use \boxed here: \boxed{18}, not a bare \boxed", "18"),
        (r"\boxedness 18", "18"),
        (r"\boxed 12", "12"),
    ],
)
def test_the_last_opened_box_decides(text: str, prediction: str | None) -> None:
    found = final_number(text, finished=True)
    assert (found.text if found else None) == prediction


@pytest.mark.parametrize(
    ("gold", "value"),
    [
        ("18", Fraction(18)),
        ("70,000", Fraction(70000)),
        ("-5", Fraction(-5)),
        (r"\frac{2}{3}", Fraction(2, 3)),
        ("0.5", Fraction(1, 2)),
        ("3 + 4 = 7\n#### 7", Fraction(7)),
        (r"\boxed{7}", Fraction(7)),
    ],
)
def test_gold_answers_are_read_by_the_same_rules(gold: str, value: Fraction) -> None:
    assert gold_number(gold).value == value


@pytest.mark.parametrize("gold", ["", "eighteen", "5 or 6", "#### none", "1/0"])
def test_a_gold_without_a_number_is_a_fault_of_the_data(gold: str) -> None:
    with pytest.raises(DocumentError, match="row 3"):
        grade(r"\boxed{18}", gold, finished=True, where="row 3")


def test_grading_compares_exact_values_not_texts() -> None:
    assert grade(r"\boxed{\dfrac{1}{2}}", "0.5", finished=True).correct
    assert grade(r"\boxed{1.5e1}", "15.0", finished=True).correct
    assert not grade(r"\boxed{0.3333333333333333}", r"\frac{1}{3}", finished=True).correct
    assert not grade(r"\boxed{9007199254740993}", "9007199254740992", finished=True).correct
