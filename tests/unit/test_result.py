"""The result document: its transitions, the coherence of a verdict, and that no number is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DocumentError
from harness.result import (
    CapacityBlock,
    Deviation,
    ResultDocument,
    publish,
    read_result,
    result_line,
)

ENDPOINT = Deviation(
    field="endpoint", original="accuracy", effective="reward", reason="grader unavailable"
)


@pytest.fixture
def running() -> ResultDocument:
    return ResultDocument.start("The comparison has started.")


def test_a_run_starts_without_a_verdict(running: ResultDocument) -> None:
    assert running.to_json() == {
        "status": "running",
        "summary": "The comparison has started.",
        "metrics": {"arms": {}},
        "completed_arms": [],
        "deviations": [],
        "original_hypothesis_tested": True,
    }


def test_metrics_of_base_and_arms_stand_where_the_contract_puts_them(
    running: ResultDocument,
) -> None:
    document = (
        running.with_metrics({"base_accuracy": 0.5, "n_items": 1319})
        .with_metrics({"accuracy": 0.75}, arm="gs1_seed0")
        .with_metrics({"reward": 0.7}, arm="gs1_seed0")
        .arm_completed("gs1_seed0")
    )
    assert document.to_json()["metrics"] == {
        "base_accuracy": 0.5,
        "n_items": 1319,
        "arms": {"gs1_seed0": {"accuracy": 0.75, "reward": 0.7}},
    }
    assert document.completed_arms == ("gs1_seed0",)
    assert running.metrics.arms == {}, "an operation must not change the document it started from"


def test_a_posted_number_does_not_change(running: ResultDocument) -> None:
    document = running.with_metrics({"accuracy": 0.5}, arm="gs1_seed0")
    assert document.with_metrics({"accuracy": 0.5}, arm="gs1_seed0") == document
    with pytest.raises(
        DocumentError, match=r"metrics\.arms\.gs1_seed0\.accuracy: 0\.5 became 0\.6"
    ):
        document.with_metrics({"accuracy": 0.6}, arm="gs1_seed0")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "0.5", None])
def test_a_metric_is_a_finite_number(value: Any, running: ResultDocument) -> None:
    for arm in (None, "gs1_seed0"):
        with pytest.raises(DocumentError):
            running.with_metrics({"accuracy": value}, arm=arm)


def test_the_name_arms_is_not_a_metric(running: ResultDocument) -> None:
    with pytest.raises(DocumentError):
        running.with_metrics({"arms": 1})


def test_an_arm_completes_once(running: ResultDocument) -> None:
    document = running.arm_completed("a").arm_completed("b").arm_completed("a")
    assert document.completed_arms == ("a", "b")


def test_an_ended_run_takes_no_second_ending(running: ResultDocument) -> None:
    ended = running.finish("succeeded", "inconclusive", "insufficient_evidence", "Both arms ran.")
    with pytest.raises(DocumentError, match="has ended"):
        ended.finish("succeeded", "supported", "supported", "Both arms ran.")
    with pytest.raises(DocumentError, match="has ended"):
        ended.with_deviation(ENDPOINT, before_training=True, tested_instead="reward")
    with pytest.raises(DocumentError, match="cannot be taken up again"):
        ended.reopened("Running again.")


def test_an_incomplete_run_is_taken_up_with_its_numbers(running: ResultDocument) -> None:
    ended = (
        running.with_metrics({"base_accuracy": 0.5})
        .arm_completed("gs1_seed0")
        .finish("succeeded", "inconclusive", "incomplete_execution", "One arm ran.")
    )
    again = ended.reopened("The other arm is running.")
    assert (again.status, again.verdict, again.outcome_reason) == ("running", None, None)
    assert again.metrics == ended.metrics
    assert again.completed_arms == ended.completed_arms


@pytest.mark.parametrize(
    ("summary", "accepted"),
    [
        ("Both arms ran; GS1 scored 0.7513 and GRPO 0.74.", True),
        ("Both arms ran. The half-width was 0.0748.", True),
        ("Both arms ran", True),
        ("One. Two! Three?", False),
        ("One. Two. And a trailing clause", False),
        ("", False),
        (" ", False),
        ("Two\nlines.", False),
    ],
)
def test_a_summary_is_at_most_two_plain_sentences(
    summary: str, accepted: bool, running: ResultDocument
) -> None:
    if accepted:
        assert running.with_summary(summary).summary == summary
    else:
        with pytest.raises(DocumentError, match="summary"):
            running.with_summary(summary)


def test_a_change_of_endpoint_is_never_the_original_hypothesis(running: ResultDocument) -> None:
    with pytest.raises(DocumentError, match="original_hypothesis_tested must be false"):
        running.with_deviation(ENDPOINT, before_training=True)
    document = running.with_deviation(
        ENDPOINT, before_training=True, tested_instead="the same arms compared by reward"
    )
    assert document.original_hypothesis_tested is False
    assert document.tested_instead == "the same arms compared by reward"
    assert document.deviations == (ENDPOINT,)


def test_a_deviation_recorded_after_training_is_flagged(running: ResultDocument) -> None:
    shorter = Deviation(field="steps", original=40, effective=20, reason="over budget")
    timely = running.with_deviation(shorter, before_training=True)
    late = running.with_deviation(shorter, before_training=False)
    assert timely.deviations[0].reason == "over budget"
    assert late.deviations[0].reason == "UNRECORDED before training: over budget"
    assert timely.original_hypothesis_tested is True


def test_a_capacity_stop_is_a_failed_incomplete_run(running: ResultDocument) -> None:
    block = CapacityBlock(error="429", comparison_steps_completed=0, released_clients=2)
    summary = "The service had no room."
    stopped = running.finish(
        "failed", "inconclusive", "incomplete_execution", summary, capacity_block=block
    )
    assert stopped.to_json()["capacity_block"] == {
        "error": "429",
        "comparison_steps_completed": 0,
        "released_clients": 2,
    }
    with pytest.raises(DocumentError, match="cannot be taken up again"):
        stopped.reopened("Running again.")
    with pytest.raises(DocumentError, match="needs outcome_reason incomplete_execution"):
        running.finish("failed", "inconclusive", "tie", summary, capacity_block=block)


def test_a_section_keeps_every_number_it_held(running: ResultDocument) -> None:
    before = {"version": 1, "arms": {"a": {"restore_count": 0, "seconds": None}}}
    document = running.with_section("initialization_provenance", before)
    grown = {"version": 1, "arms": {"a": {"restore_count": 0, "seconds": 2.5}, "b": {}}}
    assert (
        document.with_section("initialization_provenance", grown).to_json()[
            "initialization_provenance"
        ]
        == grown
    )
    restored = {"version": 1, "arms": {"a": {"restore_count": 1}}}
    path = "arms.a.restore_count"
    with pytest.raises(DocumentError, match=f"initialization_provenance.{path}: 0 became 1"):
        document.with_section("initialization_provenance", restored)
    revised = document.with_section("initialization_provenance", restored, revised=[path])
    assert revised.to_json()["initialization_provenance"] == restored
    with pytest.raises(DocumentError, match="became 'absent'"):
        document.with_section("initialization_provenance", {"version": 1}, revised=[path])


@pytest.mark.parametrize(
    ("name", "section"), [("metrics", {}), ("gates", {}), ("decision", {"x": float("nan")})]
)
def test_a_section_is_one_of_the_contracts_and_strict_json(
    name: str, section: dict[str, Any], running: ResultDocument
) -> None:
    with pytest.raises(DocumentError):
        running.with_section(name, section)


def test_publishing_refuses_what_would_lose_a_number(
    running: ResultDocument, tmp_path: Path
) -> None:
    path = tmp_path / "result.json"
    full = running.with_metrics({"base_accuracy": 0.5}).arm_completed("a")
    publish(path, full)
    for poorer in (
        running,
        running.arm_completed("a"),
        running.with_metrics({"base_accuracy": 0.5}),
    ):
        with pytest.raises(DocumentError, match=r"would lose or change"):
            publish(path, poorer)
        assert read_result(path) == full
    publish(path, full.arm_completed("b"))
    assert read_result(path).completed_arms == ("a", "b")


def test_publishing_refuses_a_changed_deviation(running: ResultDocument, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    fewer = Deviation(field="dataset", original="train", effective="test", reason="typing error")
    other = Deviation(field="dataset", original="train", effective="train", reason="typing error")
    publish(path, running.with_deviation(fewer, before_training=True))
    for document in (running, running.with_deviation(other, before_training=True)):
        with pytest.raises(DocumentError, match="a recorded row changed"):
            publish(path, document)


def test_the_result_is_one_line_of_strict_json(running: ResultDocument) -> None:
    document = running.with_section("activation_calibration", {"values": {}, "note": "a\nb"})
    line = result_line(document)
    assert line.startswith("RESULT {")
    assert "\n" not in line
    assert json.loads(line.removeprefix("RESULT ")) == document.to_json()
