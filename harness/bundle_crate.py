"""A bundle as an RO-Crate 1.2: ``ro-crate-metadata.json``, a flattened JSON-LD graph.

Only the base specification is claimed, no profile. No agent and no end of the run is stated,
because the run's records name neither; nor do they name a licence, and the crate says so.

Source: RO-Crate 1.2, sections on the root data entity, data entities and provenance.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from harness.bundle_file import BundledFile
from harness.errors import DocumentError
from harness.gates.evidence import read_history
from harness.plan import GATES_FOLDER, PlannedRun
from harness.result import ResultDocument

CRATE_NAME = "ro-crate-metadata.json"
CONTEXT = "https://w3id.org/ro/crate/1.2/context"
SPECIFICATION = "https://w3id.org/ro/crate/1.2"
LICENSE = "unspecified: the run's records grant no licence"
ROOT_ID, ACTION_ID, CODE_ID = "./", "#run", "#code"
SPEC_NAME = "audit.spec.json"
CODE_KINDS = frozenset({"script", "code_revision", "code_patch"})
GIVEN = frozenset({SPEC_NAME, "audit.plan.json"})
"""Files that were there before the run did anything."""
MADE_KINDS = frozenset(
    {"effective_config", "predictions", "metrics", "gate_report", "timing", "audit"}
)
STATUSES = {
    "succeeded": "http://schema.org/CompletedActionStatus",
    "failed": "http://schema.org/FailedActionStatus",
    "running": "http://schema.org/ActiveActionStatus",
}
DESCRIPTIONS = {
    "script": "source of a module that trained, scored or decided, as it ran",
    "effective_config": "everything an arm's training was configured with",
    "code_revision": "revision of the code, package versions and digest of all bound content",
    "code_patch": "difference of the executed code from its revision",
    "predictions": "one row an evaluation item",
    "metrics": "every number the run posted",
    "gate_report": "measurements of the preflight gates with their rules",
    "timing": "measured seconds of every step",
    "audit": "a record of the run that its verdict can be judged again by",
    "generated_tasks": "training tasks that were generated",
    "evidence": "the evidence record of all files, with their digests",
    "test_result": "unsigned in-toto statement of the gates' outcomes",
}
_RUN_STAMP = re.compile(r"(\d{8}T\d{6})Z")


def crate(run: PlannedRun, result: ResultDocument, files: Sequence[BundledFile]) -> dict[str, Any]:
    """Return the metadata document of a bundle.

    Args:
        run: the run, read back.
        result: its result document.
        files: every file of the bundle but the metadata document itself.

    Raises:
        DocumentError: when the run's records hold no time.
    """
    descriptor = {
        "@id": CRATE_NAME,
        "@type": "CreativeWork",
        "about": {"@id": ROOT_ID},
        "conformsTo": {"@id": SPECIFICATION},
    }
    entities = [_root(run, result, files), _action(run, result, files), _code(run, files)]
    return {
        "@context": CONTEXT,
        "@graph": [descriptor, *entities, *(_file(file) for file in files)],
    }


def published_at(run: PlannedRun) -> str:
    """Return the newest time that the run's id and its gate evidence hold, in UTC.

    Raises:
        DocumentError: when they hold none.
    """
    times = [*_start_of(run), *_gate_times(run)]
    if not times:
        raise DocumentError(
            "the run cannot be dated: its records hold no time",
            expected="an id like 20260101T000000Z-…, or gate evidence",
            found=repr(run.plan["run"]),
            where=run.folder.name,
            fix="bundle without --ro-crate",
        )
    return max(times).isoformat(timespec="seconds")


def _start_of(run: PlannedRun) -> list[datetime]:
    """Return the time at which the run was planned, where its id says so."""
    stamp = _RUN_STAMP.match(str(run.plan["run"]))
    return [] if stamp is None else [datetime.strptime(f"{stamp[1]}+0000", "%Y%m%dT%H%M%S%z")]


def _gate_times(run: PlannedRun) -> Iterator[datetime]:
    for session in read_history(run.folder / GATES_FOLDER):
        if not session.broken:
            yield from (datetime.fromisoformat(e["at"]).astimezone(UTC) for e in session.events)


def _root(run: PlannedRun, result: ResultDocument, files: Sequence[BundledFile]) -> dict[str, Any]:
    return {
        "@id": ROOT_ID,
        "@type": "Dataset",
        "name": f"Evidence of run {run.plan['run']}: {run.spec.title}",
        "description": result.summary,
        "datePublished": published_at(run),
        "license": LICENSE,
        "hasPart": _ids(file.name for file in files),
        "mentions": {"@id": ACTION_ID},
    }


def _action(
    run: PlannedRun, result: ResultDocument, files: Sequence[BundledFile]
) -> dict[str, Any]:
    made = [f.name for f in files if f.kind in MADE_KINDS and f.name not in GIVEN]
    started = [time.isoformat(timespec="seconds") for time in _start_of(run)]
    return {
        "@id": ACTION_ID,
        "@type": "CreateAction",
        "name": f"Run {run.plan['run']} of spec {run.plan['spec']}",
        "instrument": {"@id": CODE_ID},
        "object": _ids(f.name for f in files if f.name in GIVEN),
        "result": _ids(made),
        "actionStatus": {"@id": STATUSES[result.status]},
        **({"startTime": started[0]} if started else {}),
    }


def _code(run: PlannedRun, files: Sequence[BundledFile]) -> dict[str, Any]:
    head, dirty = run.plan["code"].get("head"), run.plan["code"].get("dirty")
    state = {
        True: "with changes beside that revision",
        False: "exactly that revision",
        None: "not known whether it was changed",
    }
    known = {} if head is None else {"version": head}
    return {
        "@id": CODE_ID,
        "@type": "SoftwareSourceCode",
        "name": f"the harness at revision {head or 'unknown'}",
        "description": f"{state[dirty]}; binding digest {run.plan['binding_digest']}",
        "programmingLanguage": "Python",
        "hasPart": _ids(file.name for file in files if file.kind in CODE_KINDS),
        **known,
    }


def _file(file: BundledFile) -> dict[str, Any]:
    return {
        "@id": file.name,
        "@type": "File",
        "name": file.name,
        "description": DESCRIPTIONS[file.kind],
        "additionalType": file.kind,
        "encodingFormat": file.media_type,
        "contentSize": str(file.size_bytes),
        "sha256": file.sha256,
    }


def _ids(names: Collection[str] | Iterator[str]) -> list[dict[str, str]]:
    return [{"@id": name} for name in names]
