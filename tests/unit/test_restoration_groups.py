"""Which arms form a group, and what all arms of one must share (contract §3)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from provenance_documents import (
    GRPO,
    GS1,
    HASH,
    OTHER,
    SPEC,
    Document,
    arm,
    by_hash,
    by_uri,
    good,
    judged,
    row,
)

from harness.gates.verdict import Outcome
from harness.restoration_rules import provenance_status

IDENTITIES = st.sampled_from([None, "1", "2"])


@pytest.mark.parametrize(
    ("forms", "outcome"),
    [
        ((by_hash(), by_hash()), Outcome.PASS),
        ((by_uri(), by_uri()), Outcome.PASS),
        ((by_uri(adapter_sha256=HASH), by_hash()), Outcome.PASS),
        ((by_uri(adapter_sha256=HASH), by_uri()), Outcome.PASS),
        ((by_hash(), by_uri()), Outcome.FAIL),
        ((by_uri(), by_uri("tinker://run:train:1/weights/initial")), Outcome.FAIL),
        ((by_uri(adapter_sha256=HASH), by_uri(adapter_sha256=OTHER)), Outcome.FAIL),
    ],
)
def test_a_group_shares_one_hash_or_one_uri(
    forms: tuple[Document, Document], outcome: Outcome
) -> None:
    record = good()
    for name, form in zip((GRPO, GS1), forms, strict=True):
        record["arms"][name]["initialization"] = form
    assert provenance_status(judged(record)) is outcome, judged(record)


def test_a_bridge_between_hash_and_uri_is_not_one_shared_identity() -> None:
    names = (GRPO, GS1, "third")
    group = SPEC.restoration_preflight.groups[0]
    third = group.arms[0].model_copy(update={"name": "third"})
    preflight = SPEC.restoration_preflight.model_copy(
        update={"groups": (group.model_copy(update={"arms": (*group.arms, third)}),)}
    )
    more = SPEC.arms[0].model_copy(update={"name": "third"})
    spec = SPEC.model_copy(update={"arms": (*SPEC.arms, more), "restoration_preflight": preflight})
    record = {"version": 1, "arms": {name: arm() for name in names}}
    record["arms"][GS1]["initialization"] = by_uri()
    record["arms"]["third"]["initialization"] = by_uri(adapter_sha256=HASH)
    assert provenance_status(judged(record, spec)) is Outcome.FAIL
    record["arms"][GS1]["initialization"] = by_uri(adapter_sha256=HASH)
    assert judged(record, spec) == []


@pytest.mark.parametrize(
    ("restore", "paired", "restores", "outcome"),
    [
        (True, False, 1, Outcome.PASS),
        (True, False, 0, Outcome.FAIL),
        (True, True, 1, Outcome.FAIL),
        (False, False, 1, Outcome.FAIL),
        (None, False, 1, Outcome.FAIL),
        (True, None, 1, Outcome.FAIL),
    ],
)
def test_a_lone_arm_is_a_group_only_when_it_was_really_restored(
    restore: bool | None, paired: bool | None, restores: int, outcome: Outcome
) -> None:
    group = SPEC.restoration_preflight.groups[0]
    lone = group.model_copy(update={"arms": group.arms[1:]})
    spec = SPEC.model_copy(
        update={
            "arms": SPEC.arms[1:],
            "restoration_preflight": SPEC.restoration_preflight.model_copy(
                update={"groups": (lone,)}
            ),
            "experiment_features": SPEC.experiment_features.model_copy(
                update={"checkpoint_restore": restore, "paired_training_arms": paired}
            ),
        }
    )
    record = {"version": 1, "arms": {GS1: arm()}}
    record["arms"][GS1]["restore_count"] = restores
    record["arms"][GS1]["optimizer_checks"] = [row(i) for i in range(restores + 1)]
    assert provenance_status(judged(record, spec)) is outcome, judged(record, spec)


def test_paired_arms_in_different_groups_are_not_compared_and_fail() -> None:
    group = SPEC.restoration_preflight.groups[0]
    split = tuple(group.model_copy(update={"arms": (one,)}) for one in group.arms)
    preflight = SPEC.restoration_preflight.model_copy(update={"groups": split})
    findings = judged(good(), SPEC.model_copy(update={"restoration_preflight": preflight}))
    assert any("restoration_preflight.groups" in finding.path for finding in findings)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(st.tuples(IDENTITIES, IDENTITIES).filter(any), min_size=2, max_size=2))
def test_identity_agrees_with_an_independent_statement_of_the_rule(
    arms: list[tuple[str | None, str | None]],
) -> None:
    record = good()
    for name, (sha, uri) in zip((GRPO, GS1), arms, strict=True):
        digest = sha * 64 if sha else None
        form = by_hash(digest or "") if uri is None else by_uri(f"tinker://{uri}")
        if uri is not None and digest is not None:
            form["adapter_sha256"] = digest
        record["arms"][name]["initialization"] = form
    (sha_a, uri_a), (sha_b, uri_b) = arms
    differ = (sha_a and sha_b and sha_a != sha_b) or (uri_a and uri_b and uri_a != uri_b)
    shared = (sha_a and sha_a == sha_b) or (uri_a and uri_a == uri_b)
    assert (judged(record) == []) == bool(shared and not differ), f"{arms}: {judged(record)}"
