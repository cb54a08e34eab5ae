"""Edit gate evidence and chain its lines again, as somebody would who knows the format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.digest import sha256_json

Edit = Callable[[dict[str, Any]], object]


def edit_events(path: Path, edit: Edit) -> None:
    """Apply an edit to every line of one session's evidence and write an unbroken chain."""
    previous, lines = "", []
    for line in path.read_text().splitlines():
        event = json.loads(line)
        del event["line_sha256"]
        edit(event)
        event["previous"] = previous
        previous = sha256_json(event)
        lines.append(json.dumps({**event, "line_sha256": previous}) + "\n")
    path.write_text("".join(lines))
