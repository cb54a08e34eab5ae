"""Evaluation rows and the frozen evaluator: nothing is dropped, nothing changes unnoticed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tinker
from small_run import GS1, LOCAL_SPEC, TEST_ITEMS, plan_run, small_spec_json

import harness.evaluate
import harness.stage_process
from harness.arm_dataset import renderer_for
from harness.digest import sha256_json
from harness.errors import ArmError, StoreError
from harness.evaluate import (
    EVALUATOR_NAME,
    completion_text,
    evaluate_arm,
    evaluator_object,
    freeze_evaluator,
    main,
    prediction_row,
    score,
)
from harness.plan import PlannedRun
from harness.problems import Problem
from harness.service import register_model_tokenizer

PROBLEM = Problem("small-test-00007", "what is 7 plus 7", "#### 14", "14")
ABOUT = {
    "arm": GS1,
    "seed": 0,
    "checkpoint": "tinker://run/sampler_weights/final",
    "metric": "accuracy",
    "evaluator_id": "e" * 64,
}


@pytest.fixture
def run(tmp_path: Path) -> PlannedRun:
    register_model_tokenizer(LOCAL_SPEC)
    return plan_run(tmp_path)


def sequence(tokens: list[int], *, finished: bool = True) -> tinker.SampledSequence:
    return tinker.SampledSequence(
        stop_reason="stop" if finished else "length",
        sequence_id="s",
        tokens_np=np.asarray(tokens, dtype=np.int64),
        logprobs_np=np.zeros(len(tokens), dtype=np.float32),
    )


@pytest.mark.parametrize(
    ("text", "finished", "prediction", "value"),
    [
        ("so \\boxed{14}", True, "14", 1.0),
        ("so \\boxed{15}", True, "15", 0.0),
        ("then 14", True, "14", 1.0),
        ("then 14", False, None, 0.0),
        ("so \\boxed{", True, None, 0.0),
        ("no idea", True, None, 0.0),
        ("", True, None, 0.0),
        ("so \\boxed{14.00}", True, "14", 1.0),
    ],
    ids=["right", "wrong", "no box", "cut off", "open box", "no number", "empty", "decimal"],
)
def test_every_output_is_a_row(
    text: str, finished: bool, prediction: str | None, value: float
) -> None:
    row = prediction_row(PROBLEM, [1, 2], sequence([5, 6, 2], finished=finished), text, ABOUT)
    assert (row["prediction"], row["value"], row["finished"]) == (prediction, value, finished)
    assert row["item_id"] == PROBLEM.item_id
    assert row["reference"] == "14"
    assert row["completion_tokens"] == 3
    assert {name: row[name] for name in ABOUT} == ABOUT
    assert row["text"] == text


def test_a_lone_surrogate_in_a_text_is_still_a_row() -> None:
    row = prediction_row(PROBLEM, [1], sequence([5]), "14 \ud800", ABOUT)
    assert json.loads(json.dumps(row, allow_nan=False))["value"] == 1.0


@pytest.mark.parametrize("stops", [[], [2], [2, 2]], ids=["none", "one", "two"])
def test_only_trailing_stop_tokens_are_dropped(stops: list[int]) -> None:
    register_model_tokenizer(LOCAL_SPEC)
    renderer = renderer_for(LOCAL_SPEC)
    assert renderer.get_stop_sequences() == [2], "the embedded tokenizer's stop token"
    body = [*renderer.tokenizer.encode("7", add_special_tokens=False), 2]
    body += renderer.tokenizer.encode("8", add_special_tokens=False)
    text = completion_text(renderer, [*body, *stops])
    assert text == renderer.tokenizer.decode(body)
    assert str(renderer.tokenizer.decode([2])) in text, "a stop token inside the text stays"


def test_the_evaluator_names_everything_a_score_depends_on(run: PlannedRun) -> None:
    evaluator = evaluator_object(run.spec, run.test_problems())
    assert set(evaluator) == {"code_sha256", "prompt_template", "decoding", "parser", "items"}
    assert evaluator["decoding"] == {"temperature": 0.0, "max_tokens": 80, "stop": [2]}
    assert evaluator["items"] == {"ids": [f"small-test-{i:05d}" for i in range(TEST_ITEMS)]}
    assert "{question} Write your answer in \\boxed{} format." in evaluator["prompt_template"]


def test_the_evaluator_id_is_the_digest_of_the_frozen_file(run: PlannedRun) -> None:
    evaluator_id = freeze_evaluator(run)
    frozen = json.loads((run.folder / EVALUATOR_NAME).read_text())
    assert evaluator_id == sha256_json(frozen)
    assert freeze_evaluator(run) == evaluator_id, "freezing again changes nothing"


def change_code(_: PlannedRun, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(harness.evaluate.harness.answers, "code_sha256", lambda: "0" * 64)


def change_parser(_: PlannedRun, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(harness.evaluate, "PARSER_ID", "strict_final_number/2")


def change_prompt(_: PlannedRun, patch: pytest.MonkeyPatch) -> None:
    suffix = staticmethod(lambda: " Answer in a box.")
    patch.setattr(harness.evaluate.harness.arm_dataset.MathEnv, "question_suffix", suffix)


def change_decoding(run: PlannedRun, patch: pytest.MonkeyPatch) -> None:
    execution = run.spec.execution.model_copy(update={"max_tokens": 81})
    changed = run.spec.model_copy(update={"execution": execution})
    patch.setattr(PlannedRun, "spec", changed)


def change_items(run: PlannedRun, patch: pytest.MonkeyPatch) -> None:
    fewer = run.test_problems()[:-1]
    patch.setattr(PlannedRun, "test_problems", lambda _: fewer)


CHANGES = {
    "code_sha256": change_code,
    "parser": change_parser,
    "prompt_template": change_prompt,
    "decoding": change_decoding,
    "items": change_items,
}


@pytest.mark.parametrize("part", sorted(CHANGES))
def test_a_frozen_evaluator_refuses_any_change(
    run: PlannedRun, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    freeze_evaluator(run)
    before = (run.folder / EVALUATOR_NAME).read_bytes()
    CHANGES[part](run, monkeypatch)
    with pytest.raises(StoreError, match=rf"changed: {part}\).*--fresh"):
        freeze_evaluator(run)
    assert (run.folder / EVALUATOR_NAME).read_bytes() == before


def test_an_edited_evaluator_file_is_refused(run: PlannedRun) -> None:
    freeze_evaluator(run)
    path = run.folder / EVALUATOR_NAME
    edited = {**json.loads(path.read_text()), "retries": 1}
    path.write_text(json.dumps(edited))
    with pytest.raises(StoreError, match=r"changed: retries\)"):
        freeze_evaluator(run)


class StubSampler:
    """Answers the items in reverse order of being asked, each with its own number."""

    def __init__(self, run: PlannedRun) -> None:
        self.renderer = renderer_for(run.spec)
        self.left = TEST_ITEMS
        self.parameters: list[tinker.SamplingParams] = []

    async def sample_async(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> tinker.SampleResponse:
        assert (num_samples, prompt.length > 0) == (1, True)
        self.parameters.append(sampling_params)
        number = TEST_ITEMS - self.left
        self.left -= 1
        for _ in range(self.left):
            await asyncio.sleep(0)
        text = f"\\boxed{{{2 * number}}}" if number % 4 else "no"
        tokens = [*self.renderer.tokenizer.encode(text, add_special_tokens=False), 2]
        return tinker.SampleResponse(sequences=[sequence(tokens)])


def scored(run: PlannedRun) -> tuple[list[dict[str, Any]], StubSampler]:
    freeze_evaluator(run)
    evaluator = json.loads((run.folder / EVALUATOR_NAME).read_text())
    sampler: Any = StubSampler(run)
    kept: list[dict[str, Any]] = []
    rows = asyncio.run(score(sampler, run, evaluator, ABOUT, {}, kept.append))
    assert sorted(row["item_id"] for row in kept) == [row["item_id"] for row in rows]
    return rows, sampler


def test_scores_come_back_in_item_order_one_a_item(run: PlannedRun) -> None:
    rows, _ = scored(run)
    assert [row["item_id"] for row in rows] == [f"small-test-{i:05d}" for i in range(TEST_ITEMS)]
    assert [row["value"] for row in rows] == [1.0 if i % 4 else 0.0 for i in range(TEST_ITEMS)]


def test_items_are_sampled_with_the_evaluators_decoding(run: PlannedRun) -> None:
    _, sampler = scored(run)
    assert len(sampler.parameters) == TEST_ITEMS
    for found in sampler.parameters:
        assert (found.temperature, found.max_tokens, found.stop) == (0.0, 80, [2])


class CountingSampler(StubSampler):
    """Answers only when no further item is asked for, and counts the items that wait."""

    def __init__(self, run: PlannedRun) -> None:
        super().__init__(run)
        self.waiting = self.most_waiting = 0

    async def sample_async(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> tinker.SampleResponse:
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            return await super().sample_async(prompt, num_samples, sampling_params)
        finally:
            self.waiting -= 1


def test_items_in_flight_are_bounded(run: PlannedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness.evaluate, "ITEMS_IN_FLIGHT", 7)
    sampler: Any = CountingSampler(run)
    evaluator = evaluator_object(run.spec, run.test_problems())
    rows = asyncio.run(score(sampler, run, evaluator, ABOUT, {}, lambda _: None))
    assert len(rows) == TEST_ITEMS, f"{len(rows)} rows, expected {TEST_ITEMS}"
    assert sampler.most_waiting == 7, f"{sampler.most_waiting} items in flight, expected 7"


def test_rows_are_kept_while_later_items_are_still_asked_for(
    run: PlannedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness.evaluate, "ITEMS_IN_FLIGHT", 1)
    sampler: Any = StubSampler(run)
    evaluator = evaluator_object(run.spec, run.test_problems())
    asked_when_kept: list[int] = []

    def keep(_: dict[str, Any]) -> None:
        asked_when_kept.append(TEST_ITEMS - sampler.left)

    asyncio.run(score(sampler, run, evaluator, ABOUT, {}, keep))
    # With one item in flight, the next may be asked for before the row of this one is made.
    assert asked_when_kept[0] <= 2, f"{asked_when_kept[0]} items asked for before the first row"


class NoService:
    """A client that must not be asked for a sampler."""

    def create_sampling_client(self, **_: Any) -> Any:
        raise AssertionError("an unfinished arm must not be scored")


@pytest.mark.parametrize("steps", [None, 1], ids=["never trained", "stopped early"])
def test_an_arm_that_has_not_finished_is_not_scored(
    run: PlannedRun, monkeypatch: pytest.MonkeyPatch, steps: int | None
) -> None:
    monkeypatch.setattr(harness.evaluate, "sdk_client", NoService)
    if steps is not None:
        folder = run.folder / "arms" / GS1
        folder.mkdir(parents=True)
        (folder / "done.json").write_text(json.dumps({"steps": steps, "sampler_uri": "x"}))
    with pytest.raises(ArmError, match=f"done.json with 2 steps.*pytest -m full --arm {GS1}"):
        evaluate_arm(run, GS1)


def test_the_stage_says_what_is_wrong_and_exits_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness.stage_process.warnings, "simplefilter", lambda *_: None)
        assert main([str(tmp_path), GS1]) == 1
    assert "StoreError: the run has no readable plan" in capsys.readouterr().err


def test_another_spec_gives_another_evaluator(run: PlannedRun, tmp_path: Path) -> None:
    raw = small_spec_json()
    raw["execution"]["max_tokens"] = 60
    (tmp_path / "other").mkdir()
    other = plan_run(tmp_path / "other", raw)
    assert freeze_evaluator(run) != freeze_evaluator(other)
