"""Every file that a run leaves obeys the model that its exported JSON Schema is made from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from complete_run import complete_run
from feasibility_records import record_json
from pydantic import ValidationError
from small_run import GS1, arm_dataset, small_arm
from stub_loop import StubTraining, run_loop

from harness.__main__ import main
from harness.advantage_seam import AdvantageSeam
from harness.feasibility import observed, parse_record, section
from harness.gates.pilot import PilotValues
from harness.schema_export import DOCUMENTS, SCHEMA_FOLDER
from harness.training_record import TrainingRecord, recorded_training

STEM_OF_FILE = {
    r"plan\.json": "plan",
    r"spec\.json": "spec",
    r"result\.json": "result",
    r"decision\.json": "decision_report",
    r"evaluator\.json": "evaluator",
    r"report\.json": "report",
    r"timings\.jsonl": "timing_row",
    r"arms/[^/]+/attempt-\d+/effective_config\.json": "effective_config",
    r"arms/[^/]+/attempt-\d+/steps\.jsonl": "step_row",
    r"arms/[^/]+/attempt-\d+/rollouts\.jsonl": "rollout_row",
    r"predictions/[^/]+\.jsonl": "prediction",
    r"out/evidence\.json": "evidence",
}
STEM_OF_SECTION = {
    "decision": "decision",
    "evaluation": "evaluation",
    "initialization_provenance": "initialization_provenance",
}
WITHOUT_A_SCHEMA = re.compile(
    r"initial\.json|.*\.safetensors|.*/adapter_config\.json|initial_adapter/.*|observations\.jsonl"
    r"|arms/[^/]+/(attempt-\d+/start|done)\.json|out/.*|report\.(md|html)"
)
"""Adapters, and files whose readers check each field that they use."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = complete_run(tmp_path_factory.mktemp("complete")).folder
    main(["bundle", str(folder), str(folder / "out")])
    return folder


def documents(run: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield schema, place and value of every document of a run, line by line."""
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        name = path.relative_to(run).as_posix()
        found = [stem for form, stem in STEM_OF_FILE.items() if re.fullmatch(form, name)]
        if name.startswith("gates/") or name == "manifest.jsonl":
            for line in path.read_text().splitlines():
                yield _stem_of_line(json.loads(line)), name, json.loads(line)
        elif found:
            text = path.read_text()
            lines = text.splitlines() if name.endswith(".jsonl") else [text]
            yield from ((found[0], name, json.loads(line)) for line in lines)
        else:
            assert WITHOUT_A_SCHEMA.fullmatch(name), f"{name}: a file without a schema"
    result = json.loads((run / "result.json").read_text())
    for name, stem in STEM_OF_SECTION.items():
        yield stem, f"result.json: {name}", result[name]
    timing = json.loads((run / "out" / "timing.json").read_text())
    for arm, seconds in timing["steps"].items():
        yield "arm_timing", f"timing.json: {arm}", seconds
    for row in timing["stages"]:
        yield "timing_row", "timing.json: stages", row


def _stem_of_line(line: dict[str, Any]) -> str:
    if "type" not in line:
        return "manifest_seal" if "seal" in line else "manifest_entry"
    return {"gate": "gate_line", "gate_start": "gate_start_line"}.get(
        line["type"], f"gate_{line['type']}_line"
    )


def obeys(stem: str, where: str, document: Any) -> None:
    """Check a document against its model, and its keys against the committed schema's text."""
    try:
        DOCUMENTS[stem].model_validate_json(json.dumps(document))
    except ValidationError as error:
        pytest.fail(f"{where} is no {stem}: {error}")
    schema = json.loads((SCHEMA_FOLDER / f"{stem}.schema.json").read_text())
    missing = set(schema.get("required", [])) - document.keys()
    assert not missing, f"{where} lacks {sorted(missing)}, required by {stem}"
    if schema.get("additionalProperties") is False:
        unknown = document.keys() - schema["properties"].keys()
        assert not unknown, f"{where} has {sorted(unknown)}, which {stem} does not know"


def test_every_file_of_a_complete_run_obeys_its_schema(run: Path) -> None:
    seen: dict[str, int] = {}
    for stem, where, document in documents(run):
        obeys(stem, where, document)
        seen[stem] = seen.get(stem, 0) + 1
    wanted = {*STEM_OF_FILE.values(), *STEM_OF_SECTION.values(), "arm_timing", "manifest_seal"}
    wanted |= {"gate_line", "gate_start_line", "gate_session_line", "gate_closing_line"}
    assert wanted <= seen.keys(), f"no document of {sorted(wanted - seen.keys())}"


CLOSED = ("plan", "step_row", "rollout_row", "decision", "decision_report", "effective_config")
LINES = ("gate_line", "gate_start_line", "gate_session_line", "gate_closing_line", "arm_timing")


@pytest.mark.parametrize("stem", [*CLOSED, *LINES])
def test_a_lost_field_and_an_unknown_one_are_refused(run: Path, stem: str) -> None:
    document = next(found for kind, _, found in documents(run) if kind == stem)
    model = DOCUMENTS[stem]
    optional = {name for name, field in model.model_fields.items() if not field.is_required()}
    for name in document.keys() - optional:
        shorter = {key: value for key, value in document.items() if key != name}
        with pytest.raises(ValidationError, match=name):
            model.model_validate_json(json.dumps(shorter))
    with pytest.raises(ValidationError, match="surprise"):
        model.model_validate_json(json.dumps({**document, "surprise": 1}))


@pytest.mark.parametrize(
    ("stem", "change"),
    [
        ("step_row", {"accuracy": 1.5}),
        ("step_row", {"training_s": -1.0}),
        ("rollout_row", {"advantage": float("nan")}),
        ("rollout_row", {"completion_tokens": "5"}),
        ("rollout_row", {"stop_reason": "tired"}),
        ("gate_line", {"outcome": "passed"}),
        ("gate_session_line", {"version": 2}),
        ("plan", {"version": True}),
        ("plan", {"spec_digest": "A" * 64}),
        ("decision", {"observations": []}),
        ("decision", {"observations_file": None}),
        ("decision_report", {"verdict": "won"}),
    ],
)
def test_a_value_outside_its_range_is_refused(run: Path, stem: str, change: dict[str, Any]) -> None:
    document = next(found for kind, _, found in documents(run) if kind == stem)
    with pytest.raises(ValidationError):
        DOCUMENTS[stem].model_validate_json(json.dumps({**document, **change}))


@pytest.mark.parametrize("arm", [small_arm("grpo"), small_arm("gs1", groups=4, group_size=1)])
def test_rows_that_the_training_loop_writes_obey_theirs(arm: Any, tmp_path: Path) -> None:
    dataset = arm_dataset(arm)
    record = TrainingRecord(arm, AdvantageSeam(arm, dataset), tmp_path, attempt=1)
    with recorded_training(record):
        run_loop(arm, dataset, StubTraining(dataset), tmp_path)
    for stem, name in (("step_row", "steps.jsonl"), ("rollout_row", "rollouts.jsonl")):
        lines = (tmp_path / name).read_text().splitlines()
        assert len(lines) == arm.steps * (4 if stem == "rollout_row" else 1), name
        for line in lines:
            obeys(stem, name, json.loads(line))


def test_feasibility_as_posted_obeys_its_schema() -> None:
    record = parse_record(record_json())
    used = observed({"setup": 2.0, "training": 3.5}, gpu_count=0)
    for posted in (section(record), section(record, used)):
        obeys("feasibility_posted", "feasibility", posted)


def test_activation_as_posted_obeys_its_schema() -> None:
    values = PilotValues(
        {
            "executed_base_model": "embedded/gradeschool",
            "gs1_effective_contributors_median": 3.5,
            "gs1_executed_group_size": {GS1: 1.0},
            "batch_mean_reward_pilot": {"grpo_small": 0.25, GS1: 0.5},
        },
        "three steps of each arm",
    )
    obeys("activation_calibration", "activation_calibration", values.to_json())
