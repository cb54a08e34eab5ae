"""The evidence record: what a stranger needs to judge a run again (contract §11).

A record only grows. A name is written once; an update is a new name. What is missing, or what
cannot be checked because it is a link without a digest, keeps the record from being complete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import Field, ValidationError
from pydantic import model_validator as check_model

from harness.digest import canonical_json, sha256_bytes
from harness.errors import DocumentError
from harness.evidence_file import MAX_FILE_BYTES, Checkpoint, EvidenceFile, EvidencePart, Kind
from harness.record_version import refuse_other_version

__all__ = [
    "MAX_FILES",
    "MAX_FILE_BYTES",
    "MAX_TOTAL_BYTES",
    "Checkpoint",
    "Completeness",
    "EvidenceFile",
    "EvidenceRecord",
    "completeness",
    "missing_kinds",
    "parse_evidence",
    "rewritten_names",
]

MAX_FILES = 64
MAX_TOTAL_BYTES = 40 * 1024 * 1024

REQUIRED_KINDS = ("script", "effective_config", "code_revision", "predictions")
"""Kinds every run owes; a patch is owed when the code was not the revision's own."""
PER_ARM_METRICS = "per_arm_metrics"
"""Name under which the record's own per-arm metrics are reported missing."""
Status = Literal["complete", "partial", "unknown"]
Number = int | float


class EvidenceRecord(EvidencePart):
    """The result's ``evidence``."""

    version: Literal[1]
    files: tuple[EvidenceFile, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    per_arm_metrics: dict[str, dict[str, Number]] = Field(default_factory=dict)

    @check_model(mode="after")
    def _within_limits(self) -> Self:
        names = [file.name for file in self.files]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"files: names are immutable and written once, found twice: {twice}")
        if len(names) > MAX_FILES:
            raise ValueError(f"files: at most {MAX_FILES}, found {len(names)}")
        total = sum(file.size_bytes for file in self.files)
        if total > MAX_TOTAL_BYTES:
            raise ValueError(f"files: at most {MAX_TOTAL_BYTES} bytes in all, found {total}")
        return self

    @classmethod
    def empty(cls) -> EvidenceRecord:
        """Return the record of a run that has shown nothing yet."""
        return cls(version=1)

    def with_file(self, name: str, kind: Kind, content: str) -> EvidenceRecord:
        """Return the record with one more file and its digest.

        Args:
            name: a new plain name; no name is written twice, not even with equal content.
            kind: what the file is.
            content: its text, redacted before (:class:`harness.redact.Redactor`).

        Raises:
            DocumentError: for a taken or bad name, a limit, or content that holds a credential.
        """
        with _documented("evidence.files"):
            file = EvidenceFile(name=name, kind=kind, content=content)
            digest = sha256_bytes(content.encode())
            return self._next(files=(*self.files, file.model_copy(update={"sha256": digest})))

    def with_link(
        self, name: str, kind: Kind, source_url: str, sha256: str | None
    ) -> EvidenceRecord:
        """Return the record with one more file that is kept elsewhere.

        Raises:
            DocumentError: as for :meth:`with_file`, and for a signed or credential-bearing URL.
        """
        with _documented("evidence.files"):
            file = EvidenceFile(name=name, kind=kind, source_url=source_url, sha256=sha256)
            return self._next(files=(*self.files, file))

    def with_checkpoint(self, arm: str, step: int, uri: str) -> EvidenceRecord:
        """Return the record with one more checkpoint reference."""
        with _documented("evidence.checkpoints"):
            checkpoint = Checkpoint(arm=arm, step=step, uri=uri)
            return self._next(checkpoints=(*self.checkpoints, checkpoint))

    def with_metrics(self, arm: str, numbers: Mapping[str, Number]) -> EvidenceRecord:
        """Return the record with an arm's metrics.

        Raises:
            DocumentError: for a number that was posted before with another value.
        """
        held = self.per_arm_metrics.get(arm, {})
        changed = sorted(key for key in numbers if key in held and held[key] != numbers[key])
        if changed:
            raise DocumentError(
                "a metric that was posted would change",
                expected=f"{changed[0]} = {held[changed[0]]!r}",
                found=repr(numbers[changed[0]]),
                where=f"evidence.per_arm_metrics.{arm}",
                fix="post the new value under a new name",
            )
        with _documented("evidence.per_arm_metrics"):
            return self._next(per_arm_metrics={**self.per_arm_metrics, arm: {**held, **numbers}})

    def to_json(self) -> dict[str, Any]:
        """Return the record as strict JSON; absent fields are left out."""
        return self.model_dump(mode="json", exclude_none=True)

    def _next(self, **changes: Any) -> EvidenceRecord:
        held = {name: getattr(self, name) for name in type(self).model_fields}
        return EvidenceRecord.model_validate({**held, **changes})


@contextmanager
def _documented(where: str) -> Iterator[None]:
    """Turn a model's refusal into the harness's own, without the refused content."""
    try:
        yield
    except ValidationError as error:
        rows = [
            f"{'.'.join(map(str, detail['loc'])) or 'record'}: {detail['msg']}"
            for detail in error.errors(include_url=False, include_input=False)
        ]
        # A cause would carry the refused content into the traceback.
        raise DocumentError(
            "the evidence record breaks contract §11", found="; ".join(rows), where=where
        ) from None


def parse_evidence(raw: Any, *, where: str = "evidence") -> EvidenceRecord:
    """Return the typed record of parsed JSON.

    Raises:
        DocumentError: naming another version, or every field that breaks contract §11, without
            its content.
    """
    refuse_other_version(raw, "evidence record", where=where)
    with _documented(where):
        return EvidenceRecord.model_validate_json(canonical_json(raw))


def rewritten_names(before: EvidenceRecord, after: EvidenceRecord) -> list[str]:
    """Return the files of ``before`` that ``after`` lost or changed; names are immutable."""
    later = {file.name: file for file in after.files}
    return [file.name for file in before.files if later.get(file.name) != file]


@dataclass(frozen=True, slots=True)
class Completeness:
    """How much of the required evidence is there.

    Attributes:
        status: "unknown" for no evidence at all, "partial" while anything is missing or
            unchecked, else "complete".
        missing: required kinds, and ``per_arm_metrics: ARM``, that are not there.
        unchecked: files that are links without a digest.
    """

    status: Status
    missing: tuple[str, ...]
    unchecked: tuple[str, ...]


def missing_kinds(
    record: EvidenceRecord, *, arms: Collection[str], patched: bool | None
) -> tuple[str, ...]:
    """Return what the record owes and lacks.

    Args:
        record: the evidence so far.
        arms: every arm whose metrics are owed.
        patched: whether the executed code differed from its revision; None (unknown) owes a
            patch like True, because what is not known is not proven absent.
    """
    present = {file.kind for file in record.files}
    owed = [*REQUIRED_KINDS, *(() if patched is False else ("code_patch",))]
    lacking = [kind for kind in owed if kind not in present]
    unmeasured = [arm for arm in arms if not record.per_arm_metrics.get(arm)]
    return (*lacking, *(f"{PER_ARM_METRICS}: {arm}" for arm in unmeasured))


def completeness(
    record: EvidenceRecord | None, *, arms: Collection[str], patched: bool | None
) -> Completeness:
    """Return whether the evidence suffices; arguments as for :func:`missing_kinds`."""
    record = record or EvidenceRecord.empty()
    missing = missing_kinds(record, arms=arms, patched=patched)
    unchecked = tuple(file.name for file in record.files if not file.is_checkable)
    empty = not (record.files or record.checkpoints or record.per_arm_metrics)
    status: Status = "complete"
    if missing or unchecked:
        status = "unknown" if empty else "partial"
    return Completeness(status, missing, unchecked)
