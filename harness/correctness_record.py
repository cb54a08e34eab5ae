"""The correctness record and the plan it is judged against, as read from their files (contract §4).

What a record declares about itself (a pass flag, a status, a tolerance) is not even read: fields
that the contract does not name are ignored. Tolerances and paths come from the spec, revisions from
the spec or the pins file beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from harness.digest import canonical_json, parse_json
from harness.errors import DocumentError, SpecError, StoreError
from harness.pins import PinnedPath, Pins, load_pins, resolve_path
from harness.reading import read_regular
from harness.spec_part import Sha256
from harness.spec_preflight import CorrectnessPreflight
from harness.spec_preflight_rules import REQUIRED_TOLERANCES

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Error = Annotated[float, Field(ge=0)]
Model = TypeVar("Model", bound=BaseModel)


class _Record(BaseModel):
    """Strict and finite; a field the contract does not name is ignored and decides nothing."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class ErrorRow(_Record):
    """One comparison, as ``harness.correctness.parity_errors`` measures it."""

    max_abs_error: Error
    reference_max_abs: Error
    relative_l2_error: Error
    cosine_similarity: Annotated[float, Field(ge=-1, le=1)]


class FixedInput(_Record):
    """What every comparison of a path was given."""

    sha256: Sha256
    description: Text


class Probe(_Record):
    """One learning-rate probe, its optimizer state fresh."""

    learning_rate: Annotated[float, Field(gt=0)]
    update_norm: Error


class PathRecord(_Record):
    """What was measured of one path."""

    id: Text
    fixed_input: FixedInput
    baseline_revision: Text
    reference_revision: Text
    implementation_revision: Text
    precision: Text
    normalization: Text
    errors: Mapping[str, ErrorRow]
    lr_scaling: tuple[Probe, ...] | None = None


class CorrectnessRecord(_Record):
    """``correctness_preflight`` of a result, or a preflight file of its own."""

    required: bool
    paths: tuple[PathRecord, ...] = ()


@dataclass(frozen=True)
class Planned:
    """What a spec plans: its section, the revisions that count, and whether parity is needed."""

    section: CorrectnessPreflight
    pinned: tuple[PinnedPath, ...]
    required: bool


def plan(section: CorrectnessPreflight, features: Mapping[str, Any], pins: Pins | None) -> Planned:
    """Return what a spec asks of the record.

    An explicit ``custom_loss`` or ``custom_optimizer`` makes parity required whatever the section
    says (contract §9: a true feature overrides a stale ``required: false``).

    Raises:
        SpecError: when a pin contradicts a revision that the spec fixes.
    """
    custom = any(features.get(name) is True for name in ("custom_loss", "custom_optimizer"))
    pinned = tuple(resolve_path(path, pins) for path in section.paths)
    return Planned(section, pinned, section.required or custom)


def read_planned(spec_path: Path) -> Planned:
    """Read the correctness section of a spec file and the pins beside it.

    Only this section is checked, so that a record can be judged against any spec that has one.

    Raises:
        SpecError: when the file cannot be read, or its section breaks contract §1.
    """
    raw = _document(spec_path)
    section = _validated(CorrectnessPreflight, raw.get("correctness_preflight"), spec_path)
    for path in section.paths:
        for name in REQUIRED_TOLERANCES[path.kind]:
            if getattr(path.tolerances, name) is None:
                raise SpecError(
                    "a correctness path lacks a tolerance",
                    expected=f"tolerances.{name}",
                    found="nothing",
                    where=f"{spec_path.name}, path {path.id}",
                )
    features = raw.get("experiment_features", {})
    return plan(section, features if isinstance(features, dict) else {}, load_pins(spec_path))


def read_record(path: Path) -> CorrectnessRecord:
    """Read a preflight record.

    Raises:
        DocumentError: when it cannot be read, breaks contract §4, or holds one path twice.
    """
    record = _validated(CorrectnessRecord, _document(path), path)
    ids = [row.id for row in record.paths]
    if len(set(ids)) != len(ids):
        raise DocumentError("a path is recorded twice", found=str(ids), where=path.name)
    return record


def _document(path: Path) -> dict[str, Any]:
    try:
        document = parse_json(read_regular(path, follow=True), where=path.name)
    except StoreError as error:
        raise DocumentError(
            "the file cannot be read", found=error.found, where=str(path)
        ) from error
    if not isinstance(document, dict):
        raise DocumentError("the document is not an object", where=path.name)
    return document


def _validated(model: type[Model], raw: Any, path: Path) -> Model:
    try:
        return model.model_validate_json(canonical_json(raw))
    except ValidationError as error:
        rows = [
            f"{'.'.join(map(str, detail['loc'])) or 'document'}: {detail['msg']}"
            for detail in error.errors(include_url=False)
        ]
        raise DocumentError(
            f"the document is not a {model.__name__} of the contract",
            found="; ".join(rows),
            where=path.name,
        ) from error
