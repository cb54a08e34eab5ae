"""Unknown fields of a spec, and the known field each was perhaps meant to be.

Unknown fields are kept (contract §1), so a misspelt optional field would silently take its default.
It is named instead, with the field it resembles, where that field is absent.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from harness.spec_part import SpecPart

SIMILAR = 0.7
"""Least ratio of matching characters at which a name counts as a misspelling."""


def did_you_mean(missing: str, parent: Any) -> str:
    """Return a hint where an object holds a field that resembles a missing one, else ""."""
    names = [str(name) for name in parent] if isinstance(parent, dict) else []
    close = get_close_matches(missing, names, n=1, cutoff=SIMILAR)
    return f"; found {close[0]!r}: did you mean {missing!r}?" if close else ""


def misspelt(part: SpecPart) -> list[str]:
    """Return a line for every unknown field that resembles a field that is absent beside it."""
    return [
        f"{path}: did you mean {meant!r}, which is absent?"
        for path, meant in _resemblances(part, "")
    ]


def unknown_fields(part: SpecPart) -> list[tuple[str, Any]]:
    """Return path and value of every field that the models do not know."""
    return [
        (prefix + name, value)
        for prefix, inner in _parts(part, "")
        for name, value in (inner.model_extra or {}).items()
    ]


def _resemblances(part: SpecPart, prefix: str) -> Iterator[tuple[str, str]]:
    for at, inner in _parts(part, prefix):
        absent = [name for name in type(inner).model_fields if name not in inner.model_fields_set]
        for name in inner.model_extra or {}:
            for meant in get_close_matches(name, absent, n=1, cutoff=SIMILAR):
                yield at + name, meant


def _parts(part: SpecPart, prefix: str) -> Iterator[tuple[str, SpecPart]]:
    """Yield a part and all parts inside it, each with the prefix of its fields' paths."""
    yield prefix, part
    for name in type(part).model_fields:
        yield from _parts_within(getattr(part, name), prefix + name)


def _parts_within(value: Any, at: str) -> Iterator[tuple[str, SpecPart]]:
    if isinstance(value, SpecPart):
        yield from _parts(value, f"{at}.")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _parts_within(item, f"{at}[{index}]")
