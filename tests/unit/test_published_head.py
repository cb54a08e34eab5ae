"""A head that was published keeps a whole rewritten run from passing as the one that ran."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from complete_run import complete_run, reseal

from harness.__main__ import main
from harness.manifest import head


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return complete_run(tmp_path_factory.mktemp("complete")).folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "run")
    shutil.copytree(original.parent / "rows", tmp_path / "rows")
    return tmp_path / "run"


def verify(run: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[str], str]:
    code = main(["verify", str(run), "--gsm8k-dir", str(run.parent / "rows"), *more])
    told = capsys.readouterr()
    return code, told.out.splitlines(), told.err


def test_the_last_line_is_the_head_to_publish_and_passes_when_given_back(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, _ = verify(run, capsys)
    assert (code, lines[-1]) == (0, f"manifest head: {head(run)}")
    code, lines, _ = verify(run, capsys, "--head", lines[-1].split()[-1])
    assert code == 0
    assert lines[0].startswith("pass    manifest: ")
    assert lines[0].endswith("the head is the published one")


def test_a_run_rewritten_from_end_to_end_is_named_by_its_head(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published = head(run)
    # A record that no other one repeats contradicts nothing: only the published head can tell.
    (run / "logs").mkdir()
    (run / "logs" / "arm.log").write_text("nothing unusual\n")
    reseal(run)
    assert verify(run, capsys)[0] == 0, "the forgery contradicts nothing in itself"
    code, lines, _ = verify(run, capsys, "--head", published)
    assert code == 1
    said = f"fail    manifest: head: manifest.jsonl: the chain ends in {head(run)}, published was "
    assert lines[0].startswith(said + published[:40]), lines[0]


@pytest.mark.parametrize("text", ["", "abc", "A" * 64, "0" * 63, "0" * 65])
def test_what_is_no_head_is_refused_as_usage(
    text: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, error = verify(run, capsys, "--head", text)
    assert (code, lines) == (4, [])
    assert "64 lower-case hex digits" in error


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.unlink(), "none, there is no manifest"),
        (lambda path: path.write_bytes(path.read_bytes()[:-5]), "none, the manifest is broken"),
        (
            lambda path: path.write_text("\n".join(path.read_text().split("\n")[:-2]) + "\n"),
            "none yet, the manifest is not sealed",
        ),
    ],
    ids=["gone", "torn", "unsealed"],
)
def test_a_manifest_without_a_head_says_so(
    damage: Callable[[Path], object], said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published = head(run)
    damage(run / "manifest.jsonl")
    code, lines, _ = verify(run, capsys, "--head", published)
    assert (code, lines[-1]) == (1, f"manifest head: {said}")
