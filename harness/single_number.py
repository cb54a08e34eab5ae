"""Does a piece of text hold exactly one number, and which?

The content of a box, the line after ``####`` and a gold answer are all read by this rule:
one number, with units, currency, percent, separators, brackets and one ``name =`` aside
around it. Any operator, a second number or a word that changes the value (million, half,
minus) makes the text an expression or a phrase, and no answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.exact_number import ExactNumber
from harness.numerals import Numeral, Part, numeric_parts

_BLANK = frozenset(("space", "soft", "close"))
_WORDS = frozenset(("word", "letters"))
_SCALES = frozenset(("hundred", "thousand", "million", "billion", "trillion"))
_OPERATOR_WORDS = frozenset(("half", "minus", "negative", "plus", "divided"))
_VARIABLES = frozenset("biknquvwxyzBKMXYZ")


MAX_CHARACTERS = 20_000
"""Longest text that is read as one number and its surroundings; a longer one holds none."""


def single_number(text: str) -> ExactNumber | None:
    """Return the one number ``text`` holds, or None. Never raises; bounded time."""
    if len(text) > MAX_CHARACTERS:
        return None
    parts = numeric_parts(text)
    signs = [at for at, part in enumerate(parts) if _kind(part) == "equals"]
    if signs:
        name, parts = parts[: signs[0]], parts[signs[0] + 1 :]
        if not _is_name(name):
            return None
    return _one_value(parts)


def _kind(part: Part) -> str:
    return "numeral" if isinstance(part, Numeral) else part.kind


def _kind_at(parts: Sequence[Part], at: int) -> str:
    return _kind(parts[at]) if 0 <= at < len(parts) else ""


def _is_name(parts: Sequence[Part]) -> bool:
    """Return whether the left side of an equals sign names something and holds no number."""
    return all(
        _kind(part) == "symbol" or (_kind(part) != "numeral" and _is_decoration(parts, at))
        for at, part in enumerate(parts)
    )


def _one_value(parts: list[Part]) -> ExactNumber | None:
    numerals = [at for at, part in enumerate(parts) if isinstance(part, Numeral)]
    if len(numerals) != 1:
        return None
    parts = _take_leading_minus(parts, numerals[0])
    found: Numeral | None = None
    for at, part in enumerate(parts):
        if isinstance(part, Numeral):
            found = part
        elif not _is_decoration(parts, at) or _changes_value(part.kind, part.text):
            return None
    return found.read() if found else None


def _take_leading_minus(parts: list[Part], at: int) -> list[Part]:
    """Apply a sign that blanks, brackets or currency separate from the number: "- $5"."""
    before = parts[:at]
    numeral = parts[at]
    signs = [i for i, part in enumerate(before) if _kind(part) == "sign"]
    others = [part for part in before if _kind(part) not in ("sign", "space", "soft")]
    if len(signs) != 1 or others or not isinstance(numeral, Numeral) or numeral.negative:
        return parts
    sign = before.pop(signs[0])
    minus = not isinstance(sign, Numeral) and sign.text != "+"
    return [*before, numeral._replace(negative=minus), *parts[at + 1 :]]


def _changes_value(kind: str, text: str) -> bool:
    """Return whether a word scales or negates the number beside it, or is a variable."""
    word = text.lower()
    scales = word in _OPERATOR_WORDS or word.removesuffix("s") in _SCALES
    return kind == "word" and (scales or text in _VARIABLES)


def _is_decoration(parts: Sequence[Part], at: int) -> bool:
    """Return whether the part may stand beside a single number without changing it."""
    kind = _kind(parts[at])
    if kind in _BLANK or kind in _WORDS or kind == "unit":
        return True
    if kind in ("power", "subscript"):
        return _is_on_word(parts, at)
    if kind == "slash":
        return _before_unit(parts, at + 1)
    if kind == "sign":
        return _is_hyphen(parts, at)
    return kind == "star" and _is_emphasis(parts, at)


def _is_on_word(parts: Sequence[Part], at: int) -> bool:
    """Return whether an exponent or index belongs to a unit or a name, as in cm^2 and x_1."""
    bases = (*_WORDS, "symbol") if _kind(parts[at]) == "subscript" else (*_WORDS, "subscript")
    at -= 1
    while _kind_at(parts, at) == "close":
        at -= 1
    return _kind_at(parts, at) in bases


def _before_unit(parts: Sequence[Part], at: int) -> bool:
    while _kind_at(parts, at) in ("space", "soft"):
        at += 1
    return _kind_at(parts, at) in _WORDS


def _is_hyphen(parts: Sequence[Part], at: int) -> bool:
    """Return whether a dash joins words ("half-hour", "5-year") rather than subtracting."""
    left, right = _kind_at(parts, at - 1), _kind_at(parts, at + 1)
    if right not in _WORDS or left not in (*_WORDS, "numeral"):
        return False
    neighbours = [p for p in (parts[at - 1], parts[at + 1]) if not isinstance(p, Numeral)]
    return any(len(part.text) > 1 for part in neighbours)


def _is_emphasis(parts: Sequence[Part], at: int) -> bool:
    """Return whether asterisks mark Markdown emphasis: they touch text on one side only."""
    edges = ("", "space", "soft", "close")
    return (_kind_at(parts, at - 1) in edges) != (_kind_at(parts, at + 1) in edges)
