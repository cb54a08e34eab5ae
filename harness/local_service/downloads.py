"""Short-lived download links for external weights.

The SDK and the cookbook fetch these URLs without any header, so the link itself is the
permission: a random token, valid for fifteen minutes, for the files of one checkpoint.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from harness.local_service.refusals import RefusalError

VALID_FOR = timedelta(minutes=15)


@dataclass(frozen=True)
class Grant:
    """Leave to fetch the files of one folder until ``expires``."""

    folder: Path
    files: frozenset[str]
    expires: datetime


class Downloads:
    """Grants by token."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    def grant(self, folder: Path, files: list[str]) -> tuple[str, datetime]:
        """Return a new token and when it ends."""
        now = datetime.now(UTC)
        self._grants = {k: g for k, g in self._grants.items() if g.expires > now}
        token = secrets.token_urlsafe(32)
        self._grants[token] = Grant(folder, frozenset(files), now + VALID_FOR)
        return token, now + VALID_FOR

    def resolve(self, token: str, name: str) -> Path:
        """Return the granted file.

        Raises:
            RefusalError: 404 for an unknown or expired token, or a file outside the grant.
        """
        grant = self._grants.get(token)
        known = grant is not None and grant.expires > datetime.now(UTC) and name in grant.files
        if grant is None or not known:
            raise RefusalError("the download link is unknown or has expired", status=404)
        return grant.folder / name
