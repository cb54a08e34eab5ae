"""Numerals in running text: which neighbouring tokens make up one written number.

"3/4", "1 1/2", "1.2 \\times 10^3" and "-$5" are one numeral each; "2^3", "1/2/2024", "0x1F" and
"1½" are numeric but no single number, and are kept as broken numerals, so that no part of them
is ever mistaken for an answer. Values are computed only when asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from harness.exact_number import (
    ExactNumber,
    as_decimal,
    as_ratio,
    mixed,
    ratio,
    read_decimal,
)
from harness.numeral_scan import GROUP_SPACE, Token, scan

_MINUS = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2212\u2013\ufe63\uff0d", "-"))
_GAP = re.compile(GROUP_SPACE)
_OPERANDS = frozenset(
    ("word", "letters", "foreign", "symbol", "unit", "power", "subscript", "close", "sign")
)


class Numeral(NamedTuple):
    """One written number, possibly unreadable.

    Attributes:
        whole: literal of the number, or of a mixed number's integer part; "" for a bare ratio.
        top, bottom: literals of a ratio's sides; "" without one.
        negative: whether a minus sign applies to the whole.
        broken: numeric text that is no single number.
    """

    whole: str = ""
    top: str = ""
    bottom: str = ""
    negative: bool = False
    broken: bool = False

    def read(self) -> ExactNumber | None:
        """Return the exact value, or None where this is no single number."""
        if self.broken:
            return None
        value = _value(self.whole) if self.whole else Fraction(0)
        if self.bottom:
            part = ratio(_value(self.top), _value(self.bottom))
            value = mixed(value, part) if self.whole else part
        if value is None:
            return None
        value = -value if self.negative else value
        return as_ratio(value) if self.bottom else as_decimal(value)


Part = Token | Numeral


def _value(literal: str) -> Fraction | None:
    """Return the value of a literal that may carry a sign, spaces and group separators."""
    plain = literal.strip().translate(_MINUS)
    unsigned = plain[1:].lstrip() if plain[:1] in ("-", "+") else plain
    value = read_decimal(_ungapped(unsigned))
    return -value if value is not None and plain.startswith("-") else value


def _ungapped(literal: str) -> str:
    """Drop LaTeX and thin-space separators, whose placing the scanner has checked."""
    inner = list(scan(literal))
    return _GAP.sub("", literal) if [t.kind for t in inner] == ["number"] else literal


def numeric_parts(text: str) -> list[Part]:
    """Return the text as numerals and the tokens between them, in order. Linear time."""
    tokens = list(scan(_plain_commas(text)))
    parts: list[Part] = []
    here = 0
    while here < len(tokens):
        if tokens[here].kind in ("number", "frac"):
            numeral, here = _numeral(tokens, here)
            parts.append(_with_context(parts, numeral))
        else:
            parts.append(tokens[here])
            here += 1
    return parts


def _plain_commas(text: str) -> str:
    """Write LaTeX thousands commas, ``{,}`` and ``,\\!``, as plain ones."""
    return text.replace("{,}", ",").replace(",\\!", ",")


def _kind(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].kind if at < len(tokens) else ""


def _past_space(tokens: Sequence[Token], at: int) -> int:
    return at + 1 if _kind(tokens, at) == "space" else at


def _numeral(tokens: Sequence[Token], at: int) -> tuple[Numeral, int]:
    """Return the numeral that starts at a number or fraction token, and the index after it."""
    first = tokens[at]
    if first.kind == "frac":
        return _closed(Numeral(top=first.top, bottom=first.bottom), tokens, at + 1)
    for form in (_scientific, _ratio, _mixed):
        if found := form(tokens, at):
            return _closed(*found)
    return _closed(Numeral(whole=first.text), tokens, at + 1)


_Found = tuple[Numeral, Sequence[Token], int]


def _scientific(tokens: Sequence[Token], at: int) -> _Found | None:
    """Match ``1.2 \\times 10^{3}``."""
    sign_at = _past_space(tokens, at + 1)
    ten_at = _past_space(tokens, sign_at + 1)
    kinds = (_kind(tokens, sign_at), _kind(tokens, ten_at), _kind(tokens, ten_at + 1))
    if kinds != ("times", "number", "power") or tokens[ten_at].text != "10":
        return None
    power = tokens[ten_at + 1].text.translate(_MINUS).strip("^{} \t\n")
    if not power.lstrip("+-").isascii() or "e" in tokens[at].text.lower():
        return Numeral(broken=True), tokens, ten_at + 2
    return Numeral(whole=f"{tokens[at].text}e{power}"), tokens, ten_at + 2


def _ratio(tokens: Sequence[Token], at: int) -> _Found | None:
    """Match ``3/4``, ``3 / 4`` and ``3/-4``."""
    slash = _past_space(tokens, at + 1)
    if _kind(tokens, slash) != "slash":
        return None
    below = _past_space(tokens, slash + 1)
    sign = tokens[below].text if _kind(tokens, below) == "sign" else ""
    below += bool(sign)
    if _kind(tokens, below) != "number":
        return None
    bottom = sign + tokens[below].text
    return Numeral(top=tokens[at].text, bottom=bottom), tokens, below + 1


def _mixed(tokens: Sequence[Token], at: int) -> _Found | None:
    """Match ``1\\frac{1}{2}`` and ``1 1/2`` (one blank)."""
    next_at = _past_space(tokens, at + 1)
    if _kind(tokens, next_at) == "frac":
        part = tokens[next_at]
        return Numeral(tokens[at].text, part.top, part.bottom), tokens, next_at + 1
    kinds = [_kind(tokens, i) for i in range(at + 1, at + 5)]
    if kinds != ["space", "number", "slash", "number"] or tokens[at + 1].text != " ":
        return None
    top, bottom = tokens[at + 2].text, tokens[at + 4].text
    return Numeral(tokens[at].text, top, bottom), tokens, at + 5


def _closed(numeral: Numeral, tokens: Sequence[Token], end: int) -> tuple[Numeral, int]:
    """Break the numeral where what follows makes it part of something larger."""
    if _kind(tokens, end) == "slash" and _kind(tokens, end + 1) == "number" and numeral.bottom:
        while _kind(tokens, end) == "slash" and _kind(tokens, end + 1) == "number":
            end += 2
        return Numeral(broken=True), end
    if _kind(tokens, end) == "power":
        return Numeral(broken=True), end + 1
    if _continues(tokens, end) or _kind(tokens, _past_space(tokens, end)) == "foreign":
        return Numeral(broken=True), end
    return numeral, end


def _continues(tokens: Sequence[Token], end: int) -> bool:
    if end >= len(tokens):
        return False
    after = tokens[end]
    if after.kind == "word":
        return not after.text.isalpha()
    return after.kind in ("subscript", "frac", "number") or after.text == "^"


def _with_context(parts: list[Part], numeral: Numeral) -> Numeral:
    """Take in a sign directly before the numeral, and break it after a numeric neighbour.

    A sign counts only where nothing stands before it that it could join: "3-5" is a range.
    """
    before = parts[-1] if parts else None
    if isinstance(before, Numeral) or (before is not None and before.kind == "foreign"):
        return Numeral(broken=True)
    at = len(parts)
    while at and _is_currency(parts[at - 1]):
        at -= 1
    if not at or not _is(parts[at - 1], "sign") or _joins(parts, at - 2):
        return numeral
    sign = parts.pop(at - 1)
    if isinstance(sign, Numeral) or sign.text == "+":
        return numeral
    return numeral._replace(negative=True)


def _is(part: Part, kind: str) -> bool:
    return isinstance(part, Token) and part.kind == kind


def _is_currency(part: Part) -> bool:
    return isinstance(part, Token) and part.kind == "soft" and part.text in "$\\$€£¥₹¢"


def _joins(parts: Sequence[Part], at: int) -> bool:
    """Return whether the part there, looking through dollar signs, is an operand."""
    while at >= 0 and _is_currency(parts[at]):
        at -= 1
    if at < 0:
        return False
    part = parts[at]
    return isinstance(part, Numeral) or part.kind in _OPERANDS
