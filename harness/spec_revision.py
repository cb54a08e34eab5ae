"""What a revised spec says it changed, and what really differs from the spec it revises.

A saved spec is never edited. A revision is a new file whose ``revision`` section names the
original by digest and records every departure, in the fields of contract §2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.spec_part import PlainName, Sha256, SpecPart, Violation

DeviationField = Literal[
    "model", "objective", "effective_batch", "steps", "dataset", "evaluator", "endpoint"
]
Reason = Annotated[str, Field(min_length=1)]
CHANGED_HYPOTHESIS = frozenset({"objective", "endpoint"})
"""Deviations under which the original hypothesis is not what is tested (contract §2)."""


class RecordedDeviation(SpecPart):
    """One departure, recorded before anything is trained with it."""

    field: DeviationField
    original: Any
    effective: Any
    reason: Reason


class SpecRevision(SpecPart):
    """The spec that this one revises, and how.

    ``of`` is the original's file stem, ``digest`` its digest as ``python -m harness spec`` prints.
    """

    of: PlainName
    digest: Sha256
    deviations: Annotated[tuple[RecordedDeviation, ...], Field(min_length=1)]
    tested_instead: Reason | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where a spec is not the spec it revises.

    Attributes:
        field: the deviation it is, in the words of contract §2.
        path: where in the spec.
        original: value there in the original, None where absent.
        effective: value in the revised spec.
    """

    field: DeviationField
    path: str
    original: Any
    effective: Any


FIELD_OF_PATH: tuple[tuple[str, DeviationField | None], ...] = (
    ("base_model", "model"),
    ("lora_rank", "model"),
    ("embedded.base_model_sha256", "model"),
    ("embedded.task_seed", "dataset"),
    ("embedded", "objective"),
    ("dataset", "dataset"),
    ("execution.data_seed", "dataset"),
    ("execution.fewshot_prefix", "dataset"),
    ("execution.renderer", "dataset"),
    ("execution", "objective"),
    ("optimizer", "objective"),
    ("training_type", "objective"),
    ("steps", "steps"),
    ("batch_size", "effective_batch"),
    ("max_seq_len", "effective_batch"),
    ("eval.metric", "endpoint"),
    ("eval", "evaluator"),
    ("decision_rule.arms", None),
    ("decision_rule", "endpoint"),
    ("arms[].group_size", "effective_batch"),
    ("arms[].groups_per_batch", "effective_batch"),
    ("arms[].steps", "steps"),
    ("arms[].name", None),
    ("arms[].seed", "endpoint"),
    ("arms", "objective"),
)
"""Which deviation a change at a path is; the first match by prefix counts. Names of arms, prose,
budget and the preflight sections are none: they change nothing that is trained or compared."""


def field_of(path: str) -> DeviationField | None:
    """Return the deviation that a change at ``path`` is, None for what changes nothing that runs.

    Args:
        path: as in ``arms[].tau``, list positions left out.
    """
    for prefix, field in FIELD_OF_PATH:
        if path == prefix or path.startswith((f"{prefix}.", f"{prefix}[")):
            return field
    return None


def spec_differences(original: Mapping[str, Any], revised: Mapping[str, Any]) -> list[Difference]:
    """Return every difference between two specs that changes what is trained, scored or compared.

    Args:
        original: the original spec's JSON, defaults filled in.
        revised: the same of the spec that revises it.
    """
    before, after = dict(_leaves(original, "")), dict(_leaves(revised, ""))
    found: list[Difference] = []
    for path in sorted(before.keys() | after.keys()):
        field = field_of(_without_positions(path))
        if field is not None and before.get(path) != after.get(path):
            found.append(Difference(field, path, before.get(path), after.get(path)))
    return found


def unrecorded(revision: SpecRevision, differences: list[Difference]) -> list[Difference]:
    """Return the differences whose kind the revision does not record."""
    recorded = {row.field for row in revision.deviations}
    return [found for found in differences if found.field not in recorded]


def revision_violations(revision: SpecRevision | None) -> Iterator[Violation]:
    """Yield what contract §2 asks of a revision and it does not say."""
    if revision is None:
        return
    changed = sorted({row.field for row in revision.deviations} & CHANGED_HYPOTHESIS)
    if bool(changed) != (revision.tested_instead is not None):
        yield Violation(
            "revision.tested_instead",
            revision.tested_instead,
            "must be given exactly when objective or endpoint deviates"
            f" (deviating: {changed or 'neither'})",
        )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif value is not None:
        yield path, value


def _without_positions(path: str) -> str:
    head, bracket, tail = path.partition("[")
    return path if not bracket else f"{head}[]{_without_positions(tail.partition(']')[2])}"
