"""Form of the lines of gate evidence, one model a type (:mod:`harness.gates.evidence` writes them).

Every line holds the digest of the line before it and its own: SHA-256 over the canonical JSON of
the line without ``line_sha256``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import StringConstraints

from harness.record_version import VersionOne
from harness.run_documents import CodeState, GateOutcome, RunDocument, Text
from harness.spec_part import NonNegative, Sha256

Scalar = bool | int | float | str


class EvidenceLine(RunDocument):
    """What every line has; ``previous`` is "" on the first."""

    at: Text
    previous: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")]
    line_sha256: Sha256


class StoredBinding(RunDocument):
    """The content that the session's proofs are bound to, by digest."""

    algorithm: Literal[1, 2]
    files: dict[str, Sha256]
    versions: dict[str, str]
    service: dict[str, Any]


class SessionLine(EvidenceLine):
    """The first line of a session."""

    type: Literal["session"]
    version: VersionOne
    session: Text
    spec: Text
    binding: StoredBinding
    offline_digest: Sha256
    live_digest: Sha256
    git: CodeState


class GateStartLine(EvidenceLine):
    """A gate's test began; without a gate line after it, the gate is unknown."""

    type: Literal["gate_start"]
    gate: Text


class MeasureRule(RunDocument):
    """What is allowed of a value; all that are given must hold."""

    at_most: Scalar | None = None
    at_least: Scalar | None = None
    above: Scalar | None = None
    below: Scalar | None = None
    equals: Scalar | None = None
    one_of: tuple[Scalar, ...] | None = None


class Measure(RunDocument):
    """One measured value with its rule; a number that is not finite stands as its name."""

    name: Text
    value: Scalar
    rule: MeasureRule
    where: str


class GateLine(EvidenceLine):
    """A gate's outcome with every measurement; ``notes`` decide nothing."""

    type: Literal["gate"]
    gate: Text
    clause: str
    outcome: GateOutcome
    reason: str
    measures: tuple[Measure, ...]
    notes: dict[str, Any]
    duration_s: NonNegative


class ClosingLine(EvidenceLine):
    """The content measured again; only gates before a closing with the same digest count."""

    type: Literal["closing"]
    offline_digest: Sha256
    live_digest: Sha256
