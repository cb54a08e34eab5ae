"""The stock loop under the record: what it sends, what is written, and which wiring fails the arm.

The loop, the environments and the grader are the cookbook's own; only the service's clients are
stand-ins (``stub_loop``).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tinker
from small_run import arm_dataset, small_arm
from stub_loop import Output, StubTraining, run_loop
from tinker_cookbook.rl import train
from tinker_cookbook.rl.data_processing import compute_advantages

from harness.advantage_seam import AdvantageSeam
from harness.errors import ArmError
from harness.spec_model import Arm
from harness.store import read_jsonl
from harness.training_record import TrainingRecord, recorded_training

NAMES = (
    "compute_advantages",
    "print_group",
    "train_step",
    "_training_logprobs_from_fwd_bwd",
    "do_group_rollout_and_filter_constant_reward",
    "save_checkpoint_and_get_sampling_client",
)
STOCK = {name: getattr(train, name) for name in NAMES}
SHAPES = {"grpo": small_arm("grpo"), "gs1": small_arm("gs1", groups=4, group_size=1)}


class Recorded:
    """One arm's loop, run under a record."""

    def __init__(self, arm: Arm, folder: Path) -> None:
        self.arm, self.folder = arm, folder
        self.dataset = arm_dataset(arm)
        self.seam = AdvantageSeam(arm, self.dataset)
        self.training = StubTraining(self.dataset)
        self.record = TrainingRecord(arm, self.seam, folder, attempt=1)

    def run(self, **changes: Any) -> list[dict[str, Any]]:
        with recorded_training(self.record):
            return run_loop(self.arm, self.dataset, self.training, self.folder, **changes)

    def steps(self) -> tuple[dict[str, Any], ...]:
        return read_jsonl(self.folder / "steps.jsonl")

    def rollouts(self) -> tuple[dict[str, Any], ...]:
        return read_jsonl(self.folder / "rollouts.jsonl")


@pytest.fixture(params=sorted(SHAPES))
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Recorded:
    return Recorded(SHAPES[request.param], tmp_path)


@pytest.fixture
def grpo(tmp_path: Path) -> Recorded:
    return Recorded(SHAPES["grpo"], tmp_path)


@pytest.fixture(autouse=True)
def stock_afterwards() -> Any:
    yield
    now = {name: getattr(train, name) for name in NAMES}
    changed = [name for name in NAMES if now[name] is not STOCK[name]]
    assert not changed, f"the loop is not stock again: {changed}"


def sent_advantages(datums: list[tinker.Datum]) -> list[float]:
    """Return the one advantage of each datum, from its last token."""
    return [float(datum.loss_fn_inputs["advantages"].data[-1]) for datum in datums]


def test_each_step_makes_one_advantage_call_and_one_pass(recorded: Recorded) -> None:
    recorded.run()
    steps = recorded.steps()
    assert [row["step"] for row in steps] == [0, 1]
    assert [len(data) for data in recorded.training.sent] == [4, 4], "one full-batch pass a step"
    assert len(recorded.training.optimizer_steps) == 2, "one update a step"
    assert recorded.seam.calls == [], "calls for printing must not be left over"
    assert set(recorded.training.loss_fns) == {"importance_sampling"}
    assert [(row["rollouts"], row["datums"]) for row in steps] == [(4, 4), (4, 4)]


def test_what_is_sent_carries_the_arms_advantages(recorded: Recorded) -> None:
    recorded.run()
    for step, data in enumerate(recorded.training.sent):
        written = [row["advantage"] for row in recorded.rollouts() if row["step"] == step]
        assert sent_advantages(data) == pytest.approx(written, abs=1e-7), f"step {step}"
        assert any(abs(value) > 0.05 for value in written), "all zeros would prove nothing"


def test_the_mask_is_not_sent_and_prompt_tokens_carry_nothing(grpo: Recorded) -> None:
    grpo.run()
    for datum, row in zip(grpo.training.sent[0], grpo.rollouts(), strict=False):
        assert set(datum.loss_fn_inputs) == {"target_tokens", "logprobs", "advantages"}
        prompt = [0.0] * (datum.model_input.length - row["completion_tokens"])
        assert datum.loss_fn_inputs["advantages"].data[: len(prompt)] == prompt


def test_grades_and_lengths_are_written_apart(grpo: Recorded) -> None:
    """The stub answers right, wrong, unboxed and cut off: 1.0, 0, -0.1, -0.1 by the cookbook."""
    grpo.run()
    first = grpo.rollouts()[:4]
    assert sorted(row["reward"] for row in first) == pytest.approx([-0.1, -0.1, 0.0, 1.0])
    step = grpo.steps()[0]
    found = {key: step[key] for key in ("reward_mean", "accuracy", "format", "truncation")}
    assert found == pytest.approx(
        {"reward_mean": 0.2, "accuracy": 0.25, "format": 0.5, "truncation": 0.25}
    )


def test_loss_gap_and_sampler_are_the_services_own_words(grpo: Recorded) -> None:
    grpo.run()
    steps = grpo.steps()
    assert [row["loss_sum"] for row in steps] == [11.0, 12.0]
    assert [row["sampler_version"] for row in steps] == [0, 1]
    assert [row["sampling_session"] for row in steps] == ["stub:sample:0", "stub:sample:1"]
    tokens = sum(row["completion_tokens"] for row in grpo.rollouts()[:4])
    assert steps[0]["sampler_trainer_gap"] == {"mean": 0.25, "max_abs": 0.25, "tokens": tokens}


def test_the_loops_own_metrics_are_untouched(grpo: Recorded, tmp_path: Path) -> None:
    """The same loop without the record logs the same numbers: grpo is stock but for rounding."""
    ours = grpo.run()
    dataset = arm_dataset(grpo.arm)
    stock = run_loop(grpo.arm, dataset, StubTraining(dataset), tmp_path / "stock")
    for mine, theirs in zip(ours, stock, strict=True):
        kept = {key for key in theirs if not key.startswith("time/")}
        assert {key: mine[key] for key in kept} == pytest.approx({key: theirs[key] for key in kept})


def test_observers_hand_arguments_and_results_through(
    grpo: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, tuple[Any, Any]] = {}
    data: list[tinker.Datum] = []
    output = Output(loss_fn_output_type="x", loss_fn_outputs=[], metrics={"loss:sum": 1.0})
    client = StubTraining(grpo.dataset)
    sampler = asyncio.run(client.save_weights_and_get_sampling_client_async())
    results = {
        "print_group": object(),
        "train_step": [],
        "_training_logprobs_from_fwd_bwd": [],
        "save_checkpoint_and_get_sampling_client": (sampler, {}),
    }

    def plain(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            seen[name] = (args, kwargs)
            return results[name]

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs)

        return awaited if asyncio.iscoroutinefunction(STOCK[name]) else call

    with monkeypatch.context() as patch:
        for name in results:
            patch.setattr(train, name, plain(name))
        patch.setattr(grpo.record, "write_step", lambda *_: None)
        with recorded_training(grpo.record):
            wrapped: Any = train
            assert wrapped.print_group(data, tokenizer=client) is results["print_group"]
            assert (
                wrapped._training_logprobs_from_fwd_bwd(output)
                is results["_training_logprobs_from_fwd_bwd"]
            )
            trained = asyncio.run(wrapped.train_step(data_D=data, metrics=results))
            assert trained is results["train_step"]
            saved = asyncio.run(wrapped.save_checkpoint_and_get_sampling_client(client, 1))
            assert saved[0] is sampler
            assert saved[1] is results["save_checkpoint_and_get_sampling_client"][1]
    assert seen["print_group"][0][0] is data
    assert seen["print_group"][1]["tokenizer"] is client
    assert seen["_training_logprobs_from_fwd_bwd"][0][0] is output
    assert seen["train_step"][1]["data_D"] is data
    assert seen["train_step"][1]["metrics"] is results
    assert seen["save_checkpoint_and_get_sampling_client"][0] == (client, 1)


def test_the_names_are_replaced_during_a_run_only(grpo: Recorded) -> None:
    with recorded_training(grpo.record):
        during = [name for name in NAMES if getattr(train, name) is not STOCK[name]]
        assert during == list(NAMES)
        assert vars(train)["compute_advantages"] is grpo.seam
    assert vars(train)["compute_advantages"] is compute_advantages


def test_the_names_are_stock_again_after_an_exception(grpo: Recorded) -> None:
    with pytest.raises(ZeroDivisionError), recorded_training(grpo.record):
        raise ZeroDivisionError
    assert getattr(train, NAMES[0]) is STOCK[NAMES[0]]


def test_printing_that_fails_does_not_leave_the_seam_displaying(grpo: Recorded) -> None:
    with recorded_training(grpo.record):
        with pytest.raises(AttributeError):
            vars(train)["print_group"](None, None)
        assert grpo.seam.displaying is False, "the next training call would get stock values"


def test_two_substeps_fail_the_arm(grpo: Recorded) -> None:
    with pytest.raises(ArmError, match=r"4 datums in 1 pass.*4 datums in 2 passes.*one substep"):
        grpo.run(num_substeps=2)
    assert not (grpo.folder / "steps.jsonl").exists(), "a refused step leaves no line"


def test_removing_constant_groups_fails_the_arm(tmp_path: Path) -> None:
    gs1 = Recorded(SHAPES["gs1"], tmp_path)
    with pytest.raises(ArmError, match=r"4 groups of 1.*remove_constant_reward_groups off"):
        gs1.run(remove_constant_reward_groups=True)
    assert gs1.training.optimizer_steps == [], "it must fail before the update"


def test_a_minibatched_loop_fails_the_arm(grpo: Recorded) -> None:
    """Stream minibatches hand over part of the batch; the loop's own seam call is the same."""
    groups_per_call = 1

    async def minibatched(builders: Any, groups: Any, *args: Any, **kwargs: Any) -> Any:
        part = groups[:groups_per_call]
        return await prepare(builders[:groups_per_call], part, *args, **kwargs)

    prepare = train.prepare_minibatch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "prepare_minibatch", minibatched)
        with pytest.raises(ArmError, match=r"2 groups of 2.*found: 1 groups"):
            grpo.run()


def test_a_dropped_datum_fails_the_arm(grpo: Recorded) -> None:
    prepare = train.prepare_minibatch

    async def dropping(*args: Any, **kwargs: Any) -> Any:
        data, metrics = await prepare(*args, **kwargs)
        return data[:-1], metrics

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "prepare_minibatch", dropping)
        with pytest.raises(ArmError, match="found: 3 datums in 1 passes"):
            grpo.run()


def test_a_second_advantage_call_fails_the_arm(grpo: Recorded) -> None:
    prepare = train.prepare_minibatch

    async def twice(*args: Any, **kwargs: Any) -> Any:
        await prepare(*args, **kwargs)
        return await prepare(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "prepare_minibatch", twice)
        with pytest.raises(ArmError, match=r"exactly once.*found: 2 calls"):
            grpo.run()


def test_a_loop_that_starts_elsewhere_fails_the_arm(grpo: Recorded) -> None:
    with pytest.raises(ArmError, match=r"one call for step 0.*steps \[1\]"):
        grpo.run(first_step=1)


@pytest.mark.parametrize("metrics", [{}, {"loss:sum": float("nan")}, {"loss": 1.0}])
def test_a_service_without_a_loss_fails_the_arm(grpo: Recorded, metrics: dict[str, float]) -> None:
    grpo.training.edit = lambda output: replace(output, metrics=metrics)
    with pytest.raises(ArmError, match=r"expected: a finite metric loss:sum.*step 0"):
        grpo.run()


def test_a_service_that_drops_an_output_fails_the_arm(grpo: Recorded) -> None:
    grpo.training.edit = lambda output: replace(output, loss_fn_outputs=output.loss_fn_outputs[:-1])
    with pytest.raises(ArmError, match=r"4 datums.*found: 3 datums"):
        grpo.run()
