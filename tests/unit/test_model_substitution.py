"""A model that is not served is never swapped: the closest one is proposed as a revised spec."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from mini_project import ROOT

from harness import substitute_command
from harness.__main__ import main
from harness.deviations import with_revision
from harness.errors import SpecError
from harness.model_substitution import (
    ServedModel,
    closest_model,
    parse_name,
    revised_document,
)
from harness.result import ResultDocument
from harness.spec import load_spec
from harness.spec_revision import spec_differences

PLANNED = "Qwen/Qwen3.5-2B"
SAVED = ROOT / "specs" / "exp_6ba12d6b47.json"


def served(*names: str) -> list[ServedModel]:
    return [ServedModel(name, 32768, usable=True) for name in names]


@pytest.mark.parametrize(
    ("name", "family", "size_b", "experts", "variant"),
    [
        ("Qwen/Qwen3.5-2B", "qwen/qwen3.5", 2.0, False, ""),
        ("Qwen/Qwen3.5-9B-Base", "qwen/qwen3.5", 9.0, False, "base"),
        ("Qwen/Qwen3.5-35B-A3B", "qwen/qwen3.5", 35.0, True, ""),
        ("Qwen/Qwen3.5-35B-A3B-Base", "qwen/qwen3.5", 35.0, True, "base"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "huggingfacetb/smollm2", 0.135, False, "instruct"),
        ("org/name", "org/name", None, False, ""),
    ],
)
def test_a_name_is_read(
    name: str, family: str, size_b: float | None, experts: bool, variant: str
) -> None:
    found = parse_name(name)
    assert (found.family, found.experts, found.variant) == (family, experts, variant)
    assert found.size_b == pytest.approx(size_b)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        # Family before size: another family's 2B is further away than its own 35B.
        (["Qwen/Qwen3-2B", "other/Qwen3.5-2B", "Qwen/Qwen3.5-35B-A3B"], "Qwen/Qwen3.5-35B-A3B"),
        # Size before instruct, by ratio: 4B is twice 2B, 0.8B is 2.5 times smaller.
        (["Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-4B-Base", "Qwen/Qwen3.5-0.8B"], "Qwen/Qwen3.5-4B-Base"),
        # Then instruct, in whichever order they are listed.
        (["Qwen/Qwen3.5-4B-Base", "Qwen/Qwen3.5-4B"], "Qwen/Qwen3.5-4B"),
        (["Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-4B-Base"], "Qwen/Qwen3.5-4B"),
        # As near on both sides: the smaller.
        (["Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-1B"], "Qwen/Qwen3.5-1B"),
        # A size is all of its parameters; of one size, dense first.
        (["Qwen/Qwen3.5-4B-A1B", "Qwen/Qwen3.5-4B-Base"], "Qwen/Qwen3.5-4B-Base"),
        (["Qwen/Qwen3-8B", "Qwen/Qwen3.6-27B"], None),
        ([], None),
    ],
)
def test_family_then_size_then_instruct(offered: list[str], chosen: str | None) -> None:
    found = closest_model(PLANNED, served(*offered), 1024)
    assert (found.name if found else None) == chosen


def test_what_cannot_run_the_experiment_is_no_candidate() -> None:
    offered = [
        ServedModel("Qwen/Qwen3.5-4B", 512, usable=True),
        ServedModel("Qwen/Qwen3.5-9B", None, usable=False),
        ServedModel("Qwen/Qwen3.5-27B", None, usable=True),
    ]
    found = closest_model(PLANNED, offered, 1024)
    assert found is not None
    assert found.name == "Qwen/Qwen3.5-27B"


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    for name in ("exp_6ba12d6b47.json", "exp_6ba12d6b47.pins.json", "local.json"):
        shutil.copy(ROOT / "specs" / name, tmp_path / name)
    return tmp_path


def offer(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A service that serves these models, reached by variables."""
    capabilities: dict[str, Any] = {
        "supported_models": [{"model_name": name, "max_context_length": 32768} for name in names]
    }
    monkeypatch.setenv("TINKER_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("TINKER_API_KEY", "tml-not-for-anybody")
    monkeypatch.setattr("harness.service_access.require_health", lambda _: None)
    monkeypatch.setattr(substitute_command, "get_json", lambda *_: capabilities)


def test_the_revised_spec_is_a_new_file_that_names_its_original(
    specs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(monkeypatch, "Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-4B", "Qwen/Qwen3-8B")
    original = specs / "exp_6ba12d6b47.json"
    before = original.read_bytes()
    assert main(["plan", str(original), "--substitute"]) == 0
    said = capsys.readouterr().out
    assert original.read_bytes() == before, "the original was edited"
    written = specs / "exp_6ba12d6b47_on_qwen3_5_4b.json"
    assert str(written) in said
    revised, saved = load_spec(written), load_spec(original)
    assert revised.spec.base_model == "Qwen/Qwen3.5-4B"
    checks = {c["metric"]: c for c in json.loads(written.read_text())["activation_gate"]["checks"]}
    assert checks["executed_base_model"]["one_of"] == ["Qwen/Qwen3.5-4B"]
    assert revised.spec.revision is not None
    assert (revised.spec.revision.of, revised.spec.revision.digest) == (saved.name, saved.digest)
    differences = spec_differences(
        saved.spec.model_dump(mode="json"), revised.spec.model_dump(mode="json")
    )
    assert [(d.path, d.original, d.effective) for d in differences] == [
        ("base_model", PLANNED, "Qwen/Qwen3.5-4B")
    ]
    document = with_revision(ResultDocument.start("planned."), revised, specs)
    (row,) = document.deviations
    assert (row.field, row.original, row.effective) == ("model", PLANNED, "Qwen/Qwen3.5-4B")
    assert "Qwen/Qwen3.5-4B, Qwen/Qwen3.5-9B" in row.reason
    assert document.original_hypothesis_tested is not False, "another model is no other objective"


def test_a_second_writing_is_refused(
    specs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer(monkeypatch, "Qwen/Qwen3.5-4B")
    original = str(specs / "exp_6ba12d6b47.json")
    assert main(["plan", original, "--substitute"]) == 0
    assert main(["plan", original, "--substitute"]) == 4
    assert "exp_6ba12d6b47_on_qwen3_5_4b.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "code", "said"),
    [
        ([PLANNED, "Qwen/Qwen3.5-4B"], 0, "is served: nothing to substitute"),
        (["Qwen/Qwen3-8B"], 4, "no model of the planned one's family"),
    ],
)
def test_nothing_is_written_without_need_or_without_a_relative(
    specs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    names: list[str],
    code: int,
    said: str,
) -> None:
    offer(monkeypatch, *names)
    before = sorted(specs.iterdir())
    assert main(["plan", str(specs / "exp_6ba12d6b47.json"), "--substitute"]) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert sorted(specs.iterdir()) == before


def test_an_embedded_spec_or_a_revision_takes_no_other_model(
    specs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = load_spec(specs / "local.json")
    with pytest.raises(SpecError, match="spec of the embedded service"):
        revised_document(local, "Qwen/Qwen3.5-4B", "why")
    offer(monkeypatch, "Qwen/Qwen3.5-4B")
    assert main(["plan", str(specs / "exp_6ba12d6b47.json"), "--substitute"]) == 0
    revised = load_spec(specs / "exp_6ba12d6b47_on_qwen3_5_4b.json")
    with pytest.raises(SpecError, match="found: a revision"):
        revised_document(revised, "Qwen/Qwen3.5-9B", "why")
