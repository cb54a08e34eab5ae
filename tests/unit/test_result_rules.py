"""Coherence of verdict, reason and status, capping by gates, and what counts as a lost number."""

from __future__ import annotations

import itertools
import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import DocumentError
from harness.result import ResultDocument, parse_result
from harness.result_rules import Reason, Verdict, cap_verdict, lost_numbers

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
REASONS: tuple[Reason, ...] = get_args(Reason)
COHERENT = {
    ("supported", "supported"),
    ("refuted", "refuted"),
    ("inconclusive", "tie"),
    ("inconclusive", "mixed_criteria"),
    ("inconclusive", "insufficient_evidence"),
    ("inconclusive", "incomplete_execution"),
}


@pytest.fixture
def running() -> ResultDocument:
    return ResultDocument.start("The comparison has started.")


@pytest.mark.parametrize(("verdict", "reason"), list(itertools.product(VERDICTS, REASONS)))
def test_verdict_and_reason_agree(
    verdict: Verdict, reason: Reason, running: ResultDocument
) -> None:
    if (verdict, reason) in COHERENT:
        ended = running.finish("succeeded", verdict, reason, "Both arms ran.")
        assert (ended.verdict, ended.outcome_reason) == (verdict, reason)
    else:
        with pytest.raises(DocumentError, match="outcome_reason"):
            running.finish("succeeded", verdict, reason, "Both arms ran.")


@pytest.mark.parametrize("reason", ["supported", "refuted"])
def test_a_failed_run_decides_nothing(reason: Any, running: ResultDocument) -> None:
    with pytest.raises(DocumentError, match="failed run cannot decide"):
        running.finish("failed", reason, reason, "An arm failed.")


@pytest.mark.parametrize(
    "extra",
    [
        {"verdict": "inconclusive"},
        {"outcome_reason": "tie"},
        {"verdict": "inconclusive", "outcome_reason": "tie"},
        {"status": "succeeded"},
        {"status": "succeeded", "verdict": "inconclusive"},
        {"status": "succeeded", "outcome_reason": "tie"},
        {"status": "done"},
        {"verdicts": "supported"},
        {"completed_arms": ["a", "a"]},
        {"deviations": [{"field": "seed", "original": 0, "effective": 1, "reason": "r"}]},
        {"deviations": [{"field": "steps", "original": 40, "effective": 20}]},
        {"original_hypothesis_tested": False},
        {"tested_instead": "another experiment"},
        {"capacity_block": {"error": "x", "comparison_steps_completed": 0, "released_clients": 1}},
    ],
)
def test_an_incoherent_document_is_refused(extra: dict[str, Any], running: ResultDocument) -> None:
    with pytest.raises(DocumentError, match="contract §2"):
        parse_result({**running.to_json(), **extra})


@pytest.mark.parametrize(
    ("outcomes", "capped"),
    [
        ({"g1": "pass", "g2": "pass"}, False),
        ({"g1": "pass"}, True),
        ({"g1": "pass", "g2": "unknown"}, True),
        ({"g1": "pass", "g2": "fail"}, True),
        ({"g1": "pass", "g2": "pass", "extra": "fail"}, True),
        ({"g1": "pass", "g2": "pass", "extra": "unknown"}, False),
        ({"g1": "PASS", "g2": "pass"}, True),
    ],
)
@pytest.mark.parametrize("decided", ["supported", "refuted"])
def test_an_unproven_gate_caps_the_verdict(
    outcomes: dict[str, str], capped: bool, decided: Any
) -> None:
    found = cap_verdict(decided, decided, required=["g1", "g2"], outcomes=outcomes)
    expected = ("inconclusive", "insufficient_evidence") if capped else (decided, decided)
    assert found == expected


def test_capping_keeps_the_reason_of_an_inconclusive_run() -> None:
    assert cap_verdict("inconclusive", "tie", required=["g"], outcomes={}) == (
        "inconclusive",
        "tie",
    )


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab.", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab.", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(values)
def test_a_document_loses_nothing_to_itself_and_every_number_to_nothing(value: Any) -> None:
    text = json.dumps(value)
    numbers: list[int] = []

    def keep(literal: str) -> int:
        numbers.append(int(literal))
        return int(literal)

    json.loads(text, parse_int=keep)
    assert lost_numbers(value, value) == []
    assert len(lost_numbers(value, None)) == len(numbers)
