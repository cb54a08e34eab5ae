"""Every versioned record is refused by its version: the one found, the known ones, what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mini_project import ROOT
from provenance_documents import good
from rechained import Edit, edit_events
from small_run import BINDING, plan_run, small_spec_json

from harness.decision_rule import Rule
from harness.errors import DecisionError, DocumentError, SpecError, StoreError
from harness.evaluator import parse_evaluation
from harness.evidence import parse_evidence
from harness.gates.binding import Binding
from harness.gates.catalog import gate_entry
from harness.gates.evidence import EvidenceWriter, read_session
from harness.gates.standing import standing_of
from harness.gates.verdict import Outcome
from harness.generation_audit import validate
from harness.observations import read_observations
from harness.plan import read_plan
from harness.restoration_rules import judge_provenance
from harness.spec import load_spec, parse_spec
from harness.verify import verify_run

Document = dict[str, Any]
MISSING = object()
OTHERS = [0, 2, "1", 1.0, True, None, MISSING]
SPOKEN = ["version 0", "version 2", "version '1'", "version 1.0", "version True", "version None"]
CASES = [*zip(OTHERS, [*SPOKEN, "no version"], strict=True)]
SPEC = load_spec(ROOT / "specs" / "local.json")


def said(read: Callable[[], Any], error: type[Exception]) -> str:
    with pytest.raises(error) as caught:
        read()
    return str(caught.value)


def read_decision_rule(document: Document) -> str:
    return said(lambda: Rule.from_spec(document), DecisionError)


def read_spec(document: Document) -> str:
    raw = {**SPEC.raw, "decision_rule": document}
    return said(lambda: parse_spec(raw, where="spec.json"), SpecError)


def read_evaluation(document: Document) -> str:
    return said(lambda: parse_evaluation(document), DocumentError)


def read_decision(document: Document) -> str:
    return said(lambda: read_observations(document, Path()), DocumentError)


def read_evidence(document: Document) -> str:
    return said(lambda: parse_evidence(document), DocumentError)


def read_provenance(document: Document) -> str:
    (finding,) = judge_provenance(document, SPEC.spec)
    assert finding.outcome is Outcome.FAIL
    return str(finding)


def read_audit(document: Document) -> str:
    verdict = validate(document, {}, tasks=[], evaluation=[])
    assert verdict.status == "failed"
    (failure,) = verdict.failures
    return failure


RULE = SPEC.raw["decision_rule"]
EVALUATION: Document = {"version": 1, "evaluators": {}, "scores": [], "comparisons": []}
READERS: dict[str, tuple[Callable[[Document], str], Document]] = {
    "decision rule": (read_decision_rule, RULE),
    "spec": (read_spec, RULE),
    "evaluation": (read_evaluation, EVALUATION),
    "decision": (read_decision, {"version": 1, "observations": []}),
    "evidence": (read_evidence, {"version": 1, "files": []}),
    "provenance": (read_provenance, good()),
    "generation audit": (read_audit, {"version": 1, "stage": "before_training"}),
}


def with_version(document: Document, version: object) -> Document:
    kept = {key: value for key, value in document.items() if key != "version"}
    return kept if version is MISSING else {**kept, "version": version}


def must_name_the_version(message: str, found: str) -> None:
    assert f"found {found}" in message.replace("found: ", "found "), message
    assert "version 1, as a whole number" in message, message
    assert "code revision" in message, f"says what to do: {message}"
    assert "Input should be" not in message, f"no list of field errors: {message}"


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(("version", "found"), CASES, ids=[case[1] for case in CASES])
def test_another_version_is_refused_by_name(name: str, version: object, found: str) -> None:
    read, document = READERS[name]
    must_name_the_version(read(with_version(document, version)), found)


def test_the_version_that_is_written_is_read() -> None:
    assert Rule.from_spec(RULE).alpha == 0.05
    assert parse_evaluation(EVALUATION).version == 1
    assert read_observations({"version": 1, "observations": []}, Path()) == ()
    assert parse_evidence({"version": 1}).version == 1
    found = judge_provenance(good(), SPEC.spec)
    assert not [item for item in found if item.path == "version"]


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plan_run(tmp_path_factory.mktemp("planned"), small_spec_json()).folder


@pytest.mark.parametrize(("version", "found"), CASES, ids=[case[1] for case in CASES])
def test_a_run_of_another_version_is_refused(
    planned: Path, tmp_path: Path, version: object, found: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(planned, run)
    plan = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps(with_version(plan, version)))
    message = said(lambda: read_plan(run, planned.parent / "rows"), StoreError)
    must_name_the_version(message, found)
    readable = [check for check in verify_run(run) if check.name == "readable"]
    must_name_the_version(readable[0].detail, found)


def session_file(folder: Path, edit: Edit) -> Path:
    """Write a passed and closed gate, then edit the session line and chain the lines again."""
    writer = EvidenceWriter(folder, "spec", BINDING, {})
    writer.gate_started("advantage_properties")
    measures = [{"name": "error", "value": 0.0, "rule": {"at_most": 1.0}, "where": ""}]
    writer.gate_finished("advantage_properties", {"outcome": "pass", "measures": measures})
    writer.closing(BINDING)
    writer.close()
    edit_events(writer.path, lambda event: edit(event) if event["type"] == "session" else None)
    return writer.path


@pytest.mark.parametrize(("version", "found"), CASES, ids=[case[1] for case in CASES])
def test_gate_evidence_of_another_version_proves_nothing(
    tmp_path: Path, version: object, found: str
) -> None:
    def edit(event: Document) -> None:
        changed = with_version(event, version)
        event.clear()
        event.update(changed)

    session = read_session(session_file(tmp_path, edit))
    must_name_the_version(session.broken, found)
    standing = standing_of(
        gate_entry("advantage_properties"), [session], BINDING, datetime.now(UTC)
    )
    assert standing.outcome is Outcome.UNKNOWN, standing
    must_name_the_version(standing.reason, found)


def test_a_binding_of_the_older_algorithm_loads_and_is_stale_by_name(tmp_path: Path) -> None:
    older = Binding(BINDING.files, BINDING.versions, BINDING.service, algorithm=1)

    def edit(event: Document) -> None:
        event["binding"] = older.to_json()
        event["offline_digest"], event["live_digest"] = older.offline_digest(), older.digest()

    session = read_session(session_file(tmp_path, edit))
    assert session.broken == ""
    assert Binding.stored(session.header["binding"]) == older, "with the digest of its time"
    assert older.digest() != BINDING.digest(), "the algorithm is part of the digest"
    standing = standing_of(
        gate_entry("advantage_properties"), [session], BINDING, datetime.now(UTC)
    )
    assert (standing.outcome, standing.reason) == (Outcome.UNKNOWN, "stale")
    assert standing.changed == ("digest algorithm",)


def test_a_binding_of_an_unknown_algorithm_is_refused_by_name() -> None:
    stored = {**BINDING.to_json(), "algorithm": 3}
    message = said(lambda: Binding.stored(stored), DocumentError)
    for part in ("algorithm 1, 2", "found: algorithm 3", "a newer harness wrote this binding"):
        assert part in message, message
