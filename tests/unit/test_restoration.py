"""The provenance record and the rules of contract §3 on one arm: each row breaks one rule."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from provenance_documents import (
    GRPO,
    GS1,
    HASH,
    OTHER,
    SPEC,
    arm,
    by_uri,
    good,
    judged,
    place,
    row,
)
from pydantic import ValidationError

from harness.gates.verdict import Outcome
from harness.restoration import OptimizerCheck, Provenance, optimizer_check
from harness.restoration_rules import provenance_status


def test_a_complete_record_has_no_findings_and_passes() -> None:
    assert judged(good()) == []
    assert provenance_status(judged(good())) is Outcome.PASS


ARM, START, CHECKS = f"arms.{GS1}", f"arms.{GS1}.initialization", f"arms.{GS1}.optimizer_checks"
BROKEN: list[tuple[str, Any, str]] = [
    ("version", 2, "version"),
    (ARM, ..., ARM),
    ("arms.base", arm(), "arms.base"),
    (f"{ARM}.surprise", 1, "surprise"),
    (f"{START}.adapter_sha256", OTHER, "initialization.adapter_sha256"),
    (f"{START}.adapter_sha256", "A" * 64, "adapter_sha256"),
    (f"{START}.source", "declared", "source"),
    (f"{START}.base_checkpoint", "embedded/other", "base_checkpoint"),
    (f"{START}.base_checkpoint", "", "base_checkpoint"),
    (f"{START}.evidence_ref", ..., "evidence_ref"),
    (f"{START}.before_first_update", False, "before_first_update"),
    (START, by_uri(), "arms.*.initialization"),
    (START, by_uri(adapter_sha256=OTHER), "initialization.adapter_sha256"),
    (
        START,
        by_uri(adapter_sha256=HASH, loaded_checkpoint_uri="tinker://x"),
        "loaded_checkpoint_uri",
    ),
    (START, by_uri(adapter_sha256=HASH, load_succeeded=False), "load_succeeded"),
    (START, by_uri(adapter_sha256=HASH, checkpoint_immutable=False), "checkpoint_immutable"),
    (START, by_uri(adapter_sha256=HASH, checkpoint_scope="adapter_only"), "checkpoint_scope"),
    (START, by_uri(adapter_sha256=HASH, source="local_hash"), "source"),
    (f"{ARM}.restore_count", 1, "optimizer_checks"),
    (f"{ARM}.restore_count", -1, "restore_count"),
    (CHECKS, [], "optimizer_checks"),
    (CHECKS, [row(), row()], "optimizer_checks"),
    (CHECKS, [row(1)], "optimizer_checks"),
    (f"{CHECKS}.0.before_next_update", False, "before_next_update"),
    (f"{CHECKS}.0.optimizer", "sgd", "checks.0.optimizer"),
    (f"{CHECKS}.0.requested_config.learning_rate", 1e-4, "requested_config"),
    (f"{CHECKS}.0.actual", None, "actual"),
    (f"{CHECKS}.0.actual", "sgd", "actual"),
    (f"{CHECKS}.0.actual_config", None, "actual"),
    (f"{CHECKS}.0.actual_config.beta2", 0.999, "actual_config.beta2"),
    (f"{CHECKS}.0.actual_config.lora_rank", 4, "actual_config.lora_rank"),
    (f"{CHECKS}.0.actual_config.init_seed", False, "actual_config.init_seed"),
    (f"{CHECKS}.0.source", "declared", "actual"),
    (f"{CHECKS}.0.source", "guessed", "source"),
    (f"{ARM}.initial_output.output_sha256", OTHER, "output_sha256"),
    (f"{ARM}.initial_output.batch_sha256", OTHER, "batch_sha256"),
    (f"{ARM}.initial_output", {"available": False, "reason": "no forward call"}, "initial_output"),
    (f"{ARM}.initial_output", {"available": False}, "initial_output"),
]


@pytest.mark.parametrize(("path", "value", "named"), BROKEN)
def test_one_broken_rule_fails_and_is_named(path: str, value: Any, named: str) -> None:
    record = good()
    place(record, path, value)
    findings = judged(record)
    failed = [finding.path for finding in findings if finding.outcome is Outcome.FAIL]
    assert any(named in found for found in failed), (
        f"{path} = {value!r}: expected a failed finding on {named}, found {findings}"
    )
    assert provenance_status(findings) is Outcome.FAIL


def test_no_record_fails_where_the_preflight_applies_and_only_there() -> None:
    assert provenance_status(judged(None)) is Outcome.FAIL
    off = SPEC.restoration_preflight.model_copy(update={"applicable": False})
    assert judged(None, SPEC.model_copy(update={"restoration_preflight": off})) == []


UNVERIFIED: list[tuple[str, Any]] = [
    (f"{CHECKS}.0", row() | {"source": "declared", "actual": None, "actual_config": None}),
    (f"{CHECKS}.0.actual_config.eps", ...),
    (f"{CHECKS}.0.actual", "adamw"),
]


@pytest.mark.parametrize(("path", "value"), UNVERIFIED)
def test_what_the_service_does_not_say_is_unverified_and_never_passed(
    path: str, value: Any
) -> None:
    record = good()
    if path.endswith(".0"):
        record["arms"][GS1]["optimizer_checks"][0] = value
    else:
        place(record, path, value)
    findings = judged(record)
    assert [finding.outcome for finding in findings] == [Outcome.UNKNOWN], findings
    assert provenance_status(findings) is Outcome.UNKNOWN
    assert "unverified" in str(findings[0])


@pytest.mark.parametrize(("decay", "outcome"), [(0, Outcome.PASS), (0.01, Outcome.FAIL)])
def test_adamw_is_adam_only_without_decay(decay: float, outcome: Outcome) -> None:
    record = good()
    check = record["arms"][GS1]["optimizer_checks"][0]
    check["actual"] = "adamw"
    check["actual_config"]["weight_decay"] = decay
    assert provenance_status(judged(record)) is outcome


def test_an_output_may_be_unavailable_only_where_the_spec_does_not_require_it() -> None:
    record = good()
    for name in (GRPO, GS1):
        record["arms"][name]["initial_output"] = {"available": False, "reason": "no forward call"}
    assert provenance_status(judged(record)) is Outcome.FAIL
    optional = SPEC.restoration_preflight.model_copy(update={"fixed_batch_required": False})
    spec = SPEC.model_copy(update={"restoration_preflight": optional})
    assert provenance_status(judged(record, spec)) is Outcome.UNKNOWN


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(0, 5), st.lists(st.integers(0, 6), max_size=8))
def test_rows_are_complete_exactly_when_each_restore_has_one(
    restores: int, numbers: list[int]
) -> None:
    record = good()
    record["arms"][GS1]["restore_count"] = restores
    record["arms"][GS1]["optimizer_checks"] = [row(number) for number in numbers]
    complete = len(numbers) == restores + 1 and set(numbers) == set(range(restores + 1))
    assert (judged(record) == []) == complete, f"count {restores}, rows {numbers}"


def test_the_record_survives_its_own_json_form() -> None:
    document = good()
    del document["arms"][GS1]["optimizer_checks"][0]["requested_config"]["init_seed"]
    document["arms"][GRPO]["initialization"] = by_uri(adapter_sha256=HASH)
    before = copy.deepcopy(document)
    parsed = Provenance.model_validate_json(json.dumps(document))
    assert parsed.to_json() == before


def test_the_models_are_strict() -> None:
    for path, value in ((f"{ARM}.restore_count", "0"), (f"{CHECKS}.0.after_restore", True)):
        record = good()
        place(record, path, value)
        with pytest.raises(ValidationError):
            Provenance.model_validate_json(json.dumps(record))


@pytest.fixture
def check() -> Callable[[dict[str, Any]], OptimizerCheck]:
    asked = SPEC.restoration_preflight.groups[0].arms[0]
    return lambda reported: optimizer_check(
        asked, reported, after_restore=2, evidence_ref="get_info 4"
    )


def test_a_type_name_alone_is_declared(
    check: Callable[[dict[str, Any]], OptimizerCheck],
) -> None:
    found = check({"optimizer_config": {"type": "adamw"}, "lora_rank": 8})
    assert (found.source, found.actual, found.actual_config) == ("declared", None, None)
    assert (found.after_restore, found.optimizer) == (2, "adam")
    assert check({}).source == "declared"


def test_a_full_answer_is_the_servers(check: Callable[[dict[str, Any]], OptimizerCheck]) -> None:
    said = {"type": "adam", "learning_rate": 1.0, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
    found = check({"optimizer_config": said, "lora_rank": 8})
    assert (found.source, found.actual) == ("server_response", "adam")
    assert found.actual_config is not None
    assert found.actual_config["learning_rate"] == 1.0, "a wrong answer must stay visible"
