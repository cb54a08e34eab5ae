"""The generated pages are current, and every field has a meaning and every gate its defects."""

from __future__ import annotations

from mini_project import ROOT

from harness.gates.catalog import CATALOG
from harness.reference_pages import RENEW, missing_meanings
from tests.reference_pages import defects, pages


def test_the_committed_pages_are_current() -> None:
    for name, text in pages().items():
        committed = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert committed == text, f"docs/{name} is stale; renew it with: {RENEW}"


def test_every_field_has_a_meaning_and_every_meaning_a_field() -> None:
    assert missing_meanings() == []


def test_the_gates_page_names_every_gate_and_planted_defect() -> None:
    text = pages()["gates.md"]
    for entry in CATALOG:
        assert f"## {entry.gate_id}\n" in text
        for name, effect in defects().get(entry.gate_id, ()):
            assert f"  - `{name}`: {effect}\n" in text, name


def test_the_artifacts_page_names_every_file_of_a_run() -> None:
    text = (ROOT / "docs" / "artifacts.md").read_text(encoding="utf-8")
    for name in ("plan.json", "steps.jsonl", "predictions/", "manifest.jsonl", "gates/", "logs/"):
        assert f"`{name}" in text or f"/{name}" in text, f"docs/artifacts.md does not name {name}"
