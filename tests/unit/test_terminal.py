"""The words on the terminal, held against texts a person has read (``golden/``)."""

from __future__ import annotations

from pathlib import Path

import pytest
from mini_project import make_project
from small_run import small_spec_json, write_spec

from harness.gates.recorder import GateRecorder
from harness.gates.standing import Standing
from harness.gates.verdict import Outcome
from harness.session import GateRun, HarnessSession, Options
from harness.terminal import gate_line, gate_lines, header_lines

GOLDEN = Path(__file__).parent / "golden"
FILES = tuple(f"harness/file_{n}.py" for n in range(8))
STANDINGS = {
    "advantage_properties": Standing("advantage_properties", Outcome.PASS, "proven"),
    "dry_activation": Standing("dry_activation", Outcome.UNKNOWN, "stale", FILES),
    "initial_identity": Standing("initial_identity", Outcome.UNKNOWN, "stale", FILES[:1]),
    "pilot_activation": Standing("pilot_activation", Outcome.FAIL, "failed"),
}


def same_as_golden(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    assert text == path.read_text(), f"the words differ from {path.name}"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HarnessSession:
    write_spec(tmp_path, small_spec_json())
    options = Options(tmp_path, tmp_path / "spec.json", artifacts=tmp_path / "artifacts")
    made = HarnessSession(options)
    monkeypatch.setattr(made, "standings", lambda: STANDINGS)
    return made


def test_the_header_says_what_is_run_where_and_on_what_proof(session: HarnessSession) -> None:
    text = "\n".join(header_lines(session)) + "\n"
    assert session.loaded.digest[:12] in text
    same_as_golden("header", text.replace(session.loaded.digest[:12], "DIGEST"))


def test_a_header_without_stale_gates_says_nothing_of_them(
    session: HarnessSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    proven = {name: Standing(name, Outcome.PASS, "proven") for name in STANDINGS}
    monkeypatch.setattr(session, "standings", lambda: proven)
    assert header_lines(session)[-1] == "gates: 4 of 4 proven"


def recorder() -> GateRecorder:
    found = GateRecorder("advantage_properties", "contract §12")
    found.check("batches", 412, effect="e", at_least=100)
    found.check("largest |A - reference|", 2.220446049250313e-16, effect="e", at_most=1e-12)
    found.check("stock again", value=True, effect="e", equals=True)
    found.check("model", "embedded/gradeschool", effect="e", one_of=["embedded/gradeschool"])
    found.check("share", 0.5, effect="e", above=0.25, below=0.75)
    return found


def test_gate_lines_show_measured_against_allowed() -> None:
    measures = recorder().measures
    lines = [
        gate_line("advantage_properties", Outcome.PASS, "every measurement inside", measures),
        gate_line("dry_activation", Outcome.FAIL, "gate dry_activation: outside", measures[:1]),
        gate_line("pilot_activation", Outcome.UNKNOWN, "skipped", []),
    ]
    same_as_golden("gate_lines", "\n".join(lines) + "\n")


def test_a_sessions_gates_and_blocked_arms_are_one_line_each(session: HarnessSession) -> None:
    session.outcomes["advantage_properties"] = (Outcome.PASS, "inside")
    session.gate_runs["advantage_properties"] = GateRun(recorder())
    session.blocked.append("test_arm[gs1_small]: blocked, gate x: unknown: never run")
    lines = gate_lines(session)
    assert [line.partition(":")[0] for line in lines] == [
        "gate advantage_properties",
        "test_arm[gs1_small]",
    ]
    assert all("\n" not in line for line in lines)


def test_the_options_explain_themselves(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(pytester)
    monkeypatch.setenv("COLUMNS", "100")
    text = pytester.runpytest_inprocess("--help").stdout.str()
    heading = "paired RL comparisons:"
    assert heading in text
    group = text.partition(heading)[2].split("\n\n")[0]
    same_as_golden("help_group", f"{heading}{group}\n")


def test_markers_explain_themselves(pytester: pytest.Pytester) -> None:
    make_project(pytester)
    text = pytester.runpytest_inprocess("--markers").stdout.str()
    for marker in ("preflight", "full", "live", "slow", "gate(", "arm(", "decision"):
        assert f"@pytest.mark.{marker}" in text
