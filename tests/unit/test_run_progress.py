"""The summary of a run that is not over counts trainings: each arm once a seed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from complete_run import write_predictions
from many_arms import three_arms_two_seeds
from small_run import plan_run, small_spec_json

from harness.evaluate import BASE_ARM
from harness.result import RESULT_NAME, ResultDocument, publish, read_result
from harness.run_result import post_scores
from harness.service import register_model_tokenizer


@pytest.mark.parametrize(
    ("raw", "counted"),
    [
        (small_spec_json(), [f"{n} of 2 arms" for n in range(3)]),
        (three_arms_two_seeds(), [f"{n} of 6 trainings (3 arms, 2 seeds)" for n in range(7)]),
    ],
    ids=["two arms, one seed", "three arms, two seeds"],
)
def test_every_score_moves_the_summary_on_by_one_training(
    raw: Mapping[str, Any], counted: list[str], tmp_path: Path
) -> None:
    run = plan_run(tmp_path, raw)
    register_model_tokenizer(run.spec)
    publish(run.folder / RESULT_NAME, ResultDocument.start("planned"))
    found: list[str] = []
    for name in (BASE_ARM, *(training.name for training in run.spec.trainings)):
        write_predictions(run, name)
        post_scores(run, name)
        found.append(read_result(run.folder / RESULT_NAME).summary)
    assert found == [f"spec: {part} trained and scored, no verdict yet." for part in counted]
