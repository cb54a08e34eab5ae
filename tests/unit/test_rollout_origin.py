"""Rollouts that failed are no zeros, and rollouts of another prompt are no data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tinker
import torch
from small_run import arm_dataset, small_arm
from stub_loop import StubSampler, StubTraining, run_loop
from tinker.types import RequestErrorCategory
from tinker_cookbook.rl import train

from harness.advantage_seam import AdvantageSeam
from harness.errors import ArmError
from harness.rollout_origin import EXACT_BOUNDS, SHARED_BOUNDS, refuse_foreign_rollouts
from harness.store import read_jsonl
from harness.training_record import TrainingRecord, recorded_training

ARM = small_arm("gs1", groups=4, group_size=1)


def run(folder: Path) -> None:
    dataset = arm_dataset(ARM)
    record = TrainingRecord(ARM, AdvantageSeam(ARM, dataset), folder, attempt=3)
    with recorded_training(record):
        run_loop(ARM, dataset, StubTraining(dataset), folder)


def test_a_rollout_that_failed_fails_the_step_and_is_counted_by_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = StubSampler.sample_async

    async def one_fails(self: StubSampler, *args: Any, **kwargs: Any) -> Any:
        if self.asked == 2 and self._sampling_session_id == "stub:sample:1":
            self.asked += 1
            raise tinker.RequestFailedError(
                "Request failed: capacity exhausted.",
                request_id="r",
                category=RequestErrorCategory.Server,
            )
        return await honest(self, *args, **kwargs)

    monkeypatch.setattr(StubSampler, "sample_async", one_fails)
    with pytest.raises(tinker.RequestFailedError):
        run(tmp_path)
    (failed,) = read_jsonl(tmp_path / "rollout_failures.jsonl")
    assert (failed["step"], failed["attempt"], failed["reason"]) == (1, 3, "capacity")
    assert failed["item_id"].startswith("small-train-")
    assert "reward" not in failed, "a failure has no reward, not even zero"
    assert [row["step"] for row in read_jsonl(tmp_path / "steps.jsonl")] == [0]
    assert {row["step"] for row in read_jsonl(tmp_path / "rollouts.jsonl")} == {0}


def test_a_group_that_is_left_out_fails_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cookbook's other strategies skip a failed group: a smaller batch, a biased baseline."""

    async def skipped(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(train, "do_group_rollout_and_filter_constant_reward", skipped)
    with pytest.raises(ArmError, match="a group of rollouts was left out"):
        run(tmp_path)
    assert not (tmp_path / "steps.jsonl").exists()


def datum(prompt_T: list[int], logprobs_T: list[float]) -> tinker.Datum:
    """Return a rollout as the loop sends it: nothing on the prompt, one value an action token."""
    zeros = [0.0] * (len(prompt_T) - 1)
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints([*prompt_T, *range(len(logprobs_T) - 1)]),
        loss_fn_inputs={
            "logprobs": tinker.TensorData(data=[*zeros, *logprobs_T], dtype="float32"),
            "mask": tinker.TensorData(data=[*zeros, *[1.0] * len(logprobs_T)], dtype="float32"),
        },
    )


def trained(data: list[tinker.Datum], gap: float = 0.0) -> list[torch.Tensor]:
    return [one.loss_fn_inputs["logprobs"].to_torch() - gap for one in data]


OWN = [-0.1 * (i + 1) for i in range(8)]
OTHER = [-0.2 * (i + 1) for i in range(8)]


@pytest.mark.parametrize(
    ("bounds", "fine", "foreign"),
    [(EXACT_BOUNDS, 0.0009, 0.02), (SHARED_BOUNDS, 0.49, 0.51)],
    ids=["embedded", "shared"],
)
def test_a_trainer_that_disagrees_gives_a_foreign_rollout_away(
    bounds: Any, fine: float, foreign: float
) -> None:
    data = [datum([1, 2, 3], OWN), datum([1, 2, 4], OTHER)]
    refuse_foreign_rollouts(data, trained(data, fine), bounds, "step 0")
    shifted = [*trained(data[:1]), *trained(data[1:], foreign)]
    with pytest.raises(ArmError, match=r"does not belong to the prompt.*rollout 1: largest"):
        refuse_foreign_rollouts(data, shifted, bounds, "step 0")


def test_one_answer_to_two_prompts_is_refused_whatever_the_trainer_says() -> None:
    data = [datum([1, 2, 3], OWN), datum([1, 2, 4], OTHER), datum([1, 2, 5], OWN)]
    with pytest.raises(ArmError, match="rollouts 0 and 2 have the same, bit for bit"):
        refuse_foreign_rollouts(data, trained(data), SHARED_BOUNDS, "step 0")


def test_equal_rollouts_of_one_prompt_and_very_short_ones_are_possible() -> None:
    same_prompt = [datum([1, 2, 3], OWN), datum([1, 2, 3], OWN)]
    short = [datum([1, 2, 3], OWN[:2]), datum([1, 2, 4], OWN[:2])]
    for data in (same_prompt, short):
        refuse_foreign_rollouts(data, trained(data), EXACT_BOUNDS, "step 0")
