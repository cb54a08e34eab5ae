"""One file of a bundle before it is taken: its name, its kind and its text without secrets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.digest import parse_json
from harness.errors import DocumentError
from harness.evidence_file import Kind
from harness.reading import MAX_ROWS_BYTES, read_regular
from harness.redact import Redactor


@dataclass(frozen=True)
class Piece:
    """One file to be: its name, its kind and its text."""

    name: str
    kind: Kind
    text: str


def redacted(piece: Piece, redactor: Redactor) -> str:
    """Return the text without secrets, byte for byte the run's own where it holds none."""
    if piece.name.endswith(".jsonl"):
        # Only line feeds end a line here: a text may hold other separators unescaped.
        lines = [line + "\n" for line in piece.text.split("\n") if line]
        return "".join(_redacted_json(line, redactor, piece.name) for line in lines)
    if piece.name.endswith(".json"):
        return _redacted_json(piece.text, redactor, piece.name)
    return redactor.redact(piece.text)


def _redacted_json(text: str, redactor: Redactor, where: str) -> str:
    value = parse_json(text, where=where)
    redacted = redactor.redact_json(value)
    return text if redacted == value else json.dumps(redacted, allow_nan=False) + "\n"


def document(value: Any) -> str:
    """Return the text of a JSON file."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"


def text_of(path: Path) -> str:
    """Return a file's text.

    Raises:
        DocumentError: when it is not UTF-8.
    """
    try:
        return read_regular(path, max_bytes=MAX_ROWS_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError(
            "the file is not UTF-8",
            expected="UTF-8 text",
            found=f"{error.reason} at byte {error.start}",
            where=str(path),
        ) from error
