"""A correctness record that passes, and the saved spec it is judged against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.correctness import parity_errors

ROOT = Path(__file__).parents[2]
SAVED = ROOT / "specs" / "exp_6ba12d6b47.json"
PINS = {
    "baseline_revision": "stock 1",
    "reference_revision": "blob 2",
    "implementation_revision": "digest 3",
}
NAMES = ("baseline_loss", "baseline_gradient", "reference_loss", "reference_gradient")


@pytest.fixture
def spec_path(tmp_path: Path) -> Path:
    path = tmp_path / "trial.json"
    path.write_bytes(SAVED.read_bytes())
    path.with_name("trial.pins.json").write_text(json.dumps(PINS))
    return path


def record(**changes: Any) -> dict[str, Any]:
    path = {
        "id": "advantage_loss",
        "fixed_input": {"sha256": "a" * 64, "description": "fixed rollouts"},
        **PINS,
        "precision": "float64",
        "normalization": "sum",
        "errors": {name: parity_errors([2.0, 1.0], [2.0, 1.0]) for name in NAMES},
        "lr_scaling": None,
    }
    return {"required": True, "paths": [path | changes]}


def with_errors(name: str, **row: float) -> dict[str, Any]:
    document = record()
    document["paths"][0]["errors"][name] |= row
    return document
