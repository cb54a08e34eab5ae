"""The exports of a bundle obey the rules of their specifications, written out here again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from complete_run import complete_run, edit_json
from export_rules import (
    CRATE,
    STATEMENT,
    Document,
    crate_faults,
    references,
    sha256,
    statement_faults,
)
from rechained import edit_events

from harness.__main__ import main

SECRET = "tml-abcdef0123456789secret"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return complete_run(tmp_path_factory.mktemp("complete")).folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def exported(original: Path) -> Path:
    return bundled(original, original.parent / "exported")


def bundled(run: Path, out: Path, *options: str) -> Path:
    code = main(["bundle", str(run), str(out), *(options or ("--ro-crate", "--in-toto"))])
    assert code == 0, "this tree's own code ran, so the evidence is complete"
    return out


def read(folder: Path, name: str) -> Document:
    return json.loads((folder / name).read_text())


def test_the_crate_obeys_the_specification(exported: Path) -> None:
    assert crate_faults(exported, read(exported, CRATE)) == []


def entity(document: Document, name: str) -> Document:
    return next(found for found in document["@graph"] if found["@id"] == name)


BREAKS: dict[str, tuple[Callable[[Document], object], str]] = {
    "file left out": (lambda d: d["@graph"].remove(entity(d, "metrics.json")), "described"),
    "other digest": (lambda d: entity(d, "metrics.json").update(sha256="0" * 64), "sha256"),
    "twice": (lambda d: d["@graph"].append(entity(d, "#run")), "an @id of its own"),
    "nested": (lambda d: entity(d, "#run").update(instrument={"@id": "#code", "a": 1}), "nests"),
    "no licence": (lambda d: entity(d, "./").pop("license"), "license"),
    "no date": (lambda d: entity(d, "./").update(datePublished="today"), "ISO 8601"),
    "loose": (lambda d: entity(d, "./").pop("mentions"), "not reachable"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_crate_that_breaks_a_rule_is_noticed(exported: Path, name: str) -> None:
    break_it, said = BREAKS[name]
    document = read(exported, CRATE)
    break_it(document)
    faults = crate_faults(exported, document)
    assert any(said in fault for fault in faults), faults


def test_the_crate_says_what_the_run_was(exported: Path, original: Path) -> None:
    document = read(exported, CRATE)
    result = json.loads((original / "result.json").read_text())
    root, action = entity(document, "./"), entity(document, "#run")
    assert root["description"] == result["summary"]
    assert root["license"].startswith("unspecified")
    events = next((original / "gates").iterdir()).read_text().splitlines()
    newest = max(datetime.fromisoformat(json.loads(line)["at"]) for line in events)
    assert datetime.fromisoformat(root["datePublished"]) == newest.replace(microsecond=0)
    assert {*references(action["object"])} == {"audit.spec.json", "audit.plan.json"}
    made = {*references(action["result"])}
    assert {"predictions.base.jsonl", "metrics.json", "audit.decision.json"} <= made
    assert made.isdisjoint({"audit.spec.json", "evidence.json", STATEMENT}), "not made by the run"
    assert action["actionStatus"]["@id"] == "http://schema.org/CompletedActionStatus"


def test_a_run_is_dated_by_its_id_where_that_is_newer(run: Path, tmp_path: Path) -> None:
    edit_json(run / "plan.json", "run", value="29990102T030405Z-abcdef01")
    document = read(bundled(run, tmp_path / "out"), CRATE)
    assert entity(document, "./")["datePublished"] == "2999-01-02T03:04:05+00:00"
    assert entity(document, "#run")["startTime"] == "2999-01-02T03:04:05+00:00"


def test_the_statement_obeys_the_specification(exported: Path, original: Path) -> None:
    document = read(exported, STATEMENT)
    assert [*statement_faults(exported, document)] == []
    predicate = document["predicate"]
    gates = json.loads((original / "plan.json").read_text())["gates"]
    assert predicate["result"] == "PASSED"
    assert predicate["passedTests"] == sorted(gates)
    assert (predicate["warnedTests"], predicate["failedTests"]) == ([], [])
    named = {entry["name"]: entry["digest"]["sha256"] for entry in predicate["configuration"]}
    assert named == {"spec.json": sha256(original / "spec.json")}


def test_pins_are_part_of_the_configuration(run: Path, tmp_path: Path) -> None:
    pins = {f"{role}_revision": "r1" for role in ("baseline", "reference", "implementation")}
    (run / "spec.pins.json").write_text(json.dumps(pins))
    document = read(bundled(run, tmp_path / "out", "--in-toto"), STATEMENT)
    named = {e["name"]: e["digest"]["sha256"] for e in document["predicate"]["configuration"]}
    assert named["spec.pins.json"] == sha256(run / "spec.pins.json")


@pytest.mark.parametrize(
    ("key", "value", "result", "where"),
    [
        ("measures", [], "WARNED", "warnedTests"),
        ("outcome", "unknown", "WARNED", "warnedTests"),
        (
            "measures",
            [{"name": "error", "value": 2.0, "rule": {"at_most": 1.0}, "where": ""}],
            "FAILED",
            "failedTests",
        ),
    ],
    ids=["measured nothing", "unknown", "outside its rule"],
)
def test_gates_are_judged_again_from_their_measurements(
    run: Path, tmp_path: Path, key: str, value: Any, result: str, where: str
) -> None:
    def edit(event: Document) -> None:
        if event["type"] == "gate" and event["gate"] == "dry_activation":
            event[key] = value

    edit_events(next((run / "gates").iterdir()), edit)
    out = bundled(run, tmp_path / "out")
    document = read(out, STATEMENT)
    assert [*statement_faults(out, document)] == []
    assert document["predicate"]["result"] == result
    assert document["predicate"][where] == ["dry_activation"]


def test_a_fail_outweighs_a_gate_that_is_not_proven(run: Path, tmp_path: Path) -> None:
    def edit(event: Document) -> None:
        if event["type"] == "gate" and event["gate"] == "dry_activation":
            event["outcome"] = "unknown"
        elif event["type"] == "gate" and event["gate"] == "feasibility":
            event["outcome"] = "fail"

    edit_events(next((run / "gates").iterdir()), edit)
    predicate = read(bundled(run, tmp_path / "out", "--in-toto"), STATEMENT)["predicate"]
    assert predicate["result"] == "FAILED"
    assert predicate["warnedTests"] == ["dry_activation"]
    assert predicate["failedTests"] == ["feasibility"]


def test_the_same_run_gives_the_same_bytes(exported: Path, run: Path, tmp_path: Path) -> None:
    again = bundled(run, tmp_path / "again")
    for name in (CRATE, STATEMENT):
        assert (again / name).read_bytes() == (exported / name).read_bytes(), name


def test_only_what_is_asked_for_is_written_and_only_there(run: Path, tmp_path: Path) -> None:
    def snapshot() -> dict[str, str]:
        files = (path for path in tmp_path.rglob("*") if path.is_file())
        return {str(path.relative_to(tmp_path)): sha256(path) for path in files}

    before = snapshot()
    for at, options in enumerate([("--ro-crate",), ("--in-toto",), ("--ro-crate", "--in-toto")]):
        out = bundled(run, tmp_path / f"out{at}", *options)
        wanted = {CRATE if option == "--ro-crate" else STATEMENT for option in options}
        assert {CRATE, STATEMENT} & {path.name for path in out.iterdir()} == wanted
    assert main(["bundle", str(run), str(tmp_path / "plain")]) == 0
    assert {CRATE, STATEMENT}.isdisjoint(path.name for path in (tmp_path / "plain").iterdir())
    after = {name: d for name, d in snapshot().items() if not name.startswith(("out", "plain"))}
    assert after == before, "nothing was written or changed outside OUT"


def test_no_secret_reaches_an_export(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", SECRET)
    edit_json(run / "result.json", "summary", value=f"the key was {SECRET}.")
    out = bundled(run, tmp_path / "out")
    assert [path.name for path in out.iterdir() if SECRET in path.read_text()] == []
    assert entity(read(out, CRATE), "./")["description"] == "the key was [redacted:TINKER_API_KEY]."


def test_a_record_of_another_form_is_named_and_no_traceback(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_events(next((run / "gates").iterdir()), lambda event: event.pop("measures", None))
    assert main(["bundle", str(run), str(tmp_path / "out"), "--in-toto"]) == 4
    error = capsys.readouterr().err
    assert "another form" in error
    assert "measures" in error
