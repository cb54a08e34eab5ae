"""JSON Schemas of the contract's documents, exported from the models that check them."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel

from harness.correctness_record import CorrectnessRecord
from harness.evaluator import EvaluationRecord, Evaluator, PredictionRow
from harness.evidence import EvidenceRecord
from harness.feasibility import FeasibilityRecord
from harness.fork_run import ForkRecord
from harness.gates.evidence_lines import ClosingLine, GateLine, GateStartLine, SessionLine
from harness.generation_report import GenerationReport
from harness.judgement_documents import (
    ActivationCalibration,
    DecisionReport,
    DecisionSection,
    PostedFeasibility,
)
from harness.manifest_entry import Entry, Seal
from harness.pins import Pins
from harness.report_model import Report
from harness.restoration import Provenance
from harness.result import ResultDocument
from harness.run_documents import (
    ArmTiming,
    EffectiveConfig,
    PlanDocument,
    RolloutRow,
    StepRow,
    TimingRow,
)
from harness.spec_model import ExperimentSpec

SCHEMA_FOLDER = Path(__file__).parent / "schemas"
DOCUMENTS: dict[str, type[BaseModel]] = {
    "activation_calibration": ActivationCalibration,
    "arm_timing": ArmTiming,
    "timing_row": TimingRow,
    "correctness_preflight": CorrectnessRecord,
    "decision": DecisionSection,
    "decision_report": DecisionReport,
    "effective_config": EffectiveConfig,
    "evaluation": EvaluationRecord,
    "evaluator": Evaluator,
    "evidence": EvidenceRecord,
    "feasibility": FeasibilityRecord,
    "feasibility_posted": PostedFeasibility,
    "fork": ForkRecord,
    "gate_closing_line": ClosingLine,
    "gate_line": GateLine,
    "gate_session_line": SessionLine,
    "gate_start_line": GateStartLine,
    "generation_audit": GenerationReport,
    "initialization_provenance": Provenance,
    "manifest_entry": Entry,
    "manifest_seal": Seal,
    "pins": Pins,
    "plan": PlanDocument,
    "prediction": PredictionRow,
    "report": Report,
    "result": ResultDocument,
    "rollout_row": RolloutRow,
    "spec": ExperimentSpec,
    "step_row": StepRow,
}
"""Documents by the stem of their schema file; a new document is one line here."""


def schema_texts() -> dict[str, str]:
    """Return the text of every schema by file name (JSON Schema 2020-12)."""
    return {
        f"{stem}.schema.json": _text(model.model_json_schema(), stem)
        for stem, model in DOCUMENTS.items()
    }


def write_schemas(folder: Path) -> list[Path]:
    """Write every schema into ``folder`` and return the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, text in schema_texts().items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _text(schema: dict[str, object], stem: str) -> str:
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": stem, **schema}
    return json.dumps(whole, indent=2, sort_keys=True, allow_nan=False) + "\n"


if __name__ == "__main__":
    write_schemas(SCHEMA_FOLDER)
