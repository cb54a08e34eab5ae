"""The exported JSON Schemas are current and describe the committed documents."""

from __future__ import annotations

import json
from pathlib import Path

from harness.schema_export import SCHEMA_FOLDER, schema_texts, write_schemas

STEMS = (
    "activation_calibration",
    "arm_timing",
    "correctness_preflight",
    "decision",
    "decision_report",
    "effective_config",
    "evaluation",
    "evaluator",
    "evidence",
    "feasibility",
    "feasibility_posted",
    "fork",
    "gate_closing_line",
    "gate_line",
    "gate_session_line",
    "gate_start_line",
    "generation_audit",
    "initialization_provenance",
    "manifest_entry",
    "manifest_seal",
    "pins",
    "plan",
    "prediction",
    "report",
    "result",
    "rollout_row",
    "spec",
    "step_row",
    "timing_row",
)
"""Every document the contract fixes (contract, head), or a run leaves: one schema each."""
SPECS = Path(__file__).parents[2] / "specs"


def test_the_committed_schemas_are_current() -> None:
    texts = schema_texts()
    for name, text in texts.items():
        assert (SCHEMA_FOLDER / name).read_text(encoding="utf-8") == text, (
            f"{name} is stale: run `python -m harness.schema_export`"
        )


def test_writing_gives_one_file_a_document(tmp_path: Path) -> None:
    written = write_schemas(tmp_path / "schemas")
    names = sorted(path.name for path in written)
    assert names == sorted(f"{stem}.schema.json" for stem in STEMS)
    assert sorted(path.name for path in SCHEMA_FOLDER.iterdir()) == names, "one committed file each"
    for path in written:
        assert json.loads(path.read_text())["type"] == "object"


def test_the_schemas_say_which_documents_are_closed() -> None:
    texts = {name: json.loads(text) for name, text in schema_texts().items()}
    assert texts.keys() == {f"{stem}.schema.json" for stem in STEMS}
    # A self-declared pass flag in a correctness record is ignored rather than refused (§4).
    open_stems = {"spec", "prediction", "correctness_preflight"}
    for stem in STEMS:
        closed = texts[f"{stem}.schema.json"].get("additionalProperties") is False
        assert closed == (stem not in open_stems), f"{stem}: closed is {closed}"


def test_the_spec_schema_knows_every_field_of_the_committed_specs() -> None:
    known = set(json.loads(schema_texts()["spec.schema.json"])["properties"])
    for name in ("exp_6ba12d6b47.json", "local.json"):
        assert set(json.loads((SPECS / name).read_text())) <= known, name
