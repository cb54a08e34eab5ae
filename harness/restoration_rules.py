"""Every rule of contract §3 on ``initialization_provenance``, as findings.

A finding is a fail (the arms did not start alike, or the service gave another optimizer: the run
stops) or unverified (nothing says so, nothing proves it). Unverified is never a pass: the status
of a record is the worst of its findings (design §3.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from harness.digest import canonical_json
from harness.errors import DocumentError
from harness.gates.verdict import Outcome, combine
from harness.record_version import version_refusal
from harness.restoration import (
    ArmProvenance,
    AvailableOutput,
    CheckpointInitialization,
    OptimizerCheck,
    Provenance,
    requested_config,
)
from harness.spec_model import ExperimentSpec
from harness.spec_preflight import RestorationArm, RestorationGroup

_ADAM_WITHOUT_DECAY = {("adam", "adamw"), ("adamw", "adam")}


@dataclass(frozen=True)
class Finding:
    """One rule that a record breaks or leaves open.

    Attributes:
        outcome: FAIL, or UNKNOWN for what is unverified.
        path: place in the record, dotted.
        expected, found: what the rule wants and what is there.
    """

    outcome: Outcome
    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        word = "unverified" if self.outcome is Outcome.UNKNOWN else "failed"
        return f"{self.path}: {word}: expected {self.expected}, found {self.found}"


def judge_provenance(
    record: Provenance | Mapping[str, Any] | None, spec: ExperimentSpec
) -> list[Finding]:
    """Check a record against contract §3.

    Args:
        record: the document, parsed or as JSON; None when there is none.
        spec: names arms, groups, optimizers and features.

    Returns:
        every finding; none at all only when all is proven, or the preflight does not apply.
    """
    if not spec.restoration_preflight.applicable:
        return []
    if record is None:
        return [_fail("initialization_provenance", "a record", "none")]
    if not isinstance(record, Provenance):
        refusal = version_refusal(record, "provenance", where="version", error=DocumentError)
        if refusal is not None:
            return [_fail("version", f"{refusal.expected} ({refusal.fix})", refusal.found)]
        try:
            record = Provenance.model_validate_json(canonical_json(dict(record)))
        except ValidationError as error:
            return list(_shape_findings(error))
        except DocumentError as error:
            return [_fail("initialization_provenance", error.expected, error.found)]
    groups = spec.restoration_preflight.groups
    return [
        *_arm_set(record, spec),
        *_paired_together(spec),
        *(found for group in groups for found in _judge_group(record, group, spec)),
    ]


def provenance_status(findings: Sequence[Finding]) -> Outcome:
    """Return the worst of the findings; a record without any is proven."""
    return combine(finding.outcome for finding in findings) if findings else Outcome.PASS


def _fail(path: str, expected: str, found: Any) -> Finding:
    return Finding(Outcome.FAIL, path, expected, str(found))


def _unverified(path: str, expected: str, found: Any) -> Finding:
    return Finding(Outcome.UNKNOWN, path, expected, str(found))


def _shape_findings(error: ValidationError) -> Iterator[Finding]:
    for item in error.errors():
        path = ".".join(str(part) for part in item["loc"])
        yield _fail(path or "record", item["msg"], repr(item.get("input"))[:120])


def _arm_set(record: Provenance, spec: ExperimentSpec) -> Iterator[Finding]:
    named = {arm.name for arm in spec.arms}
    for name in sorted(named - set(record.arms)):
        yield _fail(f"arms.{name}", "an entry for every arm of the spec", "none")
    for name in sorted(set(record.arms) - named):
        yield _fail(f"arms.{name}", "arms of the spec only: an untrained baseline stays out", name)
    grouped = [arm.name for group in spec.restoration_preflight.groups for arm in group.arms]
    for name in sorted(named - set(grouped)):
        yield _fail(f"arms.{name}", "a place in one restoration group of the spec", "none")
    for name in sorted({name for name in grouped if grouped.count(name) > 1}):
        yield _fail(f"arms.{name}", "one restoration group", "several")


def _paired_together(spec: ExperimentSpec) -> Iterator[Finding]:
    """Paired training arms that sit in different groups would never be compared."""
    groups = spec.restoration_preflight.groups
    if spec.experiment_features.paired_training_arms and len(groups) > 1:
        where = "restoration_preflight.groups"
        yield _fail(where, "paired training arms in one group", f"{len(groups)} groups")


def _judge_group(
    record: Provenance, group: RestorationGroup, spec: ExperimentSpec
) -> Iterator[Finding]:
    present = {arm.name: record.arms[arm.name] for arm in group.arms if arm.name in record.arms}
    for arm in group.arms:
        if arm.name in present:
            yield from _judge_optimizer(arm, present[arm.name])
    if len(group.arms) == 1:
        yield from _lone_arm(group.arms[0].name, present, spec)
    yield from _same_adapter(present)
    yield from _same_output(present, required=spec.restoration_preflight.fixed_batch_required)


def _lone_arm(
    name: str, present: Mapping[str, ArmProvenance], spec: ExperimentSpec
) -> Iterator[Finding]:
    features = spec.experiment_features
    found = {
        "checkpoint_restore": features.checkpoint_restore,
        "paired_training_arms": features.paired_training_arms,
    }
    if found != {"checkpoint_restore": True, "paired_training_arms": False}:
        yield _fail(
            f"arms.{name}",
            "a group of one arm only with checkpoint_restore true and paired_training_arms false",
            found,
        )
    if name in present and present[name].restore_count < 1:
        where = f"arms.{name}.restore_count"
        yield _fail(where, "a lone arm that was really restored, so at least 1", 0)


def _same_adapter(present: Mapping[str, ArmProvenance]) -> Iterator[Finding]:
    """All hashes equal, all URIs equal, and one of the two is held by every arm."""
    hashes = {name: _sha256(arm) for name, arm in present.items()}
    uris = {name: _uri(arm) for name, arm in present.items()}
    bases = {name: arm.initialization.base_checkpoint for name, arm in present.items()}
    for what, values in (("base_checkpoint", bases), ("adapter_sha256", hashes), ("uri", uris)):
        if len({value for value in values.values() if value is not None}) > 1:
            yield _fail(f"arms.*.initialization.{what}", "one value for the group", values)
    if present and None in hashes.values() and None in uris.values():
        yield _fail(
            "arms.*.initialization",
            "one identity, hash or URI, that every arm of the group has",
            f"hashes {hashes}, URIs {uris}",
        )
    for name, arm in present.items():
        yield from _loaded_what_was_saved(name, arm)


def _sha256(arm: ArmProvenance) -> str | None:
    return arm.initialization.adapter_sha256


def _uri(arm: ArmProvenance) -> str | None:
    start = arm.initialization
    return start.checkpoint_uri if isinstance(start, CheckpointInitialization) else None


def _loaded_what_was_saved(name: str, arm: ArmProvenance) -> Iterator[Finding]:
    start = arm.initialization
    if isinstance(start, CheckpointInitialization) and (
        start.loaded_checkpoint_uri != start.checkpoint_uri
    ):
        where = f"arms.{name}.initialization.loaded_checkpoint_uri"
        yield _fail(where, start.checkpoint_uri, start.loaded_checkpoint_uri)


def _same_output(
    present: Mapping[str, ArmProvenance], *, required: bool | None
) -> Iterator[Finding]:
    outputs: dict[str, AvailableOutput] = {}
    for name, arm in present.items():
        output = arm.initial_output
        if isinstance(output, AvailableOutput):
            outputs[name] = output
            continue
        make = _fail if required else _unverified
        where = f"arms.{name}.initial_output"
        yield make(where, "log-probabilities of the fixed batch", f"unavailable: {output.reason}")
    for what in ("batch_sha256", "output_sha256"):
        values = {name: getattr(output, what) for name, output in outputs.items()}
        if len(set(values.values())) > 1:
            yield _fail(f"arms.*.initial_output.{what}", "one value for the group", values)


def _judge_optimizer(asked: RestorationArm, arm: ArmProvenance) -> Iterator[Finding]:
    where = f"arms.{asked.name}.optimizer_checks"
    numbers = sorted(row.after_restore for row in arm.optimizer_checks)
    expected = list(range(arm.restore_count + 1))
    if numbers != expected:
        yield _fail(where, f"one row for each of after_restore {expected}", numbers)
    for row in arm.optimizer_checks:
        yield from judge_row(f"{where}.{row.after_restore}", asked, row)


def judge_row(where: str, asked: RestorationArm, row: OptimizerCheck) -> Iterator[Finding]:
    """Yield what is wrong with, or not shown by, one creation's or restore's optimizer.

    Args:
        where: place in the record, for messages.
        asked: the arm's optimizer in the spec.
        row: what was found.
    """
    if row.optimizer != asked.optimizer:
        yield _fail(f"{where}.optimizer", asked.optimizer, row.optimizer)
    planned = requested_config(asked)
    requested = row.requested_config.model_dump(exclude_none=True)
    if requested != planned:
        yield _fail(f"{where}.requested_config", str(planned), requested)
    if row.source == "declared":
        if (row.actual, row.actual_config) != (None, None):
            yield _fail(f"{where}.actual", "null where no response exposes it", row.actual)
        yield _unverified(where, "what the service says of the optimizer", "declared only")
    elif row.actual is None or row.actual_config is None:
        yield _fail(f"{where}.actual", "what the server said", "null")
    else:
        yield from _compare(where, row, planned, row.actual, row.actual_config)


def _compare(
    where: str, row: OptimizerCheck, planned: dict[str, Any], actual: str, config: dict[str, Any]
) -> Iterator[Finding]:
    names = (row.optimizer.lower(), actual.lower())
    if names[0] != names[1]:
        if names not in _ADAM_WITHOUT_DECAY or config.get("weight_decay", 0) != 0:
            yield _fail(f"{where}.actual", row.optimizer, actual)
        elif "weight_decay" not in config:
            yield _unverified(f"{where}.actual_config", "weight_decay 0", "not reported")
    for key, value in planned.items():
        if config.get(key) is None:
            yield _unverified(f"{where}.actual_config.{key}", str(value), "not reported")
        elif isinstance(config[key], bool) or config[key] != value:
            yield _fail(f"{where}.actual_config.{key}", str(value), config[key])
