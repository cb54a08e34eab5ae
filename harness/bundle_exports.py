"""Optional exports beside a bundle: what other people's tools read without knowing this harness.

``--in-toto`` writes :mod:`harness.bundle_statement`, ``--ro-crate`` writes
:mod:`harness.bundle_crate`. Both describe files that are in the folder already and are made from
the run's own records alone: the same run gives the same bytes, whenever it is bundled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.bundle import RECORD_NAME, Bundle
from harness.bundle_crate import CRATE_NAME, crate
from harness.bundle_file import BundledFile
from harness.bundle_piece import document
from harness.bundle_statement import STATEMENT_NAME, statement
from harness.digest import sha256_file
from harness.errors import DocumentError, HarnessError
from harness.plan import PlannedRun
from harness.redact import Redactor
from harness.result import read_result
from harness.store import write_new
from harness.verify import MALFORMED


@dataclass(frozen=True)
class Wanted:
    """Which exports are asked for."""

    ro_crate: bool
    in_toto: bool


def write_exports(
    run: PlannedRun, bundle: Bundle, folder: Path, wanted: Wanted, redactor: Redactor
) -> list[str]:
    """Write the exports into the bundle's folder and return one line for each.

    The crate comes last, because it lists the statement too.

    Raises:
        DocumentError: when the run's records hold no time to date the crate by, or are of another
            form than this harness writes.
        StoreError: when a file cannot be written, or is there already.
    """
    try:
        return _exports(run, bundle, folder, wanted, redactor)
    except HarnessError:
        raise
    except MALFORMED as error:
        raise DocumentError(
            "a record of the run has another form than the harness writes",
            found=f"{type(error).__name__}: {error}",
            where=run.folder.name,
            fix="python -m harness verify RUN names the record",
        ) from error


def _exports(
    run: PlannedRun, bundle: Bundle, folder: Path, wanted: Wanted, redactor: Redactor
) -> list[str]:
    result = read_result(run.folder / "result.json")
    lines: list[str] = []
    if wanted.in_toto:
        content = statement(run, result, bundled_files(bundle, folder))
        lines.append(_written(folder / STATEMENT_NAME, content, redactor))
    if wanted.ro_crate:
        content = crate(run, result, bundled_files(bundle, folder))
        lines.append(_written(folder / CRATE_NAME, content, redactor))
    return lines


def bundled_files(bundle: Bundle, folder: Path) -> list[BundledFile]:
    """Return every file that is in the folder now, by name, as its bytes are."""
    kinds: dict[str, str] = {file.name: file.kind for file in bundle.record.files}
    kinds |= {RECORD_NAME: "evidence", STATEMENT_NAME: "test_result"}
    return [
        BundledFile(path.name, kinds[path.name], path.stat().st_size, sha256_file(path))
        for path in sorted(folder.iterdir())
    ]


def _written(path: Path, content: dict[str, Any], redactor: Redactor) -> str:
    write_new(path, document(redactor.redact_json(content)).encode())
    return f"{'export':16} {path.name}  {sha256_file(path)}"
