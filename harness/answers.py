"""The strict final-number parser and grader of evaluations (design §3.11, contract §7).

The first rule that applies decides:

1. Closed ``<think>…</think>`` blocks are dropped. An unclosed one means no answer. Text before
   a lone ``</think>`` is thinking whose opening tag stood in the prompt, and is dropped too.
2. If a box was opened (``\\boxed{`` or ``\\fbox{``), the last one opened decides: complete and
   holding exactly one number, or no answer.
3. Else, if there is a ``####``, the rest of the last one's line must hold exactly one number.
   In an unfinished text that line must have ended: its number could have been cut.
4. Else, for a finished text, the last number in it.
5. Numbers are ASCII and exact, never rounded and never evaluated. ``harness.numerals`` and
   ``harness.single_number`` say what is one number; malformed groupings ("12,34,567"), powers
   and chains ("1/2/2024") are not.

Nothing here raises on any text, and time is linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.digest import parse_json, sha256_file, sha256_json
from harness.errors import DocumentError
from harness.exact_number import ExactNumber
from harness.numerals import Numeral, numeric_parts
from harness.single_number import MAX_CHARACTERS, single_number

PARSER_ID = "strict_final_number/1"
"""The parser's name in an evaluator object (contract §7); a new behaviour is a new number."""

_SOURCES = ("answers", "exact_number", "numeral_scan", "numerals", "single_number")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*+\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_DIGIT = re.compile("[0-9]")
_LINE_END = re.compile(r"[\r\n]")
_MARKER = "####"
_THINK, _END_THINK = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Grade:
    """What a response answered, and whether that equals the gold answer exactly."""

    prediction: str | None
    correct: bool


def code_sha256() -> str:
    """Return the digest of the parser's source files, for the evaluator object."""
    folder = Path(__file__).parent
    return sha256_json({name: sha256_file(folder / f"{name}.py") for name in _SOURCES})


def final_number(text: str, *, finished: bool) -> ExactNumber | None:
    """Return the final number of a response, or None where it gives no answer.

    Args:
        text: the decoded response.
        finished: False where the token limit cut it.
    """
    spoken = _without_thinking(text)
    if spoken is None:
        return None
    boxes = list(_BOX.finditer(spoken))
    if boxes:
        content = _box_content(spoken, boxes[-1].end())
        return None if content is None else single_number(content)
    if _MARKER in spoken:
        line = _marked_line(spoken, finished=finished)
        return None if line is None else single_number(line.rstrip("!*_ \t"))
    return _last_number(spoken) if finished else None


def _without_thinking(text: str) -> str | None:
    """Return the text outside think blocks, or None if one is left open."""
    kept: list[str] = []
    at = 0
    while (start := text.find(_THINK, at)) >= 0:
        kept.append(text[at:start])
        end = text.find(_END_THINK, start)
        if end < 0:
            return None
        at = end + len(_END_THINK)
    kept.append(text[at:])
    # A blank where a block stood: digits on its two sides must not become one number.
    return " ".join(kept).rpartition(_END_THINK)[2]


def _box_content(text: str, start: int) -> str | None:
    """Return what stands between a box's braces, or None if they never close."""
    depth = 1
    for found in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if not depth:
            return text[start : found.start()]
    return None


def _marked_line(text: str, *, finished: bool) -> str | None:
    """Return the rest of the last marker's line, or None where it may have been cut."""
    rest = text[text.rindex(_MARKER) + len(_MARKER) :]
    end = _LINE_END.search(rest)
    if end:
        return rest[: end.start()]
    return rest if finished else None


def _last_number(text: str) -> ExactNumber | None:
    """Return the last number of a text; a number never runs over the end of a line."""
    for line in filter(_DIGIT.search, reversed(text.splitlines())):
        for part in reversed(numeric_parts(_around_last_digit(line))):
            if isinstance(part, Numeral):
                return part.read()
    return None


def _around_last_digit(line: str) -> str:
    """Return the stretch of a line that can hold its last number."""
    last = max(line.rfind(digit) for digit in "0123456789")
    return line[max(0, last - MAX_CHARACTERS) : last + MAX_CHARACTERS]


def gold_number(gold: str, *, where: str = "gold") -> ExactNumber:
    """Return the number of a gold answer: one number, boxed, or after the ``####`` marker.

    Raises:
        DocumentError: if it holds none. That is a fault of the data, never a wrong answer.
    """
    marked = _MARKER in gold or _BOX.search(gold)
    number = final_number(gold, finished=True) if marked else single_number(gold)
    if number is None:
        raise DocumentError(
            "a gold answer holds no single number",
            expected='one number, such as "18", "70,000" or "\\frac{2}{3}"',
            found=repr(gold[:80]),
            where=where,
            fix="correct the data set's row; it cannot be graded",
        )
    return number


def grade(text: str, gold: str, *, finished: bool, where: str = "gold") -> Grade:
    """Grade one response by exact equality of rationals.

    Raises:
        DocumentError: if the gold answer holds no number.
    """
    expected = gold_number(gold, where=where)
    found = final_number(text, finished=finished)
    if found is None:
        return Grade(None, correct=False)
    return Grade(found.text, correct=found.value == expected.value)


def grade_lines(
    lines: Iterable[str | bytes], name: str = ""
) -> Iterator[dict[str, str | bool | None]]:
    """Yield ``{"prediction", "correct"}`` for each JSONL line ``{"text", "gold", "finished"}``.

    Other fields of a line are ignored; ``name`` is the file that messages name.

    Raises:
        DocumentError: naming the line that is not strict JSON, lacks a field or has a bad gold.
    """
    for number, line in enumerate(lines, start=1):
        where = f"{name} line {number}".lstrip()
        text, gold, finished = _row(parse_json(line, where=where), where)
        graded = grade(text, gold, finished=finished, where=f"{where}, field gold")
        yield {"prediction": graded.prediction, "correct": graded.correct}


def _row(row: Any, where: str) -> tuple[str, str, bool]:
    fields: Mapping[str, Any] = row if isinstance(row, dict) else {}
    text, gold, finished = (fields.get(name) for name in ("text", "gold", "finished"))
    if isinstance(text, str) and isinstance(gold, str) and isinstance(finished, bool):
        return text, gold, finished
    raise DocumentError(
        "a line is no response to grade",
        expected='an object with "text" (string), "gold" (string) and "finished" (true or false)',
        found=repr(row)[:80],
        where=where,
    )
