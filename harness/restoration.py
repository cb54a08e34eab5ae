"""The record ``initialization_provenance`` of contract §3, as frozen, strict models.

Every arm states what it started from, how often it was restored, what optimizer each creation and
restore gave, and what it computed before its first update. The models hold the shape of the record;
what must agree between arms and with the spec is judged in :mod:`harness.restoration_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

from harness.spec_part import Count, Seed, Sha256
from harness.spec_preflight import RestorationArm

Text = Annotated[str, StringConstraints(min_length=1)]
Restores = Annotated[int, Field(ge=0)]


class RecordPart(BaseModel):
    """Base of every part of the record: frozen, strict, finite, nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class HashInitialization(RecordPart):
    """An arm's first adapter, named by the digest of its bytes."""

    base_checkpoint: Text
    adapter_sha256: Sha256
    source: Literal["server_response", "local_hash"]
    evidence_ref: Text
    before_first_update: Literal[True]


class CheckpointInitialization(RecordPart):
    """An arm's first adapter, named by an immutable checkpoint and the load's own response.

    ``adapter_sha256`` may stand beside it, so that an arm known by its URI can be compared with
    one that is known by its bytes.
    """

    base_checkpoint: Text
    source: Literal["server_response"]
    checkpoint_uri: Text
    checkpoint_immutable: Literal[True]
    checkpoint_scope: Literal["full_initialization"]
    loaded_checkpoint_uri: Text
    load_succeeded: Literal[True]
    evidence_ref: Text
    before_first_update: Literal[True]
    adapter_sha256: Sha256 | None = None


def _initialization_form(value: Any) -> str:
    if isinstance(value, Mapping):
        return "checkpoint" if "checkpoint_uri" in value else "hash"
    return "checkpoint" if isinstance(value, CheckpointInitialization) else "hash"


Initialization = Annotated[
    Annotated[HashInitialization, Tag("hash")]
    | Annotated[CheckpointInitialization, Tag("checkpoint")],
    Discriminator(_initialization_form),
]


class RequestedConfig(RecordPart):
    """What was asked of the optimizer and the adapter, as the spec writes it."""

    learning_rate: Annotated[float, Field(gt=0)]
    beta1: Annotated[float, Field(ge=0, lt=1)]
    beta2: Annotated[float, Field(ge=0, lt=1)]
    eps: Annotated[float, Field(gt=0)]
    lora_rank: Count
    init_seed: Seed | None = None


class OptimizerCheck(RecordPart):
    """The optimizer after a creation (``after_restore`` 0) or a restore (1, 2 …).

    With source ``declared`` no response of the service exposed the optimizer: ``actual`` and
    ``actual_config`` are null and the row is unverified, whatever was requested.
    """

    after_restore: Restores
    before_next_update: Literal[True]
    optimizer: Text
    requested_config: RequestedConfig
    actual: Text | None
    actual_config: dict[str, Any] | None
    source: Literal["server_response", "declared"]
    evidence_ref: Text


class AvailableOutput(RecordPart):
    """Digests of the fixed batch (ids, targets, masks) and of all its log-probabilities."""

    available: Literal[True]
    batch_sha256: Sha256
    output_sha256: Sha256
    evidence_ref: Text
    before_first_update: Literal[True]


class UnavailableOutput(RecordPart):
    """Why the first output could not be taken."""

    available: Literal[False]
    reason: Text


InitialOutput = Annotated[AvailableOutput | UnavailableOutput, Field(discriminator="available")]


class ArmProvenance(RecordPart):
    """Where one arm comes from."""

    initialization: Initialization
    restore_count: Restores
    optimizer_checks: tuple[OptimizerCheck, ...]
    initial_output: InitialOutput


class Provenance(RecordPart):
    """Contract §3's record: one entry for each arm of the spec, none for the base model."""

    version: Literal[1]
    arms: dict[str, ArmProvenance]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without the optional fields that are not set."""
        document = self.model_dump(mode="json")
        for arm in document["arms"].values():
            _drop_unset(arm["initialization"], "adapter_sha256")
            for row in arm["optimizer_checks"]:
                _drop_unset(row["requested_config"], "init_seed")
        return document


def _drop_unset(part: dict[str, Any], key: str) -> None:
    if part.get(key, "") is None:
        del part[key]


def requested_config(asked: RestorationArm) -> dict[str, Any]:
    """Return the spec's optimizer configuration of an arm in the record's fields."""
    return asked.optimizer_config.model_dump(
        include=set(RequestedConfig.model_fields), exclude_none=True
    )


def optimizer_check(
    asked: RestorationArm,
    reported: Mapping[str, Any],
    *,
    after_restore: int,
    evidence_ref: str,
) -> OptimizerCheck:
    """Return the row for one creation or restore.

    Args:
        asked: the arm's optimizer in the spec.
        reported: what the service said of the client: its ``optimizer_config`` and ``lora_rank``.
        after_restore: 0 for the creation.
        evidence_ref: where the response is kept.

    A response counts only when it gives a value for every requested field but the seed; a type name
    alone exposes nothing that could differ, and the row is then declared.
    """
    requested = requested_config(asked)
    said = {**(reported.get("optimizer_config") or {}), "lora_rank": reported.get("lora_rank")}
    exposed = all(said.get(key) is not None for key in requested if key != "init_seed")
    return OptimizerCheck(
        after_restore=after_restore,
        before_next_update=True,
        optimizer=asked.optimizer,
        requested_config=RequestedConfig(**requested),
        actual=str(said.get("type", "")) or None if exposed else None,
        actual_config={key: value for key, value in said.items() if key != "type"}
        if exposed
        else None,
        source="server_response" if exposed else "declared",
        evidence_ref=evidence_ref,
    )
