"""The audit of generated tasks: every claim recomputed, every false one named (contract §9)."""

from __future__ import annotations

from typing import Any

import pytest
from generated_tasks import TASKS, reference_order, task

from harness.generation_audit import validate

CONTRACT = {
    "required": True,
    "answer_comparison": "numeric_exact",
    "min_sample_size": 3,
    "max_label_errors": 1,
    "max_eval_overlaps": 0,
}


EVALUATION = [{"item_id": f"e{n}", "prompt": f"What is {n} times 3?"} for n in range(4)]


def honest_report(seed: int = 7, **changes: Any) -> dict[str, Any]:
    selected = reference_order(seed, [f"t{n}" for n in range(8)])[:3]
    samples = [
        {
            "item_id": item,
            "independent_answer": str(2 * int(item[1:])),
            "resolver_id": "solver-1",
            "method": "independent_resolve",
            "reasoning": "added twice",
            "blind_to_label": True,
        }
        for item in selected
    ]
    report = {
        "version": 1,
        "stage": "before_training",
        "dataset_file": "tasks.jsonl",
        "evaluation_file": {"name": "evaluation.jsonl", "sha256": "0" * 64},
        "audit_file": "audit.jsonl",
        "sample_seed": seed,
        "counts": {"generated": 10, "accepted": 8, "rejected": 1, "execution_errors": 1},
        "samples": samples,
        "label_error_count": 0,
        "overlap_count": 0,
    }
    return report | changes


def judged(report: dict[str, Any], contract: dict[str, Any] | None = None, **rows: Any) -> Any:
    rows = {"tasks": TASKS, "evaluation": EVALUATION} | rows
    return validate(report, contract or CONTRACT, **rows)


def test_an_honest_report_passes_and_says_what_it_found() -> None:
    verdict = judged(honest_report())
    assert verdict.status == "passed", verdict
    assert (verdict.label_errors, verdict.overlaps) == (0, 0)


def test_sample_order_does_not_matter_and_a_small_data_set_is_sampled_whole() -> None:
    report = honest_report()
    report["samples"].reverse()
    assert judged(report).status == "passed"
    two = [row for row in TASKS if row["item_id"] in ("t1", "t2")]
    rows = {row["item_id"]: row for row in honest_report()["samples"]}
    samples = [next(iter(rows.values())) | {"item_id": f"t{n}"} for n in (1, 2)]
    samples = [row | {"independent_answer": str(2 * int(row["item_id"][1:]))} for row in samples]
    counts = {"generated": 2, "accepted": 2, "rejected": 0, "execution_errors": 0}
    verdict = judged(honest_report(samples=samples, counts=counts), tasks=two)
    assert verdict.status == "passed", verdict


def with_sample(**changes: Any) -> dict[str, Any]:
    report = honest_report()
    report["samples"][0] |= changes
    return report


@pytest.mark.parametrize(
    ("report", "named"),
    [
        (honest_report(version=2), "found: version 2"),
        (honest_report(stage="after_training"), "report.stage"),
        (honest_report(passed=True), "report.passed"),
        (honest_report(dataset_file="../tasks.jsonl"), "report.dataset_file"),
        (honest_report(audit_file="tasks.jsonl"), "not three files"),
        (
            honest_report(
                dataset_file={"name": "t.jsonl", "sha256": "0" * 64, "kind": "audit"},
            ),
            "must have kind generated_tasks",
        ),
        (honest_report(label_error_count=1), "label_error_count is 1, the rows give 0"),
        (honest_report(overlap_count=1), "overlap_count is 1, the rows give 0"),
        (honest_report(sample_seed=8), "lacks selected tasks"),
        (honest_report(samples=honest_report()["samples"][:2]), "lacks selected tasks: 1"),
        (honest_report(samples=honest_report()["samples"] * 2), "holds tasks twice: 3"),
        (with_sample(item_id="t8"), "not selected: 1, as in t8"),
        (with_sample(blind_to_label=False), "blind_to_label"),
        (with_sample(method="copied"), "method"),
        (with_sample(reasoning=" "), "reasoning"),
        (with_sample(resolver_id=""), "resolver_id"),
        (with_sample(independent_answer="999"), "label_error_count is 0, the rows give 1"),
        (honest_report(samples=[]), "lacks selected tasks: 3"),
    ],
)
def test_each_false_statement_of_a_report_fails_and_is_named(
    report: dict[str, Any], named: str
) -> None:
    verdict = judged(report)
    assert verdict.status == "failed"
    assert any(named in failure for failure in verdict.failures), verdict.failures


@pytest.mark.parametrize("name", ["generated", "accepted", "rejected", "execution_errors"])
def test_each_count_is_recomputed(name: str) -> None:
    report = honest_report()
    report["counts"][name] += 1
    verdict = judged(report)
    assert verdict.status == "failed"
    assert f"report.counts.{name}" in verdict.failures[0]


@pytest.mark.parametrize("missing", sorted(honest_report()))
def test_each_field_of_the_report_is_needed(missing: str) -> None:
    report = honest_report()
    del report[missing]
    verdict = judged(report)
    assert verdict.status == "failed"
    assert missing in " ".join(verdict.failures)


def test_label_errors_are_allowed_up_to_the_limit_and_no_further() -> None:
    report = honest_report(label_error_count=1)
    report["samples"][0]["independent_answer"] = "-1"
    assert judged(report).status == "passed"
    report["samples"][1]["independent_answer"] = "-1"
    report["label_error_count"] = 2
    verdict = judged(report)
    assert verdict.status == "failed"
    assert verdict.failures == ("max_label_errors allows 1, found 2",)


def test_an_overlap_beyond_the_limit_fails_and_is_named() -> None:
    held_out = [*EVALUATION, {"item_id": "e9", "prompt": "what is 3 + 3?"}]
    report = honest_report(overlap_count=1)
    assert judged(report, CONTRACT | {"max_eval_overlaps": 1}, evaluation=held_out).status == (
        "passed"
    )
    verdict = judged(report, evaluation=held_out)
    assert verdict.failures == ("max_eval_overlaps allows 0, found 1: t3",)


@pytest.mark.parametrize("strategy", [None, "llm_judge"])
def test_without_a_known_strategy_labels_stay_unverified(strategy: str | None) -> None:
    contract = CONTRACT | {"answer_comparison": strategy}
    verdict = judged(honest_report(), contract)
    assert (verdict.status, verdict.label_errors) == ("unverified", None)
    assert "answer_comparison" in verdict.unverified[0]
    rows = {"tasks": TASKS, "evaluation": EVALUATION}
    relaxed = validate(honest_report(), contract, require_comparison=False, **rows)
    assert (relaxed.status, relaxed.label_errors) == ("passed", None)
    admitted = validate(
        honest_report(label_error_count=2), contract, require_comparison=False, **rows
    )
    assert admitted.status == "failed", "a report that admits too many errors cannot pass"


@pytest.mark.parametrize("name", ["min_sample_size", "max_label_errors", "max_eval_overlaps"])
@pytest.mark.parametrize("value", [None, "3", True, -1, 1.5])
def test_a_limit_that_is_not_set_leaves_the_audit_unverified(name: str, value: Any) -> None:
    verdict = judged(honest_report(), CONTRACT | {name: value})
    assert verdict.status == "unverified", verdict
    assert name in verdict.unverified[0]


def test_audits_of_nothing_do_not_pass() -> None:
    empty = judged(honest_report(samples=[]), CONTRACT | {"min_sample_size": 0})
    assert (empty.status, len(empty.unverified)) == ("unverified", 1)
    assert judged(honest_report(), evaluation=[]).status == "unverified"
    counts = {"generated": 0, "accepted": 0, "rejected": 0, "execution_errors": 0}
    nothing = judged(honest_report(samples=[], counts=counts), tasks=[])
    assert nothing.status == "failed"


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([*TASKS, task(3)], "not unique"),
        ([*TASKS, task(10) | {"disposition": "kept"}], "tasks[10].disposition"),
        ([*TASKS, task(10) | {"answer": None}], "lack a prompt or answer: t10"),
        ([*TASKS, task(10) | {"prompt": " "}], "lack a prompt or answer: t10"),
        ([*TASKS, task(10) | {"grade": 1}], "tasks[10].grade"),
        ([*TASKS, {"item_id": "t10"}], "tasks[10].prompt"),
        ([*TASKS, task(10) | {"answer": float("nan")}], "tasks[10]"),
        ([*TASKS, "text"], "tasks[10]"),
    ],
)
def test_bad_task_rows_fail_and_are_named(rows: list[Any], named: str) -> None:
    verdict = judged(honest_report(), tasks=rows)
    assert verdict.status == "failed"
    assert any(named in failure for failure in verdict.failures), verdict.failures


@pytest.mark.parametrize("report", [None, [], "passed", {}, {"version": float("nan")}])
def test_a_report_of_another_form_fails_without_an_exception(report: Any) -> None:
    assert judged(report).status == "failed"


def test_many_bad_rows_are_counted_not_listed() -> None:
    verdict = judged(honest_report(), tasks=[{"item_id": 1}] * 1000)
    assert len(verdict.failures) == 51
    assert verdict.failures[-1] == "and 2950 more problems"
