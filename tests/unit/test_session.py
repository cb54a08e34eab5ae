"""A session without pytest: arms selected, gates recorded and judged, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mini_project import make_project, required_ids

from harness.errors import SpecError, UsageError
from harness.gates.catalog import CATALOG
from harness.gates.verdict import Outcome, Phase
from harness.session import HarnessSession, Options, exit_code

OFFLINE = "advantage_properties"
FIRST_LIVE = next(gate for gate in required_ids() if gate in {e.gate_id for e in CATALOG if e.live})
PHASES = tuple(Phase(when, "passed") for when in ("setup", "call", "teardown"))
ARMS = ("grpo_gs8_seed0", "gs1_seed0")


@pytest.fixture
def root(pytester: pytest.Pytester) -> Path:
    return make_project(pytester)


def session_of(root: Path, *arms: str) -> HarnessSession:
    said: list[str] = []
    options = Options(root, root / "specs" / "local.json", arms=arms, artifacts=root / "artifacts")
    return HarnessSession(options, said.append)


def run_gate(session: HarnessSession, gate_id: str, value: float = 1.0) -> Outcome:
    """Run one gate as the plugin would, with one measurement that must be at most 2."""
    session.gates.start(gate_id)
    recorder = session.gates.runs[gate_id].recorder
    failed = value > 2
    if failed:
        recorder.measures.append({"name": "q", "value": value, "rule": {"at_most": 2.0}})
    else:
        recorder.check("q", value, effect="e", at_most=2.0)
    for phase in PHASES:
        session.gates.add_phase(gate_id, phase)
    return session.gates.finish(gate_id)[0]


@pytest.mark.parametrize(
    ("asked", "selected"),
    [
        ((), ARMS),
        (("gs1",), ("gs1_seed0",)),
        (("grpo_gs8_seed0",), ("grpo_gs8_seed0",)),
        (("gs1", "grpo"), ARMS),
        (("gs1", "gs1_seed0"), ("gs1_seed0",)),
    ],
)
def test_arms_are_selected_by_name_or_mode(
    root: Path, asked: tuple[str, ...], selected: tuple[str, ...]
) -> None:
    assert session_of(root, *asked).selected_arms() == selected


@pytest.mark.parametrize("word", ["ppo", "GS1", "", "gs1_seed"])
def test_a_word_that_names_no_arm_is_refused(root: Path, word: str) -> None:
    with pytest.raises(UsageError, match=r"expected: one of .*'gs1_seed0'"):
        session_of(root, "gs1", word).selected_arms()


def test_a_bad_spec_stops_the_session(root: Path) -> None:
    (root / "specs" / "local.json").write_text("{}")
    with pytest.raises(SpecError, match="contract §1"):
        session_of(root)


def test_nothing_is_proven_before_anything_ran(root: Path) -> None:
    session = session_of(root)
    assert session.unproven() == required_ids()
    named = ", ".join(required_ids())
    assert session.obstacles()[0] == f"gates {named}: unknown: never run"
    assert not (root / "artifacts").exists(), "asking writes nothing"


def test_a_proof_outlives_its_session(root: Path) -> None:
    session = session_of(root)
    for gate_id in required_ids():
        assert run_gate(session, gate_id) is Outcome.PASS
    session.close()
    later = session_of(root)
    assert later.unproven() == ()
    assert later.obstacles() == []
    assert all(standing.reason == "proven" for standing in later.standings().values())


def test_a_gate_counts_only_after_the_content_was_measured_again(root: Path) -> None:
    session = session_of(root)
    run_gate(session, OFFLINE)
    assert session.standings()[OFFLINE].outcome is Outcome.UNKNOWN
    session.gates.seal()
    assert session.standings()[OFFLINE].outcome is Outcome.PASS
    session.close()


def test_an_edit_before_the_seal_leaves_the_gate_unknown(root: Path) -> None:
    session = session_of(root)
    run_gate(session, OFFLINE)
    (root / "harness" / "code.py").write_text("VALUE = 2\n")
    session.close()
    assert session_of(root).standings()[OFFLINE].outcome is Outcome.UNKNOWN


def test_a_changed_tree_is_named_in_the_obstacle(root: Path) -> None:
    session = session_of(root)
    run_gate(session, OFFLINE)
    session.close()
    for number in range(7):
        (root / "harness" / f"new_{number}.py").write_text("")
    obstacle = session_of(root).obstacles()[0]
    assert obstacle.startswith(f"gate {OFFLINE}: unknown: stale (changed: harness/new_0.py, ")
    assert obstacle.endswith("and 2 more)")


def test_a_failed_offline_gate_is_remembered_across_sessions(root: Path) -> None:
    session = session_of(root)
    assert run_gate(session, OFFLINE, value=3.0) is Outcome.FAIL
    assert session.failed_offline() == [OFFLINE], "in the session itself"
    session.close()
    assert session_of(root).failed_offline() == [OFFLINE], "and in the next one"


def test_a_failed_live_gate_does_not_block_live_gates(root: Path) -> None:
    session = session_of(root)
    run_gate(session, FIRST_LIVE, value=3.0)
    assert session.failed_offline() == []
    session.close()


def test_passed_and_failed_under_one_content_is_unknown(root: Path) -> None:
    for value in (1.0, 3.0):
        session = session_of(root)
        run_gate(session, OFFLINE, value)
        session.close()
    standing = session_of(root).standings()[OFFLINE]
    assert standing.outcome is Outcome.UNKNOWN
    assert standing.reason.startswith("flaky")


def test_one_gate_is_one_test(root: Path) -> None:
    session = session_of(root)
    session.gates.claim(OFFLINE, "tests/a.py::test_a")
    with pytest.raises(UsageError, match=r"tests/a\.py::test_a and tests/b\.py::test_b"):
        session.gates.claim(OFFLINE, "tests/b.py::test_b")


def test_a_gate_outside_the_catalogue_is_refused(root: Path) -> None:
    with pytest.raises(UsageError, match=r"found: made_up.*catalog\.py"):
        session_of(root).gates.claim("made_up", "tests/a.py::test_a")


def test_the_summary_is_what_a_machine_reads(root: Path) -> None:
    session = session_of(root)
    run_gate(session, OFFLINE)
    run_gate(session, FIRST_LIVE, value=3.0)
    session.blocked.append("test_arm[gs1_seed0]: blocked")
    session.undecided.append("gs1_seed0")
    summary = session.summary(1, {"passed": 1, "failed": 1})
    assert json.loads(json.dumps(summary, allow_nan=False)) == {
        "version": 1,
        "spec": "local",
        "spec_digest": session.loaded.digest,
        "required_gates": list(required_ids()),
        "gates": {
            OFFLINE: {
                "outcome": "pass",
                "reason": "every measurement inside what is allowed",
                "live": False,
            },
            FIRST_LIVE: {
                "outcome": "fail",
                "reason": "a measurement was outside what is allowed",
                "live": True,
            },
        },
        "blocked": ["test_arm[gs1_seed0]: blocked"],
        "undecided": ["gs1_seed0"],
        "tests": {"passed": 1, "failed": 1},
        "exit_code": 1,
    }
    session.close()


def test_closing_twice_is_harmless_and_starts_no_service(root: Path) -> None:
    session = session_of(root)
    session.close()
    session.close()
    assert "service" not in vars(session), "a session that needed no service started one"


@pytest.mark.parametrize(
    ("pytest_status", "blocked", "undecided", "expected"),
    [
        (0, False, False, 0),
        (0, True, False, 10),
        (0, False, True, 11),
        (0, True, True, 10),
        (1, True, True, 1),
        (2, True, False, 2),
        (3, False, True, 3),
        (4, True, True, 4),
        (5, True, True, 5),
    ],
)
def test_exit_codes_are_those_of_the_design(
    pytest_status: int, blocked: bool, undecided: bool, expected: int
) -> None:
    assert exit_code(pytest_status, blocked=blocked, undecided=undecided) == expected


def test_evidence_is_kept_by_spec(root: Path) -> None:
    assert session_of(root).gates_folder == root / "artifacts" / "gates" / "local"
