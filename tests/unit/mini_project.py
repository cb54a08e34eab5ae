"""A small project with fake gates and arms, for running the plugin inside pytest."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.gates.catalog import CATALOG, required_gate_ids
from harness.pins import record_pins
from harness.spec import load_spec

ROOT = Path(__file__).parents[2]

OFFLINE = "advantage_properties"
HEAD = """
@pytest.mark.preflight
@pytest.mark.gate("advantage_properties")
def test_advantage_properties(gate):
"""
MEASURED = '{head}    gate.check("q", 1.0, effect="e", at_most=2)\n'
GATE = """
@pytest.mark.preflight{live}
@pytest.mark.gate("{gate_id}")
def test_{gate_id}(gate):
    gate.check("quantity", 1.0, effect="nothing", at_most=2.0)
"""
ARMS = """
import pytest

@pytest.mark.full
def test_arm(arm_name):
    print("TRAINED", arm_name)
"""
INI = """
[pytest]
strict = true
addopts = -p no:cacheprovider -m "not live and not full and not slow"
"""


def required_ids() -> tuple[str, ...]:
    """Return the gates that the local spec requires."""
    return required_gate_ids(load_spec(ROOT / "specs" / "local.json").spec)


def pinned_local(folder: Path) -> Path:
    """Copy the local spec into a folder and pin it to what is installed; return the copy.

    The repository's own pins name the default SDK generation's cookbook; another may be installed.
    """
    path = Path(shutil.copy(ROOT / "specs" / "local.json", folder))
    record_pins(path, ROOT)
    return path


def make_project(pytester: pytest.Pytester) -> Path:
    """Write spec, harness stand-in, fake gates for all required ids and fake arms."""
    root = pytester.path
    (root / "specs").mkdir()
    pinned_local(root / "specs")
    for folder in ("harness", "tests/preflight", "tests/full"):
        (root / folder).mkdir(parents=True)
    (root / "harness" / "code.py").write_text("VALUE = 1\n")
    (root / "conftest.py").write_text('pytest_plugins = ["harness.plugin"]\n')
    (root / "pytest.ini").write_text(INI)
    (root / "constraints.txt").write_text("torch==2.13.0\n")
    write_gates(root)
    (root / "tests" / "full" / "test_arms.py").write_text(ARMS)
    return root


def write_gates(root: Path, **bodies: str) -> None:
    """Write one test a required gate; a body given by gate id replaces the default test."""
    live = {entry.gate_id: entry.live for entry in CATALOG}
    parts = ["import pytest\n"]
    for gate_id in required_ids():
        mark = "\n@pytest.mark.live" if live[gate_id] else ""
        parts.append(bodies.get(gate_id, GATE.format(gate_id=gate_id, live=mark)))
    (root / "tests" / "preflight" / "test_gates.py").write_text("".join(parts))


def as_checkout(root: Path) -> None:
    """Make a small project a clean git checkout that holds the code that runs.

    Without it a run there has no revision and no script to show, and its evidence is partial.
    """
    (root / "harness" / "code.py").unlink()
    shutil.copytree(
        ROOT / "harness",
        root / "harness",
        ignore=shutil.ignore_patterns("__pycache__"),
        dirs_exist_ok=True,
    )
    (root / ".gitignore").write_text("artifacts/\n")
    by = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    for command in (("init", "-q"), ("add", "."), (*by, "commit", "-q", "-m", "as it ran")):
        subprocess.run(["git", *command], cwd=root, check=True)


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest on the project inside this process."""
    return pytester.runpytest_inprocess("-p", "no:randomly", *arguments)


def outcomes(root: Path) -> dict[str, str]:
    """Return the outcome of each gate that the last session ran."""
    summary = json.loads((root / "artifacts" / "last-session.json").read_text())
    return {gate_id: found["outcome"] for gate_id, found in summary["gates"].items()}
