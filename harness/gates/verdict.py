"""Three-valued outcomes and the rule that turns a test's phases into one (design §3.1).

Fail beats unknown beats pass. Whatever is not a clean, complete, unretried pass with at least
one measurement is unknown, never a pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What is known of a gate."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Phase:
    """One report of one test: its phase and how pytest called it.

    Attributes:
        when: ``setup``, ``call`` or ``teardown``.
        outcome: pytest's word: ``passed``, ``failed``, ``skipped`` or a plugin's own.
        expected_failure: the test was marked xfail (or a subtest was).
        reason: the skip reason or the first line of the failure, for the record.
        duration_s: how long the phase took.
    """

    when: str
    outcome: str
    expected_failure: bool = False
    reason: str = ""
    duration_s: float = 0.0


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """Join outcomes: fail beats unknown beats pass; nothing at all is unknown."""
    seen = set(outcomes)
    if Outcome.FAIL in seen:
        return Outcome.FAIL
    if Outcome.UNKNOWN in seen or not seen:
        return Outcome.UNKNOWN
    return Outcome.PASS


def judge_phases(phases: Iterable[Phase], measures_ok: Iterable[bool]) -> tuple[Outcome, str]:
    """Return the outcome of one gate test and the reason for it.

    Args:
        phases: every report pytest made for the test, in order.
        measures_ok: one flag a recorded measurement: inside what is allowed or not.

    The order of the rules matters: a failed phase or measurement is a fail whatever else
    happened; after that every irregularity is unknown.
    """
    phases = list(phases)
    flags = list(measures_ok)
    if failed := [phase for phase in phases if phase.outcome == "failed"]:
        return Outcome.FAIL, failed[0].reason or f"failed in {failed[0].when}"
    if not all(flags):
        return Outcome.FAIL, "a measurement was outside what is allowed"
    return _irregularity(phases, flags)


def _irregularity(phases: list[Phase], flags: list[bool]) -> tuple[Outcome, str]:
    if any(phase.expected_failure for phase in phases):
        return Outcome.UNKNOWN, "marked as an expected failure: proves nothing"
    if skipped := [phase for phase in phases if phase.outcome == "skipped"]:
        return Outcome.UNKNOWN, skipped[0].reason or "skipped"
    if odd := [phase.outcome for phase in phases if phase.outcome != "passed"]:
        return Outcome.UNKNOWN, f"irregular outcome {odd[0]!r}: a retried proof is no proof"
    whens = [phase.when for phase in phases]
    for needed in ("setup", "call", "teardown"):
        if needed not in whens:
            return Outcome.UNKNOWN, f"the {needed} phase did not run"
    if whens.count("setup") > 1:
        return Outcome.UNKNOWN, "the test ran more than once: a retried proof is no proof"
    if not flags:
        return Outcome.UNKNOWN, "nothing was measured"
    return Outcome.PASS, "every measurement inside what is allowed"
