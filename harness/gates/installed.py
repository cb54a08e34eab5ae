"""What is installed, as far as a proof depends on it.

Packages that decide what is sent and trained are bound by the bytes of their files where they
would be imported from, the others by version: torch alone holds more than a gigabyte.
"""

from __future__ import annotations

import importlib.util
import platform
from importlib import metadata
from pathlib import Path

from harness.digest import sha256_bytes, sha256_file, sha256_json
from harness.errors import StoreError

BY_VERSION = ("pytest", "hypothesis", "numpy", "scikit-learn", "torch", "transformers", "tinker")
BY_FILES = ("tinker", "tinker_cookbook")
_IGNORED_SUFFIXES = (".pyc",)

_known: dict[tuple[str, int, int, int], str] = {}
"""File, inode, size and time of change → digest, so that only the first look reads it all."""


def installed_versions() -> dict[str, str]:
    """Return versions by package, the cookbook's RECORD, and a digest of each of BY_FILES.

    Raises:
        StoreError: when such a package has no files to be bound to.
    """
    versions = {"python": platform.python_version()}
    versions.update({name: metadata.version(name) for name in BY_VERSION})
    versions["tinker-cookbook"] = metadata.version("tinker-cookbook")
    versions["tinker-cookbook RECORD"] = _record_sha256("tinker-cookbook")
    versions.update({f"{name} files": package_sha256(name) for name in BY_FILES})
    return versions


def _record_sha256(package: str) -> str:
    record = metadata.distribution(package).read_text("RECORD")
    if not record:
        raise StoreError(
            "an installed package does not list its files, so a proof cannot be bound to them",
            expected=f"the RECORD of {package}",
            found="nothing",
            fix=f"install {package} from a wheel",
        )
    return sha256_bytes(record.encode())


def package_sha256(name: str) -> str:
    """Return one digest over the paths and bytes of an importable package's files.

    Raises:
        StoreError: when the package cannot be found as a folder of files.
    """
    found = importlib.util.find_spec(name)
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    if len(folders) != 1:
        raise StoreError(
            "a package that proofs are bound to is not one folder of files",
            expected=f"{name} in one folder",
            found=f"{len(folders)} folders",
            fix=f"install {name} from its wheel",
        )
    root = Path(folders[0])
    files = sorted(path for path in root.rglob("*") if _is_bound(path))
    return sha256_json({path.relative_to(root).as_posix(): _file_sha256(path) for path in files})


def _is_bound(path: Path) -> bool:
    return path.is_file() and path.suffix not in _IGNORED_SUFFIXES


def _file_sha256(path: Path) -> str:
    seen = path.stat()
    key = (str(path), seen.st_ino, seen.st_size, seen.st_mtime_ns)
    if key not in _known:
        _known[key] = sha256_file(path)
    return _known[key]
