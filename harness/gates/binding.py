"""The content a gate's proof is bound to (design §3.2).

A proof counts only while everything it depended on is byte for byte the same: the spec and its
pins, the harness, the gates and arms, the pytest configuration, the pinned packages, the versions
that run, the files of the SDK and the cookbook, and the service's identity. Git's HEAD is recorded
beside it and decides nothing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from harness.digest import sha256_file, sha256_json
from harness.errors import StoreError
from harness.gates.installed import installed_versions
from harness.record_version import refuse_other_version

ALGORITHM = 2
"""Version of what is bound; part of the digest. 1 bound fewer files and packages."""
KNOWN_ALGORITHMS = (1, 2)
"""All algorithms so far digest the content they list in the same way."""

PACKAGE = Path(__file__).parents[1]
"""The package that runs, wherever it was imported from."""

_TREES = ("harness", "tests/preflight", "tests/full")
_SINGLE_FILES = ("conftest.py", "pytest.ini", "constraints.txt")
_FILES_IF_PRESENT = ("tests/conftest.py",)
_IGNORED_SUFFIXES = (".pyc",)


@dataclass(frozen=True)
class Binding:
    """Digests of everything a proof depends on.

    Attributes:
        files: relative path → SHA-256.
        versions: package → version, and a digest of the SDK's and the cookbook's files.
        service: identity of the service, as a JSON object.
        algorithm: under which of KNOWN_ALGORITHMS the content was gathered.
    """

    files: Mapping[str, str]
    versions: Mapping[str, str]
    service: Mapping[str, Any]
    algorithm: int = ALGORITHM

    @classmethod
    def stored(cls, document: Mapping[str, Any]) -> Self:
        """Return a binding as it was stored with the evidence, under the algorithm of its time.

        Raises:
            DocumentError: when the algorithm is not known here.
        """
        refuse_other_version(
            document,
            "binding",
            where="binding of the session line",
            supported=KNOWN_ALGORITHMS,
            key="algorithm",
        )
        parts = (document["files"], document["versions"], document["service"])
        return cls(*parts, algorithm=document["algorithm"])

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that is stored with the evidence."""
        return {
            "algorithm": self.algorithm,
            "files": dict(self.files),
            "versions": dict(self.versions),
            "service": dict(self.service),
        }

    def offline_digest(self) -> str:
        """Digest for gates that touch no service: everything but the service's identity."""
        return sha256_json({**self.to_json(), "service": {}})

    def digest(self) -> str:
        """Digest for live gates."""
        return sha256_json(self.to_json())

    def digest_for(self, *, live: bool) -> str:
        """Return the digest a gate of this kind is bound to."""
        return self.digest() if live else self.offline_digest()


def bind(root: Path, spec_path: Path, service: Mapping[str, Any]) -> Binding:
    """Measure the binding of the working tree now.

    Args:
        root: the project's root.
        spec_path: the spec file; its ``.pins.json`` is bound too where it exists.
        service: identity of the service the live gates use.
    """
    pins_path = spec_path.with_suffix(".pins.json")
    files = {f"spec:{spec_path.name}": sha256_file(spec_path)}
    if pins_path.exists():
        files[f"spec:{pins_path.name}"] = sha256_file(pins_path)
    for path in _bound_files(root):
        files[path.relative_to(root).as_posix()] = sha256_file(path)
    if PACKAGE.resolve() != (root / PACKAGE.name).resolve():
        # Another checkout's code is what runs: proofs must be bound to it too.
        for path in _tree_files(PACKAGE):
            files[f"imported:{path.relative_to(PACKAGE).as_posix()}"] = sha256_file(path)
    return Binding(files, installed_versions(), service, algorithm=ALGORITHM)


def _bound_files(root: Path) -> Iterator[Path]:
    for tree in _TREES:
        yield from _tree_files(root / tree)
    for name in _SINGLE_FILES:
        path = root / name
        if not path.is_file():
            raise StoreError(
                "a file that gates are bound to is missing",
                expected=name,
                found="nothing",
                where=root.name,
                fix="run from the project's root, or restore the file",
            )
        yield path
    yield from (root / name for name in _FILES_IF_PRESENT if (root / name).is_file())


def _tree_files(tree: Path) -> Iterator[Path]:
    for path in sorted(tree.rglob("*")):
        if path.is_symlink():
            raise StoreError(
                "a link among the files that gates are bound to could change unseen",
                expected="files and folders only",
                found=f"the link {path.name}",
                where=tree.name,
                fix="put the file itself there",
            )
        if path.is_file() and path.suffix not in _IGNORED_SUFFIXES:
            yield path


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Name what changed between two stored bindings, file names first.

    Args:
        old: ``Binding.to_json()`` of the evidence.
        new: the same of the tree as it is now.
    """
    changed: list[str] = []
    for section in ("files", "versions", "service"):
        before, after = old.get(section, {}), new.get(section, {})
        for key in sorted(set(before) | set(after)):
            if before.get(key) != after.get(key):
                changed.append(key if section == "files" else f"{section}:{key}")
    if old.get("algorithm") != new.get("algorithm"):
        changed.append("digest algorithm")
    return changed


def git_state(root: Path) -> dict[str, Any]:
    """Return git's HEAD and whether the tree is dirty; both null outside a repository."""
    head = _git(root, "rev-parse", "HEAD")
    status = _git(root, "status", "--porcelain")
    return {"head": head, "dirty": None if status is None else bool(status)}


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
