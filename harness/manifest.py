"""One manifest of every file of a run: ``manifest.jsonl``, each entry chained to the one before.

An entry holds a file's name, size and SHA-256, the digest of the entry before it and its own. A
file is entered once, when it is final; a last ``seal`` entry says how many there are, so that an
entry cannot be cut off the end unseen. Who rewrites the whole manifest makes another chain, whose
:func:`head` differs from the one that was published: give it to :func:`check_manifest`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from harness.digest import canonical_json, sha256_file, sha256_json
from harness.durable import stored
from harness.errors import StoreError
from harness.manifest_entry import Chain, Entry, Finding, Seal, read_chain
from harness.reading import MAX_ROWS_BYTES, read_regular
from harness.store import append_jsonl

__all__ = ["Finding", "append_entry", "check_manifest", "enter_all", "head", "is_sealed", "seal"]

MANIFEST_NAME = "manifest.jsonl"
NOT_ENTERED = frozenset({MANIFEST_NAME})


def append_entry(folder: Path, name: str) -> dict[str, Any]:
    """Enter one final file and return the entry; it is on disk before this returns.

    Args:
        folder: the run's folder.
        name: the file's path inside it, with ``/``.

    Raises:
        StoreError: when the file is missing, no regular file or outside the folder, when its
            name was entered before, or when the manifest itself is broken.
    """
    return _enter(folder, _intact_chain(folder), name)


def _enter(folder: Path, chain: Chain, name: str) -> dict[str, Any]:
    path = _regular_file(folder, name)
    if name in chain.entries:
        raise StoreError(
            "a file is entered in the manifest once, when it is final",
            expected="a name that is not entered yet",
            found=name,
            where=f"{folder.name}/{MANIFEST_NAME}",
            fix="write the update under a new name",
        )
    with stored(path):
        body = {"name": name, "bytes": path.stat().st_size, "sha256": sha256_file(path)}
    return _append(folder, chain, body)


def enter_all(folder: Path, *, ignored: Collection[str] = ()) -> list[str]:
    """Enter every file that is not entered yet, in order of name, and return their names.

    Raises:
        StoreError: as for :func:`append_entry`.
    """
    chain = _intact_chain(folder)
    new = [name for name in _file_names(folder, ignored) if name not in chain.entries]
    for name in new:
        chain = _current(folder, chain)
        _enter(folder, chain, name)
    return new


def _current(folder: Path, chain: Chain) -> Chain:
    """Return the chain as it is on disk; it is read again only where another writer added to it."""
    path = folder / MANIFEST_NAME
    size = path.stat().st_size if path.exists() else 0
    return chain if size == chain.size_bytes else _intact_chain(folder)


def seal(folder: Path) -> str:
    """Say that the manifest is whole, and return its head, the digest to publish.

    A file entered after a seal needs a new one; sealing twice changes nothing.

    Raises:
        StoreError: when the manifest is broken or has no entry.
    """
    chain = _intact_chain(folder)
    if not chain.entries:
        raise StoreError(
            "an empty manifest proves nothing and is not sealed",
            expected="at least one entered file",
            found="none",
            where=f"{folder.name}/{MANIFEST_NAME}",
        )
    if not chain.is_sealed:
        return str(_append(folder, chain, {"seal": len(chain.entries)})["line_sha256"])
    return chain.head


def is_sealed(folder: Path) -> bool:
    """Return whether the manifest is unbroken and its last entry is a seal."""
    path = folder / MANIFEST_NAME
    if not path.exists():
        return False
    chain = read_chain(read_regular(path, max_bytes=MAX_ROWS_BYTES), MANIFEST_NAME)
    return chain.is_sealed and not chain.findings


def head(folder: Path) -> str:
    """Return the digest of the last entry, which fixes all entries; "" without one.

    Raises:
        StoreError: when the manifest is broken.
    """
    return _intact_chain(folder).head


def check_manifest(
    folder: Path, *, published_head: str | None = None, ignored: Collection[str] = ()
) -> list[Finding]:
    """Return everything in which a folder differs from its manifest; none for an intact run.

    Args:
        folder: the run's folder, or a copy of it.
        published_head: the head that was published elsewhere, where there is one.
        ignored: paths inside the folder that are not evidence, such as a lock file.

    Returns:
        Findings of kind ``chain``, ``unsealed``, ``head``, ``removed``, ``swapped``, ``moved``,
        ``edited``, ``added`` and ``irregular``, each naming the file or the manifest's line.
    """
    folder = folder.resolve()
    path = folder / MANIFEST_NAME
    if path.is_symlink() or not path.is_file():
        return [Finding("chain", MANIFEST_NAME, "there is no manifest to check against")]
    chain = read_chain(read_regular(path, max_bytes=MAX_ROWS_BYTES), MANIFEST_NAME)
    findings = [*chain.findings]
    if not chain.findings and not chain.is_sealed:
        findings.append(Finding("unsealed", MANIFEST_NAME, "the last entry is no seal"))
    if published_head is not None and chain.head != published_head:
        text = f"the chain ends in {chain.head or 'nothing'}, published was {published_head}"
        findings.append(Finding("head", MANIFEST_NAME, text))
    return [*findings, *_compared(folder, chain, ignored)]


def _compared(folder: Path, chain: Chain, ignored: Collection[str]) -> Iterator[Finding]:
    entries, names = chain.entries, _file_names(folder, ignored)
    regular = [name for name in names if _is_regular(folder / name)]
    for name in sorted({*names} - {*regular}):
        yield Finding("irregular", name, "a link or special file is no evidence")
    with stored(folder):
        digests = {name: sha256_file(folder / name) for name in regular}
    for name, entry in entries.items():
        if name not in digests:
            yield _missing(name, entry, entries, digests)
        elif digests[name] != entry.sha256:
            yield _changed(name, entry, entries, digests)
    # After a break, files entered by the lines that do not count would all seem added.
    for name in sorted(digests.keys() - entries.keys()) if not chain.findings else ():
        yield Finding("added", name, f"not in the manifest; sha256 {digests[name]}")


def _missing(
    name: str, entry: Entry, entries: dict[str, Entry], digests: dict[str, str]
) -> Finding:
    places = sorted(n for n, d in digests.items() if d == entry.sha256 and n not in entries)
    if places:
        return Finding("moved", name, f"its bytes are now in {places[0]}")
    return Finding("removed", name, f"entered with sha256 {entry.sha256}, not there")


def _changed(
    name: str, entry: Entry, entries: dict[str, Entry], digests: dict[str, str]
) -> Finding:
    found = digests[name]
    owners = sorted(n for n, other in entries.items() if other.sha256 == found)
    if owners:
        return Finding("swapped", name, f"holds the bytes entered for {owners[0]}")
    return Finding("edited", name, f"entered with sha256 {entry.sha256}, found {found}")


def _append(folder: Path, chain: Chain, body: dict[str, Any]) -> dict[str, Any]:
    linked = {**body, "previous": chain.head}
    line = {**linked, "line_sha256": sha256_json(linked)}
    append_jsonl(folder / MANIFEST_NAME, line)
    raw = canonical_json(line)
    chain.add((Seal if "seal" in body else Entry).model_validate_json(raw))
    chain.size_bytes += len(raw) + 1
    return line


def _intact_chain(folder: Path) -> Chain:
    path = folder / MANIFEST_NAME
    if not path.exists():
        return Chain()
    chain = read_chain(read_regular(path, max_bytes=MAX_ROWS_BYTES), MANIFEST_NAME)
    if chain.findings:
        raise StoreError(
            "the manifest is broken, and nothing may be added to it",
            expected="an unbroken chain of entries",
            found=str(chain.findings[0]),
            where=f"{folder.name}/{MANIFEST_NAME}",
            fix="start a new run (--fresh); this one stays as it is",
        )
    return chain


def _regular_file(folder: Path, name: str) -> Path:
    path = folder / name
    parts = PurePosixPath(name).parts
    plain = parts and name == "/".join(parts) and not {"/", ".."} & set(parts)
    if not plain or name in NOT_ENTERED or not _is_regular(path) or _has_link(folder, parts):
        raise StoreError(
            "only a regular file inside the run can be entered",
            expected="a relative path with '/', no '..', no symbolic link",
            found=repr(name),
            where=folder.name,
        )
    return path


def _has_link(folder: Path, parts: tuple[str, ...]) -> bool:
    return any((folder.joinpath(*parts[: at + 1])).is_symlink() for at in range(len(parts)))


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _file_names(folder: Path, ignored: Collection[str]) -> list[str]:
    """Return every file and symbolic link under a folder, by path inside it, sorted."""
    found: list[str] = []
    for parent, folders, files in os.walk(folder):
        linked = [name for name in folders if (Path(parent) / name).is_symlink()]
        found += [(Path(parent) / name).relative_to(folder).as_posix() for name in files + linked]
    return sorted(set(found) - NOT_ENTERED - set(ignored))
