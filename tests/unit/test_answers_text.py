"""Answers outside a box: thinking, the ``####`` marker, the last number; and the line format."""

from __future__ import annotations

import json

import pytest

from harness.answers import final_number, grade_lines
from harness.errors import DocumentError

LAST = [
    ("The answer is 72, in total, so she is happy.", "72", "a comma alone is no number"),
    ("answer is 3 5", "5", "two numbers are never glued"),
    ("answer is 3\u00a05", "5", "a no-break space that groups nothing"),
    ("That makes $29.00.", "29", "currency, zeros, period"),
    ("The answer is (42).", "42", "brackets"),
    ("It is (3.14)", "3.14", "a decimal in brackets"),
    ("Final Answer: **73**", "73", "emphasis"),
    ("Final Answer: __73__", "73", "emphasis with underscores"),
    ("It is `73`.", "73", "code"),
    ("$1,234.00", "1234", "comma and cents"),
    ("42!", "42", "no factorial"),
    ("42...", "42", "an ellipsis"),
    ("She has 18kg.", "18", "a unit that touches"),
    ("The area is 18 cm^2.", "18", "the unit's exponent is no number"),
    ("The area is 18 cm^{2}", "18", "the unit's braced exponent"),
    ("The area is 18 cm²", "18", "the unit's superscript"),
    ("a total of 18 for x_1", "18", "an index is no number"),
    ("Room B12 holds 18, says B12", "18", "digits of a name"),
    ("3+4=7", "7", "the result of a sum"),
    ("pages 3-5", "5", "a range has no minus sign"),
    ("between $3-$5", "5", "a range of prices"),
    ("between $10$-$5$", "5", "a range of formulas"),
    ("It costs Rs.500", "500", "a period after a word is no decimal point"),
    ("1~2345", "2345", "a tie that groups nothing"),
    ("it changed by -5", "-5", "a sign"),
    ("it changed by \u22125.", "-5", "Unicode minus"),
    ("a loss: -$5", "-5", "sign and currency"),
    ("- 5 apples", "5", "a bullet is no sign"),
    ("the answer\u201418", "18", "an em dash is punctuation"),
    ("so it is 3/4.", "3/4", "a slash fraction"),
    (r"so it is $\frac{3}{4}$", "3/4", "a LaTeX fraction is one number"),
    (r"which is $1.5 \times 10^3$", "1500", "scientific notation"),
    ("答案是18。", "18", "no blanks around the number"),
    ("<<3*5=15>>15", "15", "calculator marks"),
    ("18\nThat is all\n", "18", "lines without a number after it"),
    ("it is v1.2.3", None, "a version"),
    ("1,2,3", None, "a malformed grouping is not read in part"),
    ("about 12,34,567", None, "a malformed grouping is not read in part"),
    ("on 1/2/2024", None, "a date is not read in part"),
    ("that is 2^10", None, "a power is not read in part"),
    ("it is 1½", None, "a vulgar fraction is not read in part"),
    ("I do not know.", None, "no number"),
    ("٣", None, "digits of another script"),
    ("", None, "empty"),
]


def read(text: str, *, finished: bool = True) -> str | None:
    found = final_number(text, finished=finished)
    return found.text if found else None


@pytest.mark.parametrize(("text", "prediction", "why"), LAST)
def test_the_last_number_of_a_finished_text_is_its_answer(
    text: str, prediction: str | None, why: str
) -> None:
    assert read(text) == prediction, f"{why}: read {read(text)!r}, expected {prediction!r}"


@pytest.mark.parametrize(("text", "prediction", "why"), LAST)
def test_an_unfinished_text_without_box_or_marker_has_none(
    text: str, prediction: str | None, why: str
) -> None:
    assert read(text, finished=False) is None, f"{why} ({prediction})"


@pytest.mark.parametrize(
    ("text", "prediction"),
    [
        ("3+4=7\n#### 7", "7"),
        ("#### 5\nNext.\n#### 18", "18"),
        ("#### 42.", "42"),
        ("#### 42\n" + "Because of the sum of 1 and 41. " * 20, "42"),
        ("#### 42\r\nBecause 41 + 1.", "42"),
        ("####42", "42"),
        ("##### 42", "42"),
        ("#### $1,234", "1234"),
        ("#### **42!**", "42"),
        ("#### x = 42 apples", "42"),
        ("#### 5 or 6", None),
        ("#### six", None),
        ("The answer is 18\n####", None),
        ("18 #### 5 #### 6", "6"),
    ],
)
def test_the_line_of_the_last_marker_decides(text: str, prediction: str | None) -> None:
    assert read(text) == prediction


def test_a_marked_number_that_the_token_limit_may_have_cut_is_no_answer() -> None:
    assert read("#### 4", finished=False) is None
    assert read("#### 4\nand", finished=False) == "4"


@pytest.mark.parametrize(
    ("text", "prediction"),
    [
        (r"<think>\boxed{5}</think>\boxed{7}", "7"),
        (r"<think>a</think>\boxed{7}<think>\boxed{5}</think>", "7"),
        (r"\boxed{7}<think>\boxed{5}", None),
        ("<think>18", None),
        ("<think>18</think>", None),
        ("<think>\n\n</think>\n\n18", "18"),
        ("5 so far</think>18", "18"),
        ("the answer is 5</think>", None),
        ("<think>a<think>b</think>18", "18"),
        ("1<think>x</think>8", "8"),
        (r"\boxed{1<think>x</think>8}", None),
    ],
)
def test_thinking_never_holds_the_answer(text: str, prediction: str | None) -> None:
    assert read(text) == prediction


def line(text: str, gold: str, *, finished: bool = True) -> str:
    return json.dumps({"id": "ignored", "text": text, "gold": gold, "finished": finished})


def test_lines_are_graded_in_order() -> None:
    graded = list(grade_lines([line(r"\boxed{18}", "18"), line("18", "18", finished=False)]))
    assert graded == [
        {"prediction": "18", "correct": True},
        {"prediction": None, "correct": False},
    ]


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "{",
        "[]",
        "3",
        '{"text": "18", "gold": "18"}',
        '{"text": "18", "gold": 18, "finished": true}',
        '{"text": null, "gold": "18", "finished": true}',
        '{"text": "18", "gold": "18", "finished": 1}',
        '{"text": "18", "text": "18", "gold": "18", "finished": true}',
        '{"text": "18", "gold": "none", "finished": true}',
    ],
)
def test_a_bad_line_is_named(bad: str) -> None:
    with pytest.raises(DocumentError, match="line 2"):
        list(grade_lines([line("18", "18"), bad]))
