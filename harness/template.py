"""``python -m harness template``: a valid spec to start from.

It is the committed experiment with its prose replaced by what belongs there, so every number in it
is one that was run before; nothing is made up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.digest import parse_json
from harness.reading import read_regular
from harness.spec import parse_spec

SAVED, LOCAL = "exp_6ba12d6b47.json", "local.json"
PROSE = {
    "title": "REPLACE: treatment against baseline on data set, in one line",
    "hypothesis": "REPLACE: what should be true, in one sentence that could be false",
    "method": "REPLACE: what the treatment arm does, exactly",
    "baseline": "REPLACE: what the baseline arm does, exactly",
    "success_criterion": "REPLACE: the decision rule below, in words",
    "primary_endpoint": "REPLACE: what is measured, on which items, from which checkpoint",
    "command": "REPLACE: pytest -m full --spec specs/NAME.json",
}
"""Fields that are prose: no number is ever read from them."""


def template_document(specs: Path, *, local: bool) -> dict[str, Any]:
    """Return a spec for the embedded service, or for a service that is named by its address.

    Raises:
        SpecError: when the committed spec it starts from is no longer valid.
    """
    path = specs / (LOCAL if local else SAVED)
    document = {**parse_json(read_regular(path), where=path.name), **PROSE}
    parse_spec(document, where=f"template from {path.name}")
    return document


def template_text(document: dict[str, Any]) -> str:
    """Return the document as indented JSON."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
