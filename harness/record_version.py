"""Records are read by version: another one is refused with its name, never half understood.

Every versioned record of the contract was only ever written with the versions listed at its
reader. A document of another version is refused before its fields are looked at, because what
its fields mean is not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator

from harness.errors import DocumentError, HarnessError

Refusal = TypeVar("Refusal", bound=HarnessError)
ONLY_VERSION: tuple[int, ...] = (1,)
"""All versions of a record that has had one form so far."""


def _no_boolean(value: object) -> object:
    """Refuse true, which a literal 1 would take as equal."""
    if type(value) is not int:
        raise ValueError("expected a whole number")
    return value


VersionOne = Annotated[Literal[1], BeforeValidator(_no_boolean)]
"""The field ``version`` of a document model."""


def version_refusal(
    document: object,
    record: str,
    *,
    where: str,
    supported: Collection[int] = ONLY_VERSION,
    key: str = "version",
    error: type[Refusal],
) -> Refusal | None:
    """Return why a document may not be read here, or None when its version is known.

    Args:
        document: parsed JSON. What is no object has no version; its reader says what it is.
        record: what the document is, as in "plan".
        where: the file or field that the message names.
        supported: the versions that the caller can read.
        key: the field that holds the version.
        error: the class of the refusal.
    """
    if not isinstance(document, Mapping):
        return None
    found = document.get(key)
    if type(found) is int and found in supported:
        return None
    known = ", ".join(str(number) for number in sorted(supported))
    return error(
        f"a {record} of another {key} cannot be read here",
        expected=f"{key} {known}, as a whole number",
        found=f"{key} {found!r}"[:120] if key in document else f"no {key}",
        where=where,
        fix=_advice(found, supported, record),
    )


def refuse_other_version(
    document: object,
    record: str,
    *,
    where: str,
    supported: Collection[int] = ONLY_VERSION,
    key: str = "version",
    error: type[HarnessError] = DocumentError,
) -> None:
    """Raise the refusal of :func:`version_refusal`, if there is one.

    Raises:
        HarnessError: of the class ``error``, naming the version found and the supported ones.
    """
    refusal = version_refusal(
        document, record, where=where, supported=supported, key=key, error=error
    )
    if refusal is not None:
        raise refusal


def _advice(found: Any, supported: Collection[int], record: str) -> str:
    if type(found) is int and found > max(supported):
        return f"a newer harness wrote this {record}: read it with that code revision"
    return f"read this {record} with the code revision that wrote it, or make it anew (--fresh)"
