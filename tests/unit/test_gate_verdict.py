"""Three-valued outcomes: only a clean, complete, measured pass is a pass."""

from __future__ import annotations

import pytest

from harness.errors import GateError
from harness.gates.recorder import GateRecorder, measures_ok, within
from harness.gates.verdict import Outcome, Phase, combine, judge_phases

CLEAN = [Phase("setup", "passed"), Phase("call", "passed"), Phase("teardown", "passed")]


def outcome(phases: list[Phase], flags: list[bool] | None = None) -> Outcome:
    return judge_phases(phases, [True] if flags is None else flags)[0]


def test_a_clean_measured_pass_is_a_pass() -> None:
    assert outcome(CLEAN) is Outcome.PASS


@pytest.mark.parametrize(
    ("phases", "flags", "expected"),
    [
        pytest.param(CLEAN, [], Outcome.UNKNOWN, id="nothing-measured"),
        pytest.param(CLEAN, [True, False], Outcome.FAIL, id="a-measurement-outside"),
        pytest.param([], [True], Outcome.UNKNOWN, id="no-phase-at-all"),
        pytest.param(CLEAN[:1], [True], Outcome.UNKNOWN, id="setup-only"),
        pytest.param(CLEAN[:2], [True], Outcome.UNKNOWN, id="killed-before-teardown"),
        pytest.param(
            [CLEAN[0], Phase("call", "skipped"), CLEAN[2]], [True], Outcome.UNKNOWN, id="skipped"
        ),
        pytest.param(
            [CLEAN[0], Phase("call", "passed", expected_failure=True), CLEAN[2]],
            [True],
            Outcome.UNKNOWN,
            id="xpass",
        ),
        pytest.param(
            [CLEAN[0], Phase("call", "skipped", expected_failure=True), CLEAN[2]],
            [True],
            Outcome.UNKNOWN,
            id="xfail",
        ),
        pytest.param(
            [CLEAN[0], Phase("call", "rerun"), *CLEAN], [True], Outcome.UNKNOWN, id="rerun"
        ),
        pytest.param([*CLEAN, *CLEAN], [True], Outcome.UNKNOWN, id="ran-twice"),
        pytest.param(
            [*CLEAN[:2], Phase("teardown", "failed")], [True], Outcome.FAIL, id="teardown-failed"
        ),
        pytest.param(
            [CLEAN[0], Phase("call", "failed"), *CLEAN[1:]], [True], Outcome.FAIL, id="subtest"
        ),
    ],
)
def test_everything_else_is_not(phases: list[Phase], flags: list[bool], expected: Outcome) -> None:
    assert outcome(phases, flags) is expected


def test_fail_beats_unknown_beats_pass() -> None:
    assert combine([Outcome.PASS, Outcome.UNKNOWN, Outcome.FAIL]) is Outcome.FAIL
    assert combine([Outcome.PASS, Outcome.UNKNOWN]) is Outcome.UNKNOWN
    assert combine([Outcome.PASS]) is Outcome.PASS
    assert combine([]) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("value", "rule", "inside"),
    [
        (1.0, {"at_most": 1.0}, True),
        (1.0000001, {"at_most": 1.0}, False),
        (1.0, {"below": 1.0}, False),
        (1.0, {"above": 1.0}, False),
        (2, {"at_least": 1, "at_most": 3}, True),
        (4, {"at_least": 1, "at_most": 3}, False),
        ("a", {"equals": "a"}, True),
        ("a", {"one_of": ["b"]}, False),
        (True, {"equals": 1}, False),
        (1, {"equals": True}, False),
        (True, {"at_most": 2}, False),
        ("3", {"at_most": 4}, False),
        (float("nan"), {"at_most": 1.0}, False),
        (float("inf"), {"at_least": 1.0}, False),
        (1.0, {"at_most": float("inf")}, False),
        (1.0, {"above": float("-inf")}, False),
        (1.0, {"at_most": float("nan")}, False),
        (1.0, {}, False),
        (1.0, {"roughly": 1.0}, False),
    ],
)
def test_a_value_is_judged_by_its_stored_rule(value: object, rule: dict, inside: bool) -> None:
    assert within(value, rule) is inside  # pyright: ignore[reportArgumentType]


def test_a_failed_gate_names_clause_measured_allowed_effect_and_command() -> None:
    recorder = GateRecorder("dry_activation", "contract §5")
    with pytest.raises(GateError) as caught:
        recorder.check("contributors", 51.0, effect="nearly uniform", where="batch 3", at_most=40.0)
    message = str(caught.value)
    for part in (
        "contract §5",
        "51",
        "≤ 40",
        "nearly uniform",
        "batch 3",
        "pytest -m preflight -k dry_activation",
    ):
        assert part in message, f"{part!r} missing from {message!r}"
    assert measures_ok(recorder.measures) == [False], "the miss must stay in the record"


def test_a_value_that_is_not_finite_fails_and_leaves_strict_json() -> None:
    recorder = GateRecorder("dry_activation", "contract §5")
    with pytest.raises(GateError):
        recorder.check("x", float("nan"), effect="e", at_most=1.0)
    assert recorder.measures[0]["value"] == "nan"
    assert measures_ok(recorder.measures) == [False]


def test_a_bound_that_cannot_be_missed_proves_nothing_and_leaves_strict_json() -> None:
    recorder = GateRecorder("dry_activation", "contract §5")
    with pytest.raises(GateError, match="x ≤ inf"):
        recorder.check("x", 1.0, effect="e", at_most=float("inf"))
    assert recorder.measures[0]["rule"] == {"at_most": "inf"}
    assert measures_ok(recorder.measures) == [False]
