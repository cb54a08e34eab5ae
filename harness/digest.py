"""Canonical JSON, strict parsing and SHA-256 digests (contract, head).

The canonical form is ``json.dumps(obj, sort_keys=True, separators=(",", ":"),
ensure_ascii=True, allow_nan=False).encode()``; a digest is lower-case hex over it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import DocumentError
from harness.json_place import fault_path
from harness.reading import MAX_DOCUMENT_BYTES, open_regular

MAX_DEPTH = 64
"""Deepest nesting accepted in any document; far above every record of the contract."""

MAX_COMMAS = 1_000_000
"""Most commas in a document: what is parsed takes a hundred times the room of "[],"."""
_LARGEST_DIGITS = 308
"""Digits of the largest float64; a longer integer is as infinite as 1e400 is."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")

_CHUNK_BYTES = 1 << 20


def canonical_json(obj: Any) -> bytes:
    """Return the canonical bytes of a JSON value.

    Raises:
        DocumentError: for NaN, Infinity or a value JSON cannot hold.
    """
    try:
        text = json.dumps(
            obj, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
    except (TypeError, ValueError) as error:
        raise DocumentError(
            "a value has no canonical JSON form",
            expected="finite numbers, strings, booleans, null, arrays, objects",
            found=str(error),
        ) from error
    return text.encode()


def sha256_bytes(data: bytes) -> str:
    """Return the SHA-256 of ``data`` as lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_json(obj: Any) -> str:
    """Return the digest of a JSON value's canonical form."""
    return sha256_bytes(canonical_json(obj))


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a regular file's bytes, read in blocks of 1 MiB.

    Raises:
        StoreError: when it cannot be read or is no regular file.
    """
    hasher = hashlib.sha256()
    with open_regular(path, follow=True) as stream:
        while block := stream.read(_CHUNK_BYTES):
            hasher.update(block)
    return hasher.hexdigest()


def parse_json(text: str | bytes, *, where: str) -> Any:
    """Parse strict JSON: UTF-8, no duplicate keys, finite numbers, whole characters, bounded.

    At most 16 MiB, a million commas and 64 levels: hostile text costs bounded time and memory.

    Args:
        text: the document.
        where: the file or field that messages name.

    Raises:
        DocumentError: naming the place and the rule that was broken.
    """
    decoded = _decode(text, where)
    try:
        value = _STRICT.decode(decoded)
    except DocumentError as error:
        raise _placed(error, where, decoded) from None
    except (ValueError, RecursionError) as error:
        raise DocumentError(
            "the document is not strict JSON",
            expected="one JSON value",
            found=str(error) or "nesting too deep to parse",
            where=where,
            fix="correct the document there",
        ) from error
    surrogates = _SURROGATE.search(decoded) is not None
    # No value is deeper than its text has opening brackets; most records have two or three.
    if surrogates or decoded.count("{") + decoded.count("[") >= MAX_DEPTH:
        _check_levels(value, where, texts=surrogates)
    return value


def _placed(error: DocumentError, place: str, text: str) -> DocumentError:
    """Return the refusal with document and field, where the rest of the text can be parsed."""
    try:
        path = fault_path(text)
    except (ValueError, RecursionError):
        path = ""
    where = f"{place}, field {path}" if path else place
    return DocumentError(
        error.problem, expected=error.expected, found=error.found, where=where, fix=error.fix
    )


def _decode(text: str | bytes, where: str) -> str:
    commas = text.count(",") if isinstance(text, str) else text.count(b",")
    if len(text) > MAX_DOCUMENT_BYTES or commas > MAX_COMMAS:
        raise DocumentError(
            "the document is too large",
            expected=f"at most {MAX_DOCUMENT_BYTES} bytes and {MAX_COMMAS} commas",
            found=f"{len(text)} and {commas}",
            where=where,
        )
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError(
            "the document is not UTF-8",
            expected="UTF-8 text",
            found=f"{error.reason} at byte {error.start}",
            where=where,
        ) from error


def _refuse_constant(name: str) -> NoReturn:
    raise DocumentError(
        "the document holds a number JSON does not have",
        expected="a finite number",
        found=name,
        fix="write a finite number, or null where the field may be null",
    )


def _finite_float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        _refuse_constant(literal[:40])
    return value


def _finite_int(literal: str) -> int:
    if len(literal) > _LARGEST_DIGITS and len(literal.lstrip("-")) > _LARGEST_DIGITS:
        _refuse_constant(f"an integer of {len(literal)} digits")
    return int(literal)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    repeated = next(key for key, _ in pairs if key in seen or seen.add(key))
    raise DocumentError(
        "an object holds one key twice",
        expected="each key once",
        found=f"{repeated[:80]!r} again",
        fix="remove one of the two",
    )


_STRICT = json.JSONDecoder(
    parse_constant=_refuse_constant,
    parse_float=_finite_float,
    parse_int=_finite_int,
    object_pairs_hook=_unique_keys,
)
"""The standard parser, told what to refuse; made once, because rows are parsed by the thousand."""


def _check_levels(value: Any, where: str, *, texts: bool) -> None:
    """Refuse nesting beyond MAX_DEPTH, walking level by level rather than recursing.

    With ``texts`` half a surrogate pair is refused too: it is no character, no file and no
    terminal takes it, and readers differ in what they make of it.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        children: list[Any] = []
        for item in level:
            if texts and isinstance(item, str) and not item.isascii():
                _check_text(item, where)
            if isinstance(item, dict):
                if texts:
                    children.extend(item)
                children.extend(item.values())
            elif isinstance(item, list):
                children.extend(item)
        if not children:
            return
        level = children
    raise DocumentError(
        "the document is nested too deeply",
        expected=f"at most {MAX_DEPTH} levels",
        found="more",
        where=where,
    )


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DocumentError(
            "a text holds half a surrogate pair",
            expected="Unicode characters",
            found=ascii(text[error.start : error.start + 1]),
            where=where,
        ) from error
