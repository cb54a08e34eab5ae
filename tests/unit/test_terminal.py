"""The words on the terminal, held against texts a person has read (``golden/``)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from mini_project import make_project
from small_run import small_spec_json, write_spec

from harness.errors import GateError
from harness.gates.catalog import CATALOG
from harness.gates.gate_runs import GateRun
from harness.gates.recorder import GateRecorder
from harness.gates.standing import Standing
from harness.gates.verdict import Outcome
from harness.next_command import next_command
from harness.screen import Screen
from harness.session import HarnessSession, Options
from harness.step_line import SeenStep
from harness.terminal import closing_lines, gate_line, header_lines

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


def failed_recorder() -> GateRecorder:
    found = recorder()
    with pytest.raises(GateError):
        found.check(
            "least gradient norm",
            0.0,
            effect="an arm would train on nothing",
            where="batch 3",
            above=1e-6,
        )
    return found


def test_the_end_says_what_is_open_and_the_command_for_it(
    session: HarnessSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "unpinned", list)
    runs = {
        "advantage_properties": (Outcome.PASS, "inside", recorder()),
        "dry_activation": (Outcome.FAIL, "GateError: outside", failed_recorder()),
        "pilot_activation": (Outcome.UNKNOWN, "not today", GateRecorder("pilot_activation", "§5")),
    }
    for gate_id, (outcome, reason, made) in runs.items():
        session.gates.outcomes[gate_id] = (outcome, reason)
        session.gates.runs[gate_id] = GateRun(made)
    for name in ("test_base_model", "test_arm[gs1_small]"):
        session.blocked.append(f"{name}: blocked, gate x: unknown: never run. Unblock: pytest")
    text = "\n".join(closing_lines(session)) + "\n"
    assert "then pytest -m preflight --spec=spec.json" in text
    same_as_golden("closing", text)


def test_a_session_that_proved_all_it_needs_leaves_nothing_open(
    session: HarnessSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    proven = {name: Standing(name, Outcome.PASS, "proven") for name in STANDINGS}
    monkeypatch.setattr(session, "standings", lambda: proven)
    monkeypatch.setattr(session, "unpinned", list)
    assert closing_lines(session) == [], "nothing was to be proven or trained"
    session.gates.outcomes["advantage_properties"] = (Outcome.PASS, "inside")
    assert closing_lines(session) == ["gates: 4 of 4 proven"]
    session.undecided.append("gs1_small")
    assert closing_lines(session)[-1] == "no verdict: gs1_small not scored"


def test_a_session_that_passed_but_did_not_run_all_gates_says_so(pytester: pytest.Pytester) -> None:
    make_project(pytester)
    result = pytester.runpytest_inprocess("-p", "no:randomly")
    assert result.ret == 0
    text = result.stdout.str()
    offline = sum(not entry.live for entry in CATALOG)
    assert f"gates: {offline} of {len(CATALOG)} proven" in text
    assert "next: pytest -m preflight" in text
    assert text.count("gate advantage_properties: pass") == 1, "each gate is one line"


def test_commands_repeat_the_options_that_are_not_the_default(tmp_path: Path) -> None:
    spec = tmp_path / "specs" / "local.json"
    plain = Options(tmp_path, spec, artifacts=tmp_path / "artifacts")
    assert next_command(plain, "-m full") == "pytest -m full"
    other = replace(
        plain,
        spec_path=tmp_path / "specs" / "a b.json",
        artifacts=Path("/elsewhere"),
        gsm8k_dir=tmp_path / "rows",
        service="url",
    )
    assert next_command(other, "-m preflight") == (
        "pytest -m preflight --spec='specs/a b.json' --artifacts=/elsewhere"
        " --gsm8k-dir=rows --service=url"
    )


class FakeTerminal:
    """What pytest's reporter offers, with what was written."""

    def __init__(self, *, colour: bool) -> None:
        self.isatty = self.hasmarkup = colour
        self.written: list[str] = []

    def ensure_newline(self) -> None:
        self.written.append("")

    def write_line(self, text: str) -> None:
        self.written.append(text)

    def write_raw(self, text: str, *, flush: bool) -> None:
        assert flush, "a step is seen when it happens"
        self.written.append(text)


@pytest.mark.parametrize("colour", [True, False])
def test_steps_are_coloured_on_a_terminal_and_plain_elsewhere(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, colour: bool
) -> None:
    terminal = FakeTerminal(colour=colour)
    found = pytestconfig.pluginmanager.getplugin
    monkeypatch.setattr(
        pytestconfig.pluginmanager,
        "getplugin",
        lambda name: terminal if name == "terminalreporter" else found(name),
    )
    row = {
        **dict.fromkeys(("reward_mean", "accuracy", "format", "truncation", "loss_sum"), 0.5),
        "sampler_trainer_gap": {"max_abs": 1e-5},
        "step_s": 1.0,
    }
    Screen(pytestconfig).step(SeenStep("gs1_small", 1, 4, 3.0, row))
    before, line = terminal.written
    assert before == ""
    assert ("\x1b[" in line) == colour, repr(line)
    assert "gs1_small" in line


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
