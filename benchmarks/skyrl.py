"""The same experiment on SkyRL's CPU backend: measured once, by hand, and read from its record.

SkyRL is no part of this project's pinned set, so ``make bench`` does not run it. Who has made it
run writes ``benchmarks/skyrl.json``; without that file the row says that nothing was measured.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.rows import Row
from harness.digest import parse_json
from harness.errors import DocumentError

RECORD = ROOT / "benchmarks" / "skyrl.json"
_FIELDS = {"value": int | float, "unit": str, "method": str, "date": str, "versions": dict}
NAME = "the same experiment on SkyRL's CPU backend, this one's time over SkyRL's"


def recorded(path: Path = RECORD) -> Row:
    """Return the row of the recorded measurement.

    Args:
        path: ``{value, unit, method, date, versions}``; ``value`` is this project's time divided
            by SkyRL's (unit ``x``), so that less than 1 is faster.

    Raises:
        DocumentError: for a file of another form; half a record is no measurement.
    """
    if not path.exists():
        why = f"there is no {path.name}: SkyRL's CPU backend was not made to run here"
        return Row(NAME, "SkyRL", None, "x", most=1.0, why=why)
    found: Any = parse_json(path.read_bytes(), where=path.name)
    if not isinstance(found, dict) or not _is_record(found):
        raise DocumentError(
            "the measurement of SkyRL has another form",
            expected=", ".join(_FIELDS),
            found=repr(found)[:200],
            where=path.name,
            fix="record all five fields, or remove the file",
        )
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return Row(
        NAME,
        f"SkyRL, measured once on {found['date']}",
        float(found["value"]),
        found["unit"],
        most=1.0 if found["unit"] == "x" else None,
        why="SkyRL was faster in that measurement",
        note=f"method: {found['method']} ({versions})",
        facts=found,
    )


def _is_record(found: dict[str, Any]) -> bool:
    if found.keys() != _FIELDS.keys():
        return False
    typed = all(isinstance(found[name], kind) for name, kind in _FIELDS.items())
    return typed and not isinstance(found["value"], bool) and math.isfinite(found["value"])
