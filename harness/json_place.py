"""Where in a document a strict-JSON fault stands, as a field path such as ``arms[1].tau``.

The parser that refuses duplicate keys and NaN works from the inside out and knows no path. After a
refusal the text is parsed once more, leniently, with the faults marked, and the first is looked up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


class _Fault:
    """Stands where a value was that JSON does not have."""


class _Object(dict[str, Any]):
    """An object that remembers the keys it was given twice."""

    repeated: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    keys = [key for key, _ in pairs]
    made = _Object(pairs)
    made.repeated = tuple(key for key in dict.fromkeys(keys) if keys.count(key) > 1)
    return made


def _number(literal: str) -> Any:
    value = float(literal)
    return _Fault() if value in (float("inf"), float("-inf")) else value


def fault_path(text: str) -> str:
    """Return the path of the first duplicate key or impossible number, "" where there is none.

    Args:
        text: a document that is JSON but for such faults.
    """
    document = json.loads(
        text,
        object_pairs_hook=_object,
        parse_constant=lambda _: _Fault(),
        parse_float=_number,
    )
    return next(_faults(document, ""), "")


def _faults(value: Any, place: str) -> Iterator[str]:
    if isinstance(value, _Fault):
        yield place or "$"
    if isinstance(value, _Object):
        yield from (f"{place}.{key}".removeprefix(".") for key in value.repeated)
        for key, item in value.items():
            yield from _faults(item, f"{place}.{key}".removeprefix("."))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(item, f"{place}[{index}]")
