"""One file of a written bundle, as its exports describe it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

MEDIA_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".py": "text/x-python",
    ".diff": "text/x-diff",
}
"""IANA's type where there is one, else the unregistered one in use, which its ``x-`` says."""


@dataclass(frozen=True)
class BundledFile:
    """A file in the bundle's folder.

    Attributes:
        name: plain name; letters, digits, ``.``, ``_`` and ``-`` only, so it is its own URI.
        kind: the kind in the evidence record.
        size_bytes: bytes on disk.
        sha256: digest of those bytes.
    """

    name: str
    kind: str
    size_bytes: int
    sha256: str

    @property
    def media_type(self) -> str:
        """The media type by the name's suffix; plain text for any other."""
        return MEDIA_TYPES.get(PurePosixPath(self.name).suffix, "text/plain")
