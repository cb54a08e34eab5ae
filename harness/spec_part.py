"""What every part of an experiment spec is built from: strict field types and broken-rule rows.

Known fields are strict: no boolean where a number is meant, no ``"64"`` for 64; an integer is a
valid float. Unknown fields are kept in ``model_extra``, because a saved spec may say more than
this harness reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

PlainName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
]
"""A name that can also name a file: letters, digits, ``.``, ``_`` and ``-``."""
Count = Annotated[int, Field(ge=1, lt=2**63)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Revision = Annotated[str, StringConstraints(min_length=1)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class SpecPart(BaseModel):
    """Base of every part of a spec: frozen, strict, finite, keeping what it does not know."""

    model_config = ConfigDict(
        frozen=True, extra="allow", strict=True, allow_inf_nan=False, protected_namespaces=()
    )


class _Absent:
    """Stands for a field that is not there, which is not the same as null."""


ABSENT: Final = _Absent()
_LONGEST_VALUE = 120


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: where in the document, what stands there, what is allowed."""

    path: str
    value: Any
    allowed: str

    def __str__(self) -> str:
        return f"{self.path} = {shown(self.value)}: {self.allowed}"


def shown(value: Any) -> str:
    """Return a value as short JSON, cut to fit one line of a message."""
    if value is ABSENT:
        return "(absent)"
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def repeated(values: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yield position and value of everything that stood earlier in ``values`` already."""
    seen: list[Any] = []
    for index, value in enumerate(values):
        if value in seen:
            yield index, value
        seen.append(value)
