"""The code part of a bundle: scripts, revision and patch, each only where it is what ran.

Source text counts as the executed script only where its digest is the one that the run's gates
were bound to, and a patch only where the tree still is the one that ran.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.bundle_piece import Piece, document, text_of
from harness.digest import sha256_file
from harness.gates.binding import Binding, bind, git_state
from harness.gates.evidence import read_history
from harness.plan import GATES_FOLDER, PlannedRun

SCRIPTS = (
    "advantage_batch",
    "advantage_domain",
    "advantage_modes",
    "advantage_seam",
    "advantages",
    "answers",
    "arm",
    "arm_config",
    "arm_dataset",
    "attempts",
    "conclusion",
    "decision",
    "embedding_similarity",
    "evaluate",
    "resume",
    "rollout_seeds",
    "similarity",
    "similarity_vectorisers",
    "training_record",
)
"""Modules that train, score and decide; the whole tree is fixed by the code revision."""


def executed_binding(run: PlannedRun) -> Binding | None:
    """Return the content that the run was bound to, where its gate evidence lists it."""
    for session in read_history(run.folder / GATES_FOLDER):
        if session.broken or not session.header:
            continue
        binding = Binding.stored(session.header["binding"])
        if binding.offline_digest() == run.plan["offline_binding_digest"]:
            return binding
    return None


def scripts(executed: Binding | None, root: Path) -> Iterator[Piece]:
    """Yield the modules whose bytes here are those that ran."""
    files = {} if executed is None else executed.files
    for stem in SCRIPTS:
        path = root / "harness" / f"{stem}.py"
        if path.is_file() and files.get(f"harness/{stem}.py") == sha256_file(path):
            yield Piece(f"script.{stem}.py", "script", text_of(path))


def code(run: PlannedRun, executed: Binding | None, root: Path) -> Iterator[Piece]:
    """Yield the revision, and the patch where this tree still is the one that ran."""
    state: Mapping[str, Any] = run.plan["code"]
    if state.get("head"):
        about = {
            "code": dict(state),
            "binding_digest": run.plan["binding_digest"],
            "versions": run.plan["versions"],
        }
        yield Piece("code_revision.json", "code_revision", document(about))
    if state.get("dirty") and executed is not None and _is_what_ran(run, executed, root):
        yield Piece("code_patch.diff", "code_patch", patch(root))


def _is_what_ran(run: PlannedRun, executed: Binding, root: Path) -> bool:
    """Return whether the tree holds the same bound files on the same commit as when it ran."""
    spec_path = root / "specs" / f"{run.plan['spec']}.json"
    if not spec_path.is_file():
        return False
    now = bind(root, spec_path, {})
    same_head = git_state(root)["head"] == run.plan["code"]["head"]
    return same_head and dict(now.files) == dict(executed.files)


def patch(root: Path) -> str:
    """Return the difference from the commit, with untracked files as new ones."""
    untracked = _git(root, "ls-files", "--others", "--exclude-standard").splitlines()
    additions = "".join(
        _git(root, "diff", "--no-index", "--", "/dev/null", name) for name in untracked
    )
    return _git(root, "diff", "HEAD") + additions


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    return done.stdout.decode("utf-8", "replace")
