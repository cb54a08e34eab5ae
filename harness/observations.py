"""Paired observations of a decision: where they are read from and what a row must be (contract §8).

A decision document holds ``observations`` inline or names exactly one ``observations_file`` with
its SHA-256. Reading checks form only; whether the rows are complete is for ``harness.decision``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from harness.digest import parse_json, sha256_bytes
from harness.errors import DocumentError
from harness.plain_rows import plain_rows, uncollected
from harness.record_version import refuse_other_version

MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_ROWS = 100_000

ROW_FIELDS = ("item_id", "arm", "seed", "metric", "value", "evaluator_id")
"""Exactly these fields make up a row; one more or one less is refused."""
_FIELDS = frozenset(ROW_FIELDS)
_IN_ORDER = itemgetter(*ROW_FIELDS)

_USUAL_TYPES = ({str, int}, {str}, {int}, {str}, {float, int}, {str})
"""Types of each field in a parsed row; true and false are no numbers."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Observation(NamedTuple):
    """One arm's score on one item with one seed, in the metric's own units, never clipped.

    A tuple, because there are 100 000 of them and all are made, compared and counted at once.
    """

    item_id: str | int
    arm: str
    seed: int
    metric: str
    value: float
    evaluator_id: str


def read_observations(document: Mapping[str, Any], folder: Path) -> tuple[Observation, ...]:
    """Return the rows of a decision document, in the order given.

    Args:
        document: ``{version: 1, observations | observations_file, …}``.
        folder: where the observations file is looked up; its name is never a path.

    Raises:
        DocumentError: for another version, both or neither source, a bad name or digest, a file
            or a row count beyond the limits, or a row of the wrong form.
    """
    refuse_other_version(document, "decision", where="decision")
    sources = [name for name in ("observations", "observations_file") if name in document]
    if len(sources) != 1:
        raise DocumentError(
            "a decision needs one source of rows",
            expected="observations or observations_file, not both",
            found=" and ".join(sources) or "neither",
            where="decision",
        )
    if sources == ["observations"]:
        return parse_rows(document["observations"], where="decision.observations")
    return _read_file(document["observations_file"], folder)


def parse_rows(rows: object, *, where: str) -> tuple[Observation, ...]:
    """Return an array of row objects as observations.

    Raises:
        DocumentError: naming the first row and field of the wrong form.
    """
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes):
        raise DocumentError(
            "observations are no array", expected="an array of rows", found=_kind(rows), where=where
        )
    if len(rows) > MAX_ROWS:
        raise DocumentError(
            "too many observations",
            expected=f"at most {MAX_ROWS} rows",
            found=str(len(rows)),
            where=where,
        )
    with uncollected():
        return _usual(rows) or tuple(
            _observation(row, f"{where}[{at}]") for at, row in enumerate(rows)
        )


def _usual(rows: Sequence[Any]) -> tuple[Observation, ...] | None:
    """Return rows that are all as JSON lines have them; None: each has to be looked at."""
    if set(map(type, rows)) != {dict} or set(map(len, rows)) != {len(ROW_FIELDS)}:
        return None
    try:
        found = tuple(map(Observation._make, map(_IN_ORDER, rows)))
    except KeyError:
        return None
    kinds = [set(map(type, column)) for column in zip(*found, strict=True)]
    return found if all(map(set.issubset, kinds, _USUAL_TYPES)) else None


def _observation(row: object, where: str) -> Observation:
    if isinstance(row, Observation):
        return row
    if not isinstance(row, Mapping) or set(row) != _FIELDS:
        found = sorted(map(str, row)) if isinstance(row, Mapping) else _kind(row)
        raise DocumentError(
            "an observation has other fields than the contract's",
            expected=", ".join(ROW_FIELDS),
            found=str(found)[:200],
            where=where,
        )
    for name, allowed in (("arm", str), ("metric", str), ("evaluator_id", str), ("seed", int)):
        _require(row[name], allowed, f"{where}.{name}")
    _require(row["item_id"], str | int, f"{where}.item_id")
    _require(row["value"], int | float, f"{where}.value")
    return Observation(**{str(name): value for name, value in row.items()})


def _require(value: object, allowed: Any, where: str) -> None:
    """Refuse a value of another JSON type; true and false are no numbers."""
    if isinstance(value, bool) or not isinstance(value, allowed):
        raise DocumentError(
            "an observation's field has the wrong type",
            expected=str(getattr(allowed, "__name__", allowed)),
            found=f"{_kind(value)} {value!r}"[:120],
            where=where,
        )


def _kind(value: object) -> str:
    return type(value).__name__


def _read_file(reference: object, folder: Path) -> tuple[Observation, ...]:
    name, digest = _reference(reference)
    path = folder / name
    if path.is_symlink() or not path.is_file():
        raise DocumentError(
            "the observations file is not there",
            expected="a regular file beside the decision",
            found="a symbolic link" if path.is_symlink() else "nothing",
            where=name,
        )
    with path.open("rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise DocumentError(
            "the observations file is too large",
            expected=f"at most {MAX_FILE_BYTES} bytes",
            found=f"{path.stat().st_size} bytes",
            where=name,
        )
    if sha256_bytes(data) != digest:
        raise DocumentError(
            "the observations file is not the one that was named",
            expected=f"sha256 {digest}",
            found=sha256_bytes(data),
            where=name,
            fix="write changed rows under a new name and name that",
        )
    return parse_rows(_rows_of(data, name), where=name)


def _reference(reference: object) -> tuple[str, str]:
    fields = reference if isinstance(reference, Mapping) else {}
    name, digest = fields.get("name"), fields.get("sha256")
    named = isinstance(name, str) and _PLAIN_NAME.fullmatch(name)
    hashed = isinstance(digest, str) and _SHA256.fullmatch(digest)
    if named and hashed and set(fields) == {"name", "sha256"}:
        return str(name), str(digest)
    raise DocumentError(
        "the observations file is not named as the contract asks",
        expected="{name: letters, digits, '.', '_' or '-' (no path), sha256: 64 lower-case hex}",
        found=repr(reference)[:200],
        where="decision.observations_file",
    )


def _rows_of(data: bytes, where: str) -> object:
    """Return the rows of a JSON array, of ``{"observations": […]}`` or of JSON lines."""
    lines = data.splitlines()
    with uncollected():
        rows = plain_rows(lines, len(ROW_FIELDS))
    if rows is not None and _are_finite(rows):
        return rows
    if data.lstrip()[:1] == b"[":
        return parse_json(data, where=where)
    if not lines or _is_row(lines[0]):
        return [parse_json(line, where=f"{where}, line {n}") for n, line in enumerate(lines, 1)]
    document = parse_json(data, where=where)
    if isinstance(document, dict) and set(document) == {"observations"}:
        return document["observations"]
    raise DocumentError(
        "the observations file has another form than the contract's",
        expected="JSON lines, an array of rows, or {observations: [rows]}",
        found=f"a JSON {_kind(document)}",
        where=where,
    )


def _are_finite(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether every number of flat rows is finite, as strict JSON asks."""
    numbers = (value for row in rows for value in row.values() if type(value) is float)
    return all(map(math.isfinite, numbers))


def _is_row(line: bytes) -> bool:
    """Return whether a file's first line is a whole JSON object without ``observations``."""
    try:
        value = parse_json(line, where="line 1")
    except DocumentError:
        return False
    return isinstance(value, dict) and "observations" not in value
