"""Defects in how gates are judged and in what their evidence counts for."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from harness.gates import evidence, standing, verdict
from tests.mutants.client_registry import planted

EVIDENCE, VERDICT = "tests/unit/test_gate_evidence.py", "tests/unit/test_gate_verdict.py"

# --- evidence ---------------------------------------------------------------------------------


@planted(EVIDENCE, "an edit during the gates goes unnoticed")
def closing_digest_ignored(patch: pytest.MonkeyPatch) -> None:
    honest = standing._records

    def always_closed(*given: Any) -> Any:
        return (replace(found, closed=True) for found in honest(*given))

    patch.setattr(standing, "_records", always_closed)


@planted(EVIDENCE, "arms train on a service that was last examined days ago")
def expired_live_evidence_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(standing, "LIVE_EVIDENCE_LIFETIME", timedelta(days=3650))


@planted(EVIDENCE, "a failed gate is turned into a passed one with an editor")
def hand_edited_evidence_accepted(patch: pytest.MonkeyPatch) -> None:
    def trusting(chain: Any, raw: bytes, where: str) -> str:
        event = evidence.parse_json(raw, where=where)
        chain.previous = event.pop("line_sha256")
        chain.events.append(event)
        return ""

    patch.setattr(evidence, "_link", trusting)


@planted(EVIDENCE, "a gate that measured nothing lets arms train")
def gate_without_measures_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(standing, "measures_ok", lambda measures: [True, *(True for _ in measures)])


@planted(EVIDENCE, "a gate is run again until it passes")
def flaky_gate_accepted(patch: pytest.MonkeyPatch) -> None:
    honest = standing._records
    patch.setattr(standing, "_records", lambda *given: list(honest(*given))[-1:])


@planted(EVIDENCE, "evidence of other source code counts for this one")
def stale_evidence_accepted(patch: pytest.MonkeyPatch) -> None:
    honest = standing._records
    patch.setattr(
        standing,
        "_records",
        lambda gate_id, history, key: (
            replace(found, digest=decision_digest(key)) for found in honest(gate_id, history, key)
        ),
    )
    patch.setattr(standing.Binding, "digest_for", lambda _self, *, live: decision_digest(live))


def decision_digest(_: object) -> str:
    return "one digest for everything"


@planted(VERDICT, "a skipped gate counts as passed")
def skip_counted_as_pass(patch: pytest.MonkeyPatch) -> None:
    change_phases(patch, "skipped", "passed")


@planted(VERDICT, "a gate that failed and was repeated counts as passed")
def rerun_counted_as_pass(patch: pytest.MonkeyPatch) -> None:
    honest = verdict._irregularity

    def lenient(phases: Any, flags: list[bool]) -> Any:
        kept = [phase for phase in phases if phase.outcome != "rerun"]
        return honest(list({phase.when: phase for phase in kept}.values()), flags)

    patch.setattr(verdict, "_irregularity", lenient)


@planted(VERDICT, "a gate test without a single measurement passes")
def nothing_measured_passes(patch: pytest.MonkeyPatch) -> None:
    honest = verdict._irregularity
    patch.setattr(verdict, "_irregularity", lambda phases, flags: honest(phases, flags or [True]))


@planted(VERDICT, "an expected failure counts as passed")
def xfail_counted_as_pass(patch: pytest.MonkeyPatch) -> None:
    honest = verdict._irregularity
    patch.setattr(
        verdict,
        "_irregularity",
        lambda phases, flags: honest(
            [replace(phase, expected_failure=False, outcome="passed") for phase in phases], flags
        ),
    )


def change_phases(patch: pytest.MonkeyPatch, before: str, after: str) -> None:
    honest = verdict._irregularity
    patch.setattr(
        verdict,
        "_irregularity",
        lambda phases, flags: honest(
            [replace(p, outcome=after) if p.outcome == before else p for p in phases], flags
        ),
    )
