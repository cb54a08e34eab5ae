"""Secrets that were never anyone's, and a search for them that shares no code with the redactor."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from urllib.parse import quote

VARIABLES = (
    *("TINKER_CANARY_KEY", "HF_TOKEN", "MODAL_TOKEN_SECRET", "CANARY_SECRET_VALUE"),
    *("WANDB_API_KEY", "AWS_SESSION_TOKEN_X"),
)
SPECIAL = "/+ %&="


def canaries() -> dict[str, str]:
    """A value for each variable: half of them plain, half with characters that get quoted."""
    made: dict[str, str] = {}
    for number, name in enumerate(VARIABLES):
        digest = hashlib.sha256(f"canary {name}".encode()).hexdigest()
        made[name] = f"Cnry{digest[:12]}{SPECIAL if number % 2 else ''}{digest[12:24]}"
    return made


def spellings(value: str) -> dict[str, bytes]:
    """The spellings that are searched for; Base64 at each of its three alignments."""
    data = value.encode()
    found = {
        "plain": data,
        "quoted": quote(value).encode(),
        "quoted all": quote(value, "").encode(),
    }
    for shift in range(3):
        text = base64.b64encode(b"x" * shift + data + b"xyz")
        found[f"base64 at {shift}"] = text[4 : len(data) // 3 * 4 - 4]
        text = base64.urlsafe_b64encode(b"x" * shift + data + b"xyz")
        found[f"url base64 at {shift}"] = text[4 : len(data) // 3 * 4 - 4]
    return found


def leaks(data: bytes, values: dict[str, str]) -> list[str]:
    """Name every canary in ``data`` and how it is spelled there."""
    return [
        f"{name} ({spelling})"
        for name, value in values.items()
        for spelling, form in spellings(value).items()
        if form in data
    ]


def leaks_under(folder: Path, values: dict[str, str]) -> list[str]:
    """Name every file under a folder that holds a canary, by content or by name."""
    found: list[str] = []
    for path in sorted(folder.rglob("*")):
        found += [f"the name {path}" for _ in leaks(str(path).encode(), values)]
        if path.is_file() and not path.is_symlink():
            found += [
                f"{path.relative_to(folder)}: {leak}" for leak in leaks(path.read_bytes(), values)
            ]
    return found
