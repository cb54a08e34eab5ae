"""Two JSON values or two lists of rows, field by field: what differs, and what must be expected to.

Two runs of one content agree in every number but differ in names and clocks: run and session ids,
addresses of checkpoints, attempts, seconds, the last bits of a sum. Those are listed apart. An id
is recognised by its form and cut out of a text, so that the rest of the text is still compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["different", "expected"]

EXPECTED_FIELDS = frozenset(
    {
        "at",
        "attempt",
        "base_url",
        "code",
        "duration_s",
        "observed_usage",
        "projected_gpu_hours",
        "projected_wall_seconds",
        "seconds",
        "step_s",
        "training_s",
    }
)
"""Fields of times, attempts, ports and the commit, which decides nothing (the content does)."""
_NAMES = re.compile(
    r"\d{8}T\d{6}Z-[0-9a-f]{8}(-\d+)?"  # runs and sessions of ours
    r"|session-[0-9a-f]+(:(train|sample):\d+)?"  # sessions of the embedded service
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(:(train|sample):\d+)?"
)
_CHECKPOINT = re.compile(r"tinker://[^/]+")
ROUNDING = 1e-12
"""Numbers this close, relative to the larger of themselves and 1, differ by the order of a sum."""
ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which two runs differ.

    Attributes:
        place: the field's path.
        first, second: its two values; ``(absent)`` where it is not there.
        kind: ``expected`` for a name or a clock, else ``different``.
        rows: in how many rows, for a field of rows.
    """

    place: str
    first: Any
    second: Any
    kind: Kind
    rows: int = 1


def compare_values(first: Any, second: Any, place: str = "") -> Iterator[Difference]:
    """Yield every leaf in which two JSON values differ."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in sorted({*first, *second}):
            at = f"{place}.{key}" if place else str(key)
            yield from compare_values(first.get(key, ABSENT), second.get(key, ABSENT), at)
    elif _is_list(first) and _is_list(second) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from compare_values(one, other, f"{place}[{index}]")
    elif type(first) is not type(second) or first != second:
        yield Difference(place, first, second, _kind(place, first, second))


def compare_rows(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> Iterator[Difference]:
    """Yield each field in which rows of one key differ: once, with the first case and their number.

    Args:
        first, second: rows in any order.
        keys: fields that together name a row; a row that only one side has is a difference.
    """
    ours, theirs = (_by_key(rows, keys) for rows in (first, second))
    for side, names in (("first", ours.keys() - theirs), ("second", theirs.keys() - ours)):
        if names:
            example = f"for example {min(names, key=str)}"
            found = (example, ABSENT) if side == "first" else (ABSENT, example)
            yield Difference(f"rows only in the {side} run", *found, "different", len(names))
    if len(first) != len(ours) or len(second) != len(theirs):
        yield Difference("rows", len(first), len(second), "different")
    fields: dict[tuple[str, Kind], list[tuple[str, Difference]]] = {}
    for name in (name for name in ours if name in theirs):
        for found in compare_values(ours[name], theirs[name]):
            fields.setdefault((found.place, found.kind), []).append((str(name), found))
    for (place, kind), cases in fields.items():
        name, example = cases[0]
        yield Difference(
            f"{place} (first at {name})", example.first, example.second, kind, len(cases)
        )


def _by_key(
    rows: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    return {tuple(row.get(key) for key in keys): row for row in rows}


def _kind(place: str, first: Any, second: Any) -> Kind:
    parts = {part.partition("[")[0] for part in place.split(".")}
    if parts & EXPECTED_FIELDS:
        return "expected"
    if isinstance(first, float) and isinstance(second, float):
        close = math.isclose(first, second, rel_tol=ROUNDING, abs_tol=ROUNDING)
        return "expected" if close else "different"
    if isinstance(first, str) and isinstance(second, str) and _nameless(first) == _nameless(second):
        return "expected"
    return "different"


def _nameless(text: str) -> str:
    return _NAMES.sub("NAME", _CHECKPOINT.sub("tinker://NAME", text))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
