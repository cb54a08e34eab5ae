"""A proof is bound to content: what changes the digest, what does not, and what is named."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from mini_project import make_project

from harness.errors import StoreError
from harness.gates import binding, installed
from harness.gates.binding import Binding, bind, differences, git_state

SERVICE = {"service": "embedded", "dtype": "float32"}


@pytest.fixture
def root(pytester: pytest.Pytester) -> Path:
    return make_project(pytester)


def bound(root: Path, **service: str) -> Binding:
    return bind(root, root / "specs" / "local.json", {**SERVICE, **service})


Edit = Callable[[Path], None]


def edit_file(name: str) -> Edit:
    def edit(root: Path) -> None:
        path = root / name
        path.write_text(path.read_text() + " ")

    return edit


def add_file(name: str) -> Edit:
    def add(root: Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    return add


def rename_code(root: Path) -> None:
    (root / "harness" / "code.py").rename(root / "harness" / "code2.py")


def remove_pins(root: Path) -> None:
    (root / "specs" / "local.pins.json").unlink()


BOUND = {
    "spec": (edit_file("specs/local.json"), ["spec:local.json"]),
    "pins": (edit_file("specs/local.pins.json"), ["spec:local.pins.json"]),
    "pins removed": (remove_pins, ["spec:local.pins.json"]),
    "source": (edit_file("harness/code.py"), ["harness/code.py"]),
    "source added": (add_file("harness/deep/new.json"), ["harness/deep/new.json"]),
    "source renamed": (rename_code, ["harness/code.py", "harness/code2.py"]),
    "gate": (edit_file("tests/preflight/test_gates.py"), ["tests/preflight/test_gates.py"]),
    "arm": (edit_file("tests/full/test_arms.py"), ["tests/full/test_arms.py"]),
    "conftest": (edit_file("conftest.py"), ["conftest.py"]),
    "tests' conftest": (add_file("tests/conftest.py"), ["tests/conftest.py"]),
    "pytest.ini": (edit_file("pytest.ini"), ["pytest.ini"]),
    "constraints": (edit_file("constraints.txt"), ["constraints.txt"]),
}


@pytest.mark.parametrize("kind", sorted(BOUND))
def test_what_a_proof_depends_on_changes_the_digest_and_is_named(root: Path, kind: str) -> None:
    edit, named = BOUND[kind]
    before = bound(root)
    edit(root)
    after = bound(root)
    assert before.digest() != after.digest(), kind
    assert before.offline_digest() != after.offline_digest(), kind
    assert differences(before.to_json(), after.to_json()) == named


@pytest.mark.parametrize(
    "name",
    ["README.md", "tests/unit/test_x.py", "harness/__pycache__/code.cpython-311.pyc", "docs/a.md"],
)
def test_what_no_proof_depends_on_does_not(root: Path, name: str) -> None:
    before = bound(root)
    add_file(name)(root)
    assert bound(root) == before


def test_where_and_when_the_tree_is_does_not_matter(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "project"
    shutil.copytree(root, copy)
    found = bind(copy, copy / "specs" / "local.json", SERVICE)
    assert found.digest() == bound(root).digest()
    assert not [name for name in found.files if str(copy) in name]


def test_another_service_makes_live_proofs_stale_and_offline_ones_not(root: Path) -> None:
    before, after = bound(root), bound(root, dtype="float64")
    assert before.digest_for(live=True) != after.digest_for(live=True)
    assert before.digest_for(live=False) == after.digest_for(live=False)
    assert differences(before.to_json(), after.to_json()) == ["service:dtype"]


def test_another_version_makes_every_proof_stale(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bound(root)
    stock = installed.metadata.version
    monkeypatch.setattr(
        installed.metadata, "version", lambda name: "9.9" if name == "torch" else stock(name)
    )
    after = bound(root)
    assert before.digest_for(live=False) != after.digest_for(live=False)
    assert differences(before.to_json(), after.to_json()) == ["versions:torch"]


def test_every_package_of_the_design_is_bound(root: Path) -> None:
    named = {"python", "pytest", "hypothesis", "numpy", "torch", "tinker"}
    versions = bound(root).versions
    assert named <= set(versions)
    assert len(versions["tinker-cookbook RECORD"]) == 64


def test_another_algorithm_makes_every_proof_stale(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bound(root)
    old = before.digest(), before.to_json()
    monkeypatch.setattr(binding, "ALGORITHM", binding.ALGORITHM + 1)
    after = bound(root)
    assert after.digest() != old[0]
    assert differences(old[1], after.to_json()) == ["digest algorithm"]


@pytest.mark.parametrize("name", ["conftest.py", "pytest.ini", "constraints.txt"])
def test_a_bound_file_that_is_missing_is_refused(root: Path, name: str) -> None:
    (root / name).unlink()
    with pytest.raises(StoreError, match=f"expected: {name}"):
        bound(root)


def test_a_package_without_a_list_of_files_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution = type(installed.metadata.distribution("tinker-cookbook"))
    monkeypatch.setattr(distribution, "read_text", without_record(distribution.read_text))
    with pytest.raises(StoreError, match="RECORD of tinker-cookbook"):
        bound(root)


def without_record(read_text: Callable[..., str | None]) -> Callable[..., str | None]:
    return lambda self, name: None if name == "RECORD" else read_text(self, name)


def small_package(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of two files in place of the SDK, where an import would find it."""
    package = root / "site" / "smallpackage"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("A = 1\n")
    (package / "table.json").write_text("{}\n")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setattr(installed, "BY_FILES", ("smallpackage",))
    return package


@pytest.mark.parametrize("name", ["__init__.py", "table.json", "added.py"])
def test_an_edited_file_of_the_sdk_makes_every_proof_stale(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    package = small_package(root, monkeypatch)
    before = bound(root)
    with (package / name).open("a") as stream:
        stream.write("\n")
    after = bound(root)
    assert before.digest_for(live=False) != after.digest_for(live=False)
    assert differences(before.to_json(), after.to_json()) == ["versions:smallpackage files"]


def test_an_sdk_that_cannot_be_found_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "BY_FILES", ("no_such_package_here",))
    with pytest.raises(StoreError, match="no_such_package_here in one folder"):
        bound(root)


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def test_git_is_recorded_and_decides_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(root.parent))
    assert git_state(root) == {"head": None, "dirty": None}, "no repository: unknown, not clean"
    before = bound(root).digest()
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "all")
    clean = git_state(root)
    assert clean["dirty"] is False
    assert len(clean["head"]) == 40
    (root / "README.md").write_text("new")
    assert git_state(root) == {**clean, "dirty": True}
    assert bound(root).digest() == before
