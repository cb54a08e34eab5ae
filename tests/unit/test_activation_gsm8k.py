"""Activation on the real GSM8K questions: the saved experiment's tau stops at its own gate.

The figures were recorded in the design before this code existed: medians near 51 at tau 0.1 (57
fitted on the training set), 22 at tau 0.05 (36); raw term frequencies 31 and min_df=2 21 at tau
0.1. Needs the data set: GSM8K_DIR names a folder with train.jsonl. The order is the cookbook's:
shuffle with seed 0.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.activation import CONTRIBUTORS_METRIC, DiagnosticRow, diagnostic_table, judge
from harness.digest import parse_json, sha256_file
from harness.gates.verdict import Outcome
from harness.spec_preflight import ActivationCheck

TRAIN_SHA256 = "17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465"
CHECK = ActivationCheck(metric=CONTRIBUTORS_METRIC, min=2, max=40)


@pytest.fixture(scope="module")
def table() -> dict[tuple[str, float], DiagnosticRow]:
    folder = os.environ.get("GSM8K_DIR", "")
    path = Path(folder) / "train.jsonl"
    if not folder or not path.is_file():
        pytest.skip("needs GSM8K's train.jsonl. Run: GSM8K_DIR=FOLDER pytest -k gsm8k")
    assert sha256_file(path) == TRAIN_SHA256, f"{path.name} is another data set"
    questions = cookbook_order(path)
    batches = [range(64 * step, 64 * step + 64) for step in range(40)]
    rows = diagnostic_table(questions, batches, [0.1, 0.05])
    return {(row.vectoriser, row.tau): row for row in rows}


def cookbook_order(path: Path) -> Sequence[str]:
    from datasets import Dataset

    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [parse_json(line, where=path.name) for line in lines]
    return list(Dataset.from_list(rows).shuffle(seed=0)["question"])


@pytest.mark.parametrize(
    ("vectoriser", "tau", "wanted"),
    [
        ("tfidf, batch fit (default)", 0.1, 51),
        ("tfidf, batch fit (default)", 0.05, 22),
        ("tfidf, train fit", 0.1, 57),
        ("tfidf, train fit", 0.05, 36),
        ("raw tf, batch fit", 0.1, 31),
        ("tfidf min_df=2, batch fit", 0.1, 21),
    ],
)
def test_pooled_medians_are_the_known_ones(
    table: dict[tuple[str, float], DiagnosticRow], vectoriser: str, tau: float, wanted: float
) -> None:
    found = table[vectoriser, tau].activation.pooled_median
    assert abs(found - wanted) <= 2, f"{vectoriser} at tau {tau}: {found} against {wanted}, +- 2"


def test_no_batch_of_the_saved_experiment_is_in_range(
    table: dict[tuple[str, float], DiagnosticRow],
) -> None:
    measured = table["tfidf, batch fit (default)", 0.1].activation
    assert len(measured.medians_B) == 40
    for step, median in enumerate(measured.medians_B):
        (found,) = judge({CONTRIBUTORS_METRIC: median}, [CHECK])
        assert found.outcome is Outcome.FAIL, f"step {step}: median {median} in {found.allowed}"
