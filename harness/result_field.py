"""One value of a result document, by its path."""

from __future__ import annotations

import json
from typing import Any

from harness.errors import UsageError


def field_text(document: dict[str, Any], path: str) -> str:
    """Return the value at a dotted path: a string as it is, anything else as JSON.

    A name may itself hold dots (``primary_noninferiority.mean``): the longest name that is there
    is taken.

    Raises:
        UsageError: naming what there is at the place where the path ends.
    """
    value: Any = document
    rest = path.split(".")
    while rest:
        taken = _longest(value, rest)
        if not taken:
            raise UsageError(
                "the result has no such field",
                expected=f"one of {', '.join(_names(value)) or 'nothing: this is a value'}",
                found=".".join(rest),
                where=f"--field {path}",
                fix="name one of these, or leave --field out for the whole document",
            )
        name = ".".join(rest[:taken])
        value = value[int(name)] if isinstance(value, list) else value[name]
        rest = rest[taken:]
    return value if isinstance(value, str) else json.dumps(value, allow_nan=False)


def _longest(value: Any, rest: list[str]) -> int:
    names = _names(value)
    return next((n for n in range(len(rest), 0, -1) if ".".join(rest[:n]) in names), 0)


def _names(value: Any) -> list[str]:
    if isinstance(value, dict):
        return sorted(value)
    return [str(index) for index in range(len(value))] if isinstance(value, list) else []
