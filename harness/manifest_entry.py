"""The lines of a manifest and the chain they make.

A line is the canonical JSON of one entry, byte for byte, so that even a change of spelling that
leaves the values alone is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from harness.digest import canonical_json, parse_json, sha256_json
from harness.errors import DocumentError
from harness.spec_part import Sha256

Kind = Literal[
    "chain", "unsealed", "head", "removed", "swapped", "moved", "edited", "added", "irregular"
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference between a run and its manifest.

    Attributes:
        kind: what happened.
        name: the file it happened to.
        text: what was expected and found.
    """

    kind: Kind
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}: {self.text}"


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    previous: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")]
    line_sha256: Sha256


class Entry(_Line):
    """One file as it was when it became final."""

    name: Annotated[str, StringConstraints(min_length=1)]
    bytes: Annotated[int, Field(ge=0)]
    sha256: Sha256


class Seal(_Line):
    """The manifest is whole: ``seal`` is how many files are entered before it."""

    seal: Annotated[int, Field(ge=1)]


@dataclass
class Chain:
    """What a manifest says, as far as its chain holds.

    Attributes:
        entries: intact entries by file name, in order.
        findings: where the chain breaks; lines after that do not count.
        head: digest of the last intact line, "" without one.
        is_sealed: whether that line is a seal.
        size_bytes: of the file that the chain was read from.
    """

    entries: dict[str, Entry] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    head: str = ""
    is_sealed: bool = False
    size_bytes: int = 0

    def add(self, line: Entry | Seal) -> None:
        """Take a line that was found to fit."""
        self.head, self.is_sealed = line.line_sha256, isinstance(line, Seal)
        if isinstance(line, Entry):
            self.entries[line.name] = line


def read_chain(data: bytes, where: str) -> Chain:
    """Return a manifest's chain, up to the first line that breaks it."""
    *lines, tail = data.split(b"\n")
    chain = Chain(size_bytes=len(data))
    for number, raw in enumerate(lines, start=1):
        line = _line(raw, f"line {number}")
        fault = line if isinstance(line, str) else _misfit(chain, line, f"line {number}")
        if isinstance(line, str) or fault:
            chain.findings.append(Finding("chain", where, fault))
            return chain
        chain.add(line)
    if tail or not lines:
        fault = f"line {len(lines) + 1} is torn" if tail else "the manifest has no entry"
        chain.findings.append(Finding("chain", where, fault))
    return chain


def _line(raw: bytes, where: str) -> Entry | Seal | str:
    """Return the line, or why it is none."""
    try:
        body = parse_json(raw, where=where)
        if not isinstance(body, dict) or canonical_json(body) != raw:
            return f"{where} is not an entry in canonical form"
        line = (Seal if "seal" in body else Entry).model_validate_json(raw)
    except (DocumentError, ValidationError) as error:
        return f"{where} is not an entry: {str(error).splitlines()[0]}"
    if body.pop("line_sha256") != sha256_json(body):
        return f"{where} was edited after it was written"
    return line


def _misfit(chain: Chain, line: Entry | Seal, where: str) -> str:
    """Return why a line does not fit the lines before it, "" if it does."""
    if line.previous != chain.head:
        return f"{where} does not follow the line before it: one was removed, added or moved"
    if isinstance(line, Seal) and line.seal != len(chain.entries):
        return f"{where} seals {line.seal} entries, there are {len(chain.entries)}"
    if isinstance(line, Entry) and line.name in chain.entries:
        return f"{where} enters {line.name} a second time"
    return ""
