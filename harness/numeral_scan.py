"""A linear scanner that splits answer text into numerals and what stands around them.

It knows how models write numbers: thousands separators (ASCII, LaTeX and Unicode thin spaces),
LaTeX and slash fractions, mixed numbers, scientific notation, Unicode minus signs, unit
exponents (``cm^2``) and subscripts (``x_1``), which are part of a name and no numbers.
Only ASCII digits make numerals. Every pattern is possessive, so no input can make it backtrack.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

SIGNS = "-+\u2010\u2011\u2012\u2212\u2013\ufe63\uff0d"
"""Characters read as a sign or a hyphen; every one but "+" is a minus."""

GROUP_SPACE = r"\\[,;:! ]|~|[\u2006\u2007\u2009\u00a0\u202f]"
"""Pattern of the LaTeX and Unicode spaces that may separate groups of three digits."""

_ORDINAL = r"(?:st|nd|rd|th)"
_TOKEN = re.compile(
    rf"""
    (?P<frac>\\(?:[dtc]?frac|nicefrac|sfrac)(?![A-Za-z])
        \s*+(?:\{{(?P<top>[^{{}}]*+)\}}|(?P<top_digit>[0-9]))
        \s*+(?:\{{(?P<bottom>[^{{}}]*+)\}}|(?P<bottom_digit>[0-9])))
    |(?P<unit>\\?%|°|\\(?:degree|textdegree|percent)(?![A-Za-z])
        |\^\s*+(?:\\circ(?![A-Za-z])|\{{\s*+\\circ\s*+\}}|\{{{_ORDINAL}\}}
            |\\(?:text|mathrm)\{{{_ORDINAL}\}}|\{{\\(?:text|mathrm)\{{{_ORDINAL}\}}\}}))
    |(?P<power>\^\s*+(?:\{{\s*+[-+\u2212]?[0-9]{{1,4}}\s*+\}}|[-\u2212]?[0-9]++))
    |(?P<subscript>(?<=[A-Za-z0-9}})])_(?:\{{[^{{}}]*+\}}|[0-9A-Za-z]++))
    |(?P<space>(?:\s|[\u200b\u200c\u200d\u2060\ufeff]|~|\\[,;:!\s\\]
        |\\(?:q?quad|thinspace|enspace|nobreakspace)(?![A-Za-z]))++)
    |(?P<times>\\(?:times|cdot)(?![A-Za-z])|[×·⋅])
    |(?P<macro>\\[A-Za-z]++)
    |(?P<escape>\\.?)
    |(?P<number>(?:[0-9]{{1,3}}(?P<gap>{GROUP_SPACE})[0-9]{{3}}(?:(?P=gap)[0-9]{{3}})*+
            (?![0-9])(?:\.[0-9]++)?
        |[0-9]++(?:[.,][0-9]++)*+
        |(?<![\w.)])\.[0-9]++)
        (?:[eE][-+\u2212]?[0-9]++(?![0-9A-Za-z]|[.,][0-9]))?)
    |(?P<code>(?:Rs|USD|EUR|GBP|INR)(?=[0-9]))
    |(?P<word>[A-Za-z][A-Za-z0-9]*+(?:(?<=[0-9])\.[0-9]++)*+)
    |(?P<letters>[^\W_A-Za-z0-9]++)
    |(?P<sign>[{SIGNS}])
    |(?P<equals>=)
    |(?P<slash>[/\u2044\u2215])
    |(?P<star>\*++)
    |(?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)

_TRANSPARENT = re.compile(
    r"text(?:bf|it|rm|sf|tt|normal|style|color|dollar|euro|sterling)?|math(?:rm|bf|it|sf|tt)|[mh]box"
    r"|operatorname|bf|rm|it|emph|underline|boldsymbol|bm|boxed|fbox|left|right|[bB]ig"
    r"|displaystyle|color|large|Large|huge|unit|si|SI|qty|pounds|euro|dollar"
)
_SYMBOL = re.compile(
    r"alpha|beta|[gG]amma|[dD]elta|(?:var)?epsilon|zeta|eta|[tT]heta|[lL]ambda|mu|nu|xi|rho"
    r"|[sS]igma|tau|(?:var)?phi|Phi|chi|[pP]si|[oO]mega|ell|angle|triangle"
)
_SOFT_MARKS = frozenset(".,;:'\"`?#$()[]{}_。，、；：？！…")
_SOFT_CATEGORIES = frozenset(
    ("Sc", "So", "Mn", "Mc", "Me", "Cf", "Zs", "Ps", "Pe", "Pi", "Pf", "Pd")
)
_SOFT_ESCAPES = frozenset("$#{}()[]_")
_SUPERSCRIPTS = frozenset("⁰¹²³⁴⁵⁶⁷⁸⁹")
_SUBSCRIPTS = frozenset("₀₁₂₃₄₅₆₇₈₉")


class Token(NamedTuple):
    """One lexical unit: its kind, its text, and a fraction's two sides."""

    kind: str
    text: str
    top: str = ""
    bottom: str = ""


def scan(text: str) -> Iterator[Token]:
    """Yield the tokens of ``text``; concatenated, their texts give it back.

    Kinds: number, frac, unit, power, subscript, space, times, word, letters, foreign (a run
    with non-ASCII numerals at an end), symbol (Greek), sign, equals, slash, star, soft
    (punctuation, brackets, currency, transparent macros), close (a closing bracket), bang, other.
    """
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or "other"
        if kind == "frac":
            top = found["top"] or found["top_digit"] or ""
            yield Token(kind, found[0], top, found["bottom"] or found["bottom_digit"] or "")
        else:
            yield Token(_refined(kind, found[0]), found[0])


def _refined(kind: str, text: str) -> str:
    """Return the final kind of a token whose pattern alone does not settle it."""
    if kind == "macro":
        return _macro_kind(text[1:])
    if kind == "letters":
        return _letters_kind(text)
    if kind == "escape":
        return "soft" if text[1:] in _SOFT_ESCAPES else "other"
    if kind == "code":
        return "soft"
    return _mark_kind(text) if kind == "mark" else kind


def _letters_kind(run: str) -> str:
    if _SUPERSCRIPTS.issuperset(run):
        return "power"
    if _SUBSCRIPTS.issuperset(run):
        return "subscript"
    return "foreign" if run[0].isnumeric() or run[-1].isnumeric() else "letters"


def _macro_kind(name: str) -> str:
    if _TRANSPARENT.fullmatch(name):
        return "soft"
    return "symbol" if _SYMBOL.fullmatch(name) else "other"


@cache
def _mark_kind(mark: str) -> str:
    if mark == "!":
        return "bang"
    if mark in ")]}":
        return "close"
    if mark in _SOFT_MARKS or unicodedata.category(mark) in _SOFT_CATEGORIES:
        return "soft"
    return "other"
