"""``template``: what it prints is a valid spec, and its prose is visibly still to be written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mini_project import ROOT

from harness.__main__ import main
from harness.errors import SpecError
from harness.spec import load_spec
from harness.template import PROSE, template_document


@pytest.mark.parametrize(
    ("flags", "model"), [([], "Qwen/Qwen3.5-2B"), (["--local"], "embedded/gradeschool")]
)
def test_the_template_loads_as_a_spec(
    flags: list[str], model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["template", *flags]) == 0
    path = tmp_path / "new.json"
    path.write_text(capsys.readouterr().out)
    loaded = load_spec(path)
    assert loaded.spec.base_model == model
    assert loaded.pins is None, "a new spec is not pinned by its template"
    for name in PROSE:
        assert getattr(loaded.spec, name).startswith("REPLACE: "), name
    assert main(["spec", str(path)]) == 0


def test_a_committed_spec_that_broke_gives_no_template(tmp_path: Path) -> None:
    raw = json.loads((ROOT / "specs" / "local.json").read_text())
    (tmp_path / "local.json").write_text(json.dumps({**raw, "batch_size": 63}))
    with pytest.raises(SpecError, match=r"template from local\.json"):
        template_document(tmp_path, local=True)
