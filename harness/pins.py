"""Recorded revisions of a spec's numerical paths (contract §1, §4).

A spec is hashed before its reference exists, so it may say ``UNRESOLVED``; the revisions are then
recorded beside it in ``specs/<name>.pins.json``. A reference in this repository is named by the
git blob id of its file, so that changing one byte of it unpins it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from harness.digest import canonical_json, parse_json, sha256_bytes, sha256_json
from harness.errors import DocumentError, SpecError, StoreError
from harness.reading import read_regular
from harness.sdk_generation import COOKBOOK_WHEELS, DEFAULT_COOKBOOK
from harness.spec_model import ExperimentSpec
from harness.spec_preflight import CorrectnessPath

UNRESOLVED = "UNRESOLVED"
"""How a revision begins that is not pinned."""

BASELINE_PACKAGE = "tinker-cookbook"

REFERENCE_FILE = "harness/reference.py"
IMPLEMENTATION_FILES = (
    "harness/advantage_batch.py",
    "harness/advantage_domain.py",
    "harness/advantage_modes.py",
    "harness/advantage_seam.py",
    "harness/advantages.py",
    "harness/embedding_similarity.py",
    "harness/similarity.py",
    "harness/similarity_vectorisers.py",
)
"""Everything between the loop's rollouts and the advantages it trains on."""

Revision = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]


class Pins(BaseModel):
    """Content of ``specs/<name>.pins.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    baseline_revision: Revision
    reference_revision: Revision
    implementation_revision: Revision


@dataclass(frozen=True, slots=True)
class PinnedPath:
    """The revisions under which one correctness path counts; ``None`` where not pinned."""

    path_id: str
    baseline_revision: str | None
    reference_revision: str | None
    implementation_revision: str | None

    @property
    def status(self) -> Literal["pinned", "unresolved"]:
        """Whether both revisions that a comparison needs are recorded."""
        both = self.baseline_revision is not None and self.reference_revision is not None
        return "pinned" if both else "unresolved"


def is_pinned(revision: str | None) -> bool:
    """Return whether a revision is recorded rather than left open."""
    return revision is not None and not revision.lstrip().startswith(UNRESOLVED)


def git_blob_id(path: Path) -> str:
    """Return the id git gives the file's content: SHA-1 of ``blob <bytes>\\0`` and the bytes.

    Raises:
        SpecError: when the file cannot be read.
    """
    content = _content(path)
    header = b"blob %d\0" % len(content)
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


def pins_path(spec_path: Path) -> Path:
    """Return where the pins of a spec are recorded: ``<name>.pins.json`` beside it."""
    return spec_path.with_name(f"{spec_path.stem}.pins.json")


def load_pins(spec_path: Path) -> Pins | None:
    """Return the pins recorded beside a spec, or None where there is no such file.

    Raises:
        SpecError: when the file is there but is not the contract's pins document.
    """
    path = pins_path(spec_path)
    if not os.path.lexists(path):
        return None
    try:
        document = parse_json(read_regular(path, follow=True), where=str(path))
        return Pins.model_validate_json(canonical_json(document))
    except ValidationError as error:
        found = "; ".join(
            f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()
        )
        raise _refused(path, found) from error
    except (DocumentError, StoreError) as error:
        raise _refused(path, str(error)) from error


def resolve_pins(spec: ExperimentSpec, pins: Pins | None) -> tuple[PinnedPath, ...]:
    """Return each correctness path with its revisions: the spec's own, else the recorded ones.

    Raises:
        SpecError: when a pin contradicts a revision that the hashed spec already fixes.
    """
    return tuple(resolve_path(path, pins) for path in spec.correctness_preflight.paths)


def resolve_path(path: CorrectnessPath, pins: Pins | None) -> PinnedPath:
    """Return one correctness path with its revisions, as :func:`resolve_pins` does for all.

    Raises:
        SpecError: when a pin contradicts a revision that the hashed spec already fixes.
    """
    implementation = pins.implementation_revision if pins else None
    return PinnedPath(
        path_id=path.id,
        baseline_revision=_settled(
            path.id,
            "baseline_revision",
            path.baseline_revision,
            pins.baseline_revision if pins else None,
        ),
        reference_revision=_settled(
            path.id,
            "reference_revision",
            path.reference_revision,
            pins.reference_revision if pins else None,
        ),
        implementation_revision=implementation if is_pinned(implementation) else None,
    )


def implementation_revision(root: Path) -> str:
    """Return one digest over :data:`IMPLEMENTATION_FILES`; SpecError where one is missing."""
    files = {name: sha256_bytes(_content(root / name)) for name in IMPLEMENTATION_FILES}
    return f"sha256:{sha256_json(files)}"


def baseline_revision(release: str) -> str:
    """Return the revision of a release of the stock code.

    Where its wheel is not known the default release is named, so that the pins are refused.
    """
    known = release if release in COOKBOOK_WHEELS else DEFAULT_COOKBOOK
    return f"{BASELINE_PACKAGE} {known} wheel sha256 {COOKBOOK_WHEELS[known]}"


def current_pins(root: Path) -> Pins:
    """Return the revisions of the tree at ``root``, as a pins file records them."""
    return Pins(
        baseline_revision=baseline_revision(metadata.version(BASELINE_PACKAGE)),
        reference_revision=git_blob_id(root / REFERENCE_FILE),
        implementation_revision=implementation_revision(root),
    )


def pin_obstacles(spec: ExperimentSpec, pins: Pins | None, root: Path) -> list[str]:
    """Return why the recorded revisions are not those of the tree; empty when they are.

    There are none for an experiment that requires no parity.

    Raises:
        SpecError: when a pinned file cannot be read, or a pin contradicts the spec.
    """
    if not spec.correctness_preflight.required:
        return []
    return [
        f"correctness path {path.path_id}: {problem}; record it with python -m harness pin SPEC"
        for path in resolve_pins(spec, pins)
        for problem in _path_obstacles(path, root)
    ]


def record_pins(spec_path: Path, root: Path) -> Path:
    """Rewrite the pins file of a spec from the tree at ``root`` and return where it is.

    Raises:
        SpecError: when the spec cannot be read or fixes other revisions itself.
        StoreError: when the file cannot be written.
    """
    # Imported here because loading a spec reads its pins, so harness.spec imports this module.
    from harness.spec import parse_spec, read_spec_document
    from harness.store import write_json_atomic

    spec = parse_spec(read_spec_document(spec_path), where=str(spec_path))
    pins = current_pins(root)
    resolve_pins(spec, pins)
    write_json_atomic(pins_path(spec_path), pins.model_dump())
    return pins_path(spec_path)


def _path_obstacles(path: PinnedPath, root: Path) -> Iterator[str]:
    here = current_pins(root)
    for field, found in (
        ("reference_revision", here.reference_revision),
        ("implementation_revision", here.implementation_revision),
    ):
        pinned = getattr(path, field)
        if pinned is None:
            yield f"{field} is unresolved"
        elif pinned != found:
            yield f"{field} is pinned to {pinned}, the tree has {found}"
    installed = f"{BASELINE_PACKAGE} {metadata.version(BASELINE_PACKAGE)}"
    if path.baseline_revision is None:
        yield "baseline_revision is unresolved"
    elif path.baseline_revision.split()[:2] != installed.split():
        yield f"baseline_revision is pinned to {path.baseline_revision!r}, installed is {installed}"


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, follow=True)
    except StoreError as error:
        raise SpecError(
            "the file a revision names cannot be read",
            expected="a readable file",
            found=error.found,
            where=str(path),
            fix="restore the file, or record another revision in the pins file",
        ) from error


def _settled(path_id: str, field: str, in_spec: str, recorded: str | None) -> str | None:
    if not is_pinned(in_spec):
        return recorded if is_pinned(recorded) else None
    if is_pinned(recorded) and recorded != in_spec:
        raise SpecError(
            "a pin contradicts the spec",
            expected=f"{in_spec!r}, as the spec fixes it",
            found=repr(recorded),
            where=f"pins {field}, correctness path {path_id!r}",
            fix="correct the pins file; a spec's own revision cannot be replaced",
        )
    return in_spec


def _refused(path: Path, found: str) -> SpecError:
    return SpecError(
        "the pins file is not what the contract allows",
        expected="an object of baseline_revision, reference_revision, implementation_revision",
        found=found,
        where=str(path),
        fix=f"write each revision as a string; begin it with {UNRESOLVED} while it is open",
    )
