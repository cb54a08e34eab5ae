"""The head of a run's manifest: one digest that fixes every file, to be published elsewhere.

Whoever can write the run's folder can also write a new manifest over it. The head that was
published before tells the two apart.
"""

from __future__ import annotations

import re
from pathlib import Path

from harness.errors import UsageError
from harness.manifest import MANIFEST_NAME
from harness.manifest_entry import read_chain
from harness.reading import read_regular

_SHA256 = re.compile(r"[0-9a-f]{64}")


def parse_head(text: str) -> str:
    """Return a published head as given on a command line.

    Raises:
        UsageError: when it is not 64 lower-case hex digits.
    """
    if _SHA256.fullmatch(text):
        return text
    raise UsageError(
        "a manifest head is a SHA-256",
        expected="64 lower-case hex digits",
        found=repr(text[:80]),
        where="--head",
        fix="copy the last line that `python -m harness verify RUN` printed when the run ended",
    )


def head_line(folder: Path) -> str:
    """Return the line that ends ``verify``: the head to publish, or why there is none."""
    path = folder / MANIFEST_NAME
    if path.is_symlink() or not path.is_file():
        return "manifest head: none, there is no manifest"
    chain = read_chain(read_regular(path), MANIFEST_NAME)
    if chain.findings:
        return "manifest head: none, the manifest is broken"
    if not chain.is_sealed:
        return "manifest head: none yet, the manifest is not sealed"
    return f"manifest head: {chain.head}"
