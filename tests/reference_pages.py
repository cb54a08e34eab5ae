"""Writes docs/spec.md and docs/gates.md, the latter with the defects that each gate must catch."""

from __future__ import annotations

import importlib
from pathlib import Path

from harness.reference_pages import gates_page, spec_page

DOCS = Path(__file__).parents[1] / "docs"
LISTS = (
    "client_mutants",
    "mode_mutants",
    "wiring_mutants",
    "verdict_mutants",
    "evidence_mutants",
    "service_faults",
)


def defects() -> dict[str, list[tuple[str, str]]]:
    """Return every planted defect by the gate, guard or test file that must catch it."""
    for name in LISTS:
        importlib.import_module(f"tests.mutants.{name}")
    from tests.mutants.client_registry import CLIENT_MUTANTS
    from tests.mutants.fault_registry import FAULTS

    found: dict[str, list[tuple[str, str]]] = {}
    for name, mutant in CLIENT_MUTANTS.items():
        found.setdefault(mutant.guard, []).append((name, mutant.effect))
    for name, fault in FAULTS.items():
        found.setdefault(fault.gate_id, []).append((name, fault.effect))
    return found


def pages() -> dict[str, str]:
    """Return the text of both pages by file name."""
    return {"spec.md": spec_page(), "gates.md": gates_page(defects())}


if __name__ == "__main__":
    for file_name, text in pages().items():
        (DOCS / file_name).write_text(text, encoding="utf-8")
