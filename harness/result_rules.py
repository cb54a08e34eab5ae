"""Which states of a result document are coherent, and what an update may not lose (contract §2)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from harness.errors import DocumentError

if TYPE_CHECKING:
    from harness.result import ResultDocument

Status = Literal["running", "succeeded", "failed"]
Verdict = Literal["supported", "refuted", "inconclusive"]
Reason = Literal[
    "supported",
    "refuted",
    "tie",
    "mixed_criteria",
    "insufficient_evidence",
    "incomplete_execution",
]

VERDICT_OF_REASON: Mapping[str, Verdict] = {
    "supported": "supported",
    "refuted": "refuted",
    "tie": "inconclusive",
    "mixed_criteria": "inconclusive",
    "insufficient_evidence": "inconclusive",
    "incomplete_execution": "inconclusive",
}
"""The only verdict that each outcome_reason goes with."""
CHANGED_HYPOTHESIS = frozenset({"objective", "endpoint"})
"""Deviations under which the original hypothesis is not what was tested."""
MOST_SENTENCES = 2
_SENTENCE_END = re.compile(r"[.!?]+(?=\s|$)")


def cap_verdict(
    verdict: Verdict, reason: Reason, *, required: Iterable[str], outcomes: Mapping[str, str]
) -> tuple[Verdict, Reason]:
    """Return the verdict that the gates allow.

    Args:
        verdict: what the rows say.
        reason: why they say so.
        required: ids of the gates that the spec asks for.
        outcomes: "pass", "fail" or "unknown" for each gate that ran; a missing one is unknown.

    Returns:
        The same pair when every required gate passed and no other one failed; else
        "inconclusive", with the reason kept if it allows that and "insufficient_evidence" if not.
    """
    needed = set(required)
    unproven = any(outcomes.get(gate) != "pass" for gate in needed)
    failed = any(outcome == "fail" for outcome in outcomes.values())
    if not (unproven or failed):
        return verdict, reason
    kept = VERDICT_OF_REASON[reason] == "inconclusive"
    return "inconclusive", reason if kept else "insufficient_evidence"


def broken_result_rule(document: ResultDocument) -> str | None:
    """Return the first rule of contract §2 that the document breaks, or None."""
    return next(_broken_rules(document), None)


def _broken_rules(document: ResultDocument) -> Iterator[str]:
    yield from _summary_rules(document.summary)
    yield from _verdict_rules(document)
    yield from _hypothesis_rules(document)
    if document.capacity_block and document.outcome_reason != "incomplete_execution":
        yield "capacity_block needs outcome_reason incomplete_execution"
    if len(set(document.completed_arms)) != len(document.completed_arms):
        yield f"completed_arms holds an arm twice: {list(document.completed_arms)}"


def _summary_rules(summary: str) -> Iterator[str]:
    pieces = [piece for piece in _SENTENCE_END.split(summary) if piece.strip()]
    if not pieces or len(pieces) > MOST_SENTENCES:
        yield f"summary must be 1 to {MOST_SENTENCES} sentences, found {len(pieces)}: {summary!r}"
    if any(ord(character) < ord(" ") for character in summary):
        yield f"summary must be one plain line, found {summary!r}"


def _verdict_rules(document: ResultDocument) -> Iterator[str]:
    verdict, reason = document.verdict, document.outcome_reason
    if document.status == "running":
        if verdict is not None or reason is not None:
            yield f"verdict {verdict!r} and outcome_reason {reason!r} must be absent while running"
        return
    if verdict is None or reason is None:
        yield f"an ended run needs verdict and outcome_reason, found {verdict!r} and {reason!r}"
    elif VERDICT_OF_REASON[reason] != verdict:
        allowed = VERDICT_OF_REASON[reason]
        yield f"outcome_reason {reason!r} needs verdict {allowed!r}, found {verdict!r}"
    if document.status == "failed" and verdict != "inconclusive":
        yield f"a failed run cannot decide: verdict must be 'inconclusive', found {verdict!r}"


def _hypothesis_rules(document: ResultDocument) -> Iterator[str]:
    changed = sorted({row.field for row in document.deviations} & CHANGED_HYPOTHESIS)
    if changed and document.original_hypothesis_tested:
        yield f"original_hypothesis_tested must be false: {changed} deviates; say tested_instead"
    if document.original_hypothesis_tested == bool(document.tested_instead):
        yield "tested_instead must be given exactly when original_hypothesis_tested is false"


def refuse_losses(
    before: Mapping[str, Any], after: Mapping[str, Any], *, revised: Collection[str] = ()
) -> None:
    """Refuse an update that drops or quietly changes what was posted."""
    lost = lost_numbers(before, after, revised=revised)
    lost += [
        f"completed_arms: {arm}"
        for arm in before["completed_arms"]
        if arm not in after["completed_arms"]
    ]
    kept = after["deviations"][: len(before["deviations"])]
    if kept != before["deviations"]:
        lost.append("deviations: a recorded row changed")
    if lost:
        raise DocumentError(
            "an update would lose or change what the result already holds",
            expected="every number, completed arm and deviation as posted",
            found="; ".join(lost),
            fix="post the new value under a new name, or name its path in revised",
        )


def lost_numbers(before: Any, after: Any, *, revised: Collection[str] = ()) -> list[str]:
    """Return what numbers of ``before`` are gone from ``after`` or differ there.

    Args:
        before: the JSON value as posted.
        after: the JSON value that would replace it.
        revised: paths ("a.b.0") whose number may change, though not vanish.
    """
    later = dict(_numbers(after, ()))
    return [
        f"{'.'.join(path)}: {value!r} became {later.get(path, 'absent')!r}"
        for path, value in _numbers(before, ())
        if path not in later or (later[path] != value and ".".join(path) not in revised)
    ]


def _numbers(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int | float]]:
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, (*path, str(key)))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, item in enumerate(value):
            yield from _numbers(item, (*path, str(index)))
