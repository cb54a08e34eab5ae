"""Departures from the spec: those its revision records, and those that are found by comparing.

What a revision says is posted before anything is trained. What was executed is compared with the
spec when an arm ends; a difference found then was not recorded in time and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.arm import arm_folder, read_done
from harness.attempts import arm_lineage, arm_steps
from harness.digest import parse_json
from harness.errors import SpecError
from harness.evaluate import EVALUATOR_NAME, METRIC
from harness.plan import PlannedRun, effective_config
from harness.reading import read_regular
from harness.result import Deviation, ResultDocument
from harness.spec import LoadedSpec, load_spec
from harness.spec_model import Arm
from harness.spec_revision import (
    CHANGED_HYPOTHESIS,
    DeviationField,
    SpecRevision,
    spec_differences,
    unrecorded,
)

FIELD_OF_KEY: Mapping[str, DeviationField] = {
    "base_model": "model",
    "lora_rank": "model",
    "group_size": "effective_batch",
    "groups_per_batch": "effective_batch",
    "rollouts_per_step": "effective_batch",
    "num_substeps": "effective_batch",
    "remove_constant_reward_groups": "effective_batch",
    "steps": "steps",
    "renderer": "dataset",
    "fewshot_prefix": "dataset",
    "data_seed": "dataset",
}
"""Which deviation a changed key of an effective configuration is; every other one: objective."""


def with_revision(document: ResultDocument, loaded: LoadedSpec, folder: Path) -> ResultDocument:
    """Post what the spec's revision records, and flag what it does not, before any training.

    Args:
        document: the result of a run that has not trained yet.
        loaded: the run's spec.
        folder: where the original spec is looked for, beside the revised one.

    Raises:
        SpecError: when the original is not there or is another one than the revision names.
    """
    revision = loaded.spec.revision
    if revision is None:
        return document
    original = _original(revision, loaded, folder)
    for row in revision.deviations:
        document = document.with_deviation(
            Deviation.model_validate(row.model_dump()),
            before_training=True,
            tested_instead=revision.tested_instead,
        )
    differences = spec_differences(_plain(original), _plain(loaded))
    for found in unrecorded(revision, differences):
        deviation = Deviation(
            field=found.field,
            original=found.original,
            effective=found.effective,
            reason=f"{found.path} differs from {revision.of}, and the revision does not record it",
        )
        document = _unrecorded(document, deviation, loaded)
    return document


def with_executed(document: ResultDocument, run: PlannedRun) -> ResultDocument:
    """Post every difference between what was executed so far and the spec, once."""
    known = [(row.field, row.original, row.effective) for row in document.deviations]
    for found in executed_differences(run):
        if (found.field, found.original, found.effective) not in known:
            document = _unrecorded(document, found, run.loaded)
    return document


def executed_differences(run: PlannedRun) -> list[Deviation]:
    """Return where the arms and the evaluation that ran are not what the spec says."""
    found = [
        row
        for arm in run.spec.trainings
        if read_done(run.folder, arm.name) is not None
        for row in _arm_differences(run, arm)
    ]
    return [*found, *_evaluator_differences(run)]


def _arm_differences(run: PlannedRun, arm: Arm) -> Iterator[Deviation]:
    parent, done = arm_folder(run.folder, arm.name), read_done(run.folder, arm.name) or {}
    planned = effective_config(run.spec, arm)
    for attempt in arm_lineage(parent, done):
        path = attempt.folder(parent) / "effective_config.json"
        executed = parse_json(read_regular(path), where=path.name)
        for key in sorted(planned.keys() | executed.keys()):
            if planned.get(key) != executed.get(key):
                field = FIELD_OF_KEY.get(key, "objective")
                yield _found(field, f"{arm.name} {key}", planned.get(key), executed.get(key))
    counts = sorted({row["rollouts"] for row in arm_steps(parent, done)})
    if counts != [run.spec.batch_size]:
        yield _found(
            "effective_batch", f"{arm.name} rollouts a step", [run.spec.batch_size], counts
        )


def _evaluator_differences(run: PlannedRun) -> Iterator[Deviation]:
    path = run.folder / EVALUATOR_NAME
    if not path.exists():
        return
    evaluator = parse_json(read_regular(path), where=path.name)
    planned = {
        "temperature": 0.0,
        "max_tokens": run.spec.execution.max_tokens,
        "items": run.spec.eval.n_examples,
    }
    executed = {
        "temperature": evaluator["decoding"]["temperature"],
        "max_tokens": evaluator["decoding"]["max_tokens"],
        "items": len(evaluator["items"]["ids"]),
    }
    for key, value in planned.items():
        if executed[key] != value:
            yield _found("evaluator", f"evaluation {key}", value, executed[key])
    if run.spec.eval.metric != METRIC:
        yield _found("endpoint", "evaluation metric", run.spec.eval.metric, METRIC)


def _found(field: DeviationField, what: str, original: Any, effective: Any) -> Deviation:
    reason = f"{what}: what was executed is not what the spec says"
    return Deviation(field=field, original=original, effective=effective, reason=reason)


def _unrecorded(
    document: ResultDocument, deviation: Deviation, loaded: LoadedSpec
) -> ResultDocument:
    tested = f"{loaded.name} as executed: {deviation.reason}"
    changes = deviation.field in CHANGED_HYPOTHESIS
    tested_instead = (document.tested_instead or tested) if changes else None
    return document.with_deviation(deviation, before_training=False, tested_instead=tested_instead)


def _original(revision: SpecRevision, loaded: LoadedSpec, folder: Path) -> LoadedSpec:
    path = folder / f"{revision.of}.json"
    if not path.is_file():
        raise SpecError(
            "the spec that this one revises is not beside it",
            expected=path.name,
            found="nothing",
            where=f"{loaded.name}: revision.of",
            fix="put the original spec into the same folder",
        )
    original = load_spec(path)
    if original.digest != revision.digest:
        raise SpecError(
            "the spec that this one revises is another one than it says",
            expected=f"digest {revision.digest}",
            found=f"digest {original.digest}",
            where=f"{loaded.name}: revision.digest",
            fix="restore the original, or revise the spec that is there now in a new file",
        )
    return original


def _plain(loaded: LoadedSpec) -> dict[str, Any]:
    return loaded.spec.model_dump(mode="json")
