"""The stock math_rl loop, unpatched, trains and evaluates on the embedded service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from mini_project import ROOT

from harness.local_service.process import start_service
from harness.local_service.task import generate_rows

pytestmark = pytest.mark.live
SCRIPT = Path(__file__).with_name("stock_math_loop.py")
CARD = """---
configs:
- config_name: main
  data_files:
  - {split: train, path: train.parquet}
  - {split: test, path: test.parquet}
---
"""


def write_dataset(folder: Path) -> None:
    """Write generated rows where ``load_dataset("openai/gsm8k")`` looks before the hub."""
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(CARD)
    for split, generated in (
        ("train", generate_rows("train", 0)[:12]),
        ("test", generate_rows("test", 0)[:6]),
    ):
        rows = [dict(row) for row in generated]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{split}.parquet")


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stock")
    write_dataset(folder / "openai" / "gsm8k")
    with start_service(folder / "service", base_model="embedded/gradeschool") as service:
        environment = {
            **os.environ,
            **service.environment(),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(folder / "hub"),
        }
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(folder / "log")],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return folder / "log"


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_three_steps_were_trained(log_dir: Path) -> None:
    steps = [row["step"] for row in rows(log_dir / "metrics.jsonl")]
    assert steps == [0, 1, 2], f"steps logged: {steps}"


def test_sampler_and_trainer_agree_on_policy(log_dir: Path) -> None:
    gaps = [abs(row["optim/kl_sample_train_v1"]) for row in rows(log_dir / "metrics.jsonl")]
    assert max(gaps) < 1e-5, f"mean sampling - training log-probability: {gaps}, allowed below 1e-5"


def test_the_stock_evaluation_ran_on_every_test_problem(log_dir: Path) -> None:
    first = rows(log_dir / "metrics.jsonl")[0]
    episodes = first["test/env/all/total_episodes"]
    assert episodes == 6, f"evaluated {episodes} episodes of 6 test problems"


def test_periodic_and_final_checkpoints_are_listed(log_dir: Path) -> None:
    names = [row["name"] for row in rows(log_dir / "checkpoints.jsonl")]
    assert names == ["000002", "final"], f"checkpoints {names}"
