"""One file and one checkpoint of the evidence record (contract §11).

Messages never show content: a refused credential must not travel in the exception that refuses it.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic import field_validator as check_field
from pydantic import model_validator as check_model

from harness.digest import sha256_bytes
from harness.errors import StoreError
from harness.secret_shapes import credential_shapes
from harness.spec_part import Sha256
from harness.store import plain_name

MAX_FILE_BYTES = 10 * 1024 * 1024

Kind = Literal[
    "script",
    "effective_config",
    "code_revision",
    "code_patch",
    "predictions",
    "metrics",
    "generated_tasks",
    "gate_report",
    "timing",
    "audit",
]


class EvidencePart(BaseModel):
    """Base of every part of the evidence."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class EvidenceFile(EvidencePart):
    """One immutable file: its text, or where it can be fetched."""

    name: str
    kind: Kind
    content: str | None = None
    source_url: str | None = None
    sha256: Sha256 | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the content in UTF-8; 0 for a link."""
        text = self.content or ""
        return len(text) if text.isascii() else len(text.encode())

    @property
    def is_checkable(self) -> bool:
        """Whether the bytes are here or fixed by a digest."""
        return self.content is not None or self.sha256 is not None

    @check_field("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        try:
            return plain_name(name)
        except StoreError as error:
            raise ValueError(str(error)) from error

    @check_model(mode="after")
    def _coherent(self) -> Self:
        if (self.content is None) == (self.source_url is None):
            raise ValueError(f"{self.name}: expected exactly one of content and source_url")
        if self.source_url is not None and not self.source_url.startswith("https://"):
            raise ValueError(f"{self.name}: source_url must begin with https://")
        if self.content is not None and not self.content.strip():
            raise ValueError(f"{self.name}: content is blank, which is evidence of nothing")
        if self.size_bytes > MAX_FILE_BYTES:
            raise ValueError(
                f"{self.name}: at most {MAX_FILE_BYTES} bytes, found {self.size_bytes}"
            )
        actual = None if self.content is None else sha256_bytes(self.content.encode())
        if None not in (actual, self.sha256) and actual != self.sha256:
            raise ValueError(f"{self.name}: sha256 is {self.sha256}, the content's is {actual}")
        refuse_credentials(self.content or self.source_url or "", self.name)
        return self


class Checkpoint(EvidencePart):
    """A reference to an arm's weights; it proves nothing about them."""

    arm: Annotated[str, StringConstraints(min_length=1)]
    step: Annotated[int, Field(ge=0)]
    uri: Annotated[str, StringConstraints(min_length=1)]

    @check_field("uri")
    @classmethod
    def _no_credential(cls, uri: str) -> str:
        refuse_credentials(uri, "checkpoint uri")
        return uri


def refuse_credentials(text: str, where: str) -> None:
    """Refuse text that holds something shaped like a credential or a signed query.

    Raises:
        ValueError: naming the shapes, never what was found.
    """
    if shapes := credential_shapes(text):
        raise ValueError(f"{where}: holds a credential ({', '.join(shapes)}); redact it first")
