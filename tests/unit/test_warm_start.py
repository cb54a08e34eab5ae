"""The warm-start recipe and the model it shipped: digests, bands, rows, determinism."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.digest import parse_json, sha256_file
from harness.errors import DocumentError, ServiceError
from harness.local_service.band import (
    GREEDY_BAND,
    MAX_ANSWER_TOKENS,
    SAMPLED_REWARD_BAND,
    measure,
    write_answers,
)
from harness.local_service.model_files import (
    check_band,
    check_digests,
    load_model,
    load_record,
    measure_figures,
)
from harness.local_service.recipe import Recipe, new_model
from harness.local_service.task import generate_problems
from harness.local_service.tokenizer import MODEL_DIR, load_tokenizer
from harness.local_service.warm_rows import RowMaker, prompt_tokens, task_renderer
from harness.local_service.warm_start import WarmStart, equations_right, main, one_thread

TOKENIZER = load_tokenizer()
RENDERER = task_renderer(TOKENIZER)
TEST = generate_problems("test", 0)
MODEL = load_model()
TWO_STEPS = Recipe(
    max_steps=2,
    check_every_steps=2,
    answered_rows=2,
    drill_rows=2,
    held_out_problems=4,
    held_out_drills=2,
    equation_target=0.0,
    greedy_target=(0.0, 1.0),
)


def test_shipped_files_are_the_recorded_ones() -> None:
    recorded = load_record()["sha256"]
    files = {p.name: sha256_file(p) for p in MODEL_DIR.iterdir() if p.name != "recipe.json"}
    assert files == recorded
    size = (MODEL_DIR / "model.safetensors").stat().st_size
    assert size <= 4 * 2**20, f"model of {size} bytes, allowed {4 * 2**20}"


def test_a_changed_or_missing_file_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(MODEL_DIR, folder)
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    (folder / "config.json").unlink()
    with pytest.raises(DocumentError, match=r"config\.json absent, model\.safetensors"):
        check_digests(folder, load_record(folder))


def test_shipped_greedy_accuracy_is_in_its_band_and_the_recorded_one() -> None:
    scores = measure(MODEL, TOKENIZER, RENDERER, TEST[:200])
    low, high = GREEDY_BAND
    assert low <= scores.accuracy <= high, f"greedy {scores.accuracy} outside [{low}, {high}]"
    recorded = load_record()["figures"]["greedy"]["accuracy"]
    # Three standard errors of 200 of the 1319 items.
    assert abs(scores.accuracy - recorded) < 0.11, f"{scores.accuracy} for recorded {recorded}"
    assert scores.truncated == 0, f"{scores.truncated} of answers exceed {MAX_ANSWER_TOKENS}"


def test_shipped_sampled_reward_is_in_its_band() -> None:
    scores = measure(MODEL, TOKENIZER, RENDERER, TEST[:400], sampling_seed=11)
    low, high = SAMPLED_REWARD_BAND
    assert low <= scores.reward <= high, f"reward {scores.reward} outside [{low}, {high}]"
    expected = 0.1 * (scores.format - 1) + scores.accuracy
    assert scores.reward == pytest.approx(expected, abs=1e-12)


def test_recorded_figures_are_in_their_bands() -> None:
    figures = load_record()["figures"]
    assert {figures[way]["problems"] for way in figures} == {1319}
    check_band(figures)


@pytest.mark.parametrize(("greedy", "reward"), [(0.34, 0.3), (0.66, 0.3), (0.5, 0.19), (0.5, 0.51)])
def test_a_figure_outside_its_band_is_refused(greedy: float, reward: float) -> None:
    figures = {"greedy": {"accuracy": greedy}, "sampled": {"reward": reward}}
    with pytest.raises(ServiceError, match="outside its band"):
        check_band(figures)


def test_greedy_answers_are_the_argmax_of_a_full_forward_pass() -> None:
    prompts = [prompt_tokens(RENDERER, problem.question) for problem in TEST[:6]]
    batched = write_answers(MODEL, TOKENIZER, prompts)
    for prompt, answer in zip(prompts, batched, strict=True):
        ids = list(prompt)
        with torch.no_grad():
            while len(ids) < len(prompt) + MAX_ANSWER_TOKENS and ids[-1] != 2:
                ids.append(int(MODEL(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        assert answer == ids[len(prompt) :]


def test_a_sampling_seed_gives_its_answers_again_and_another_does_not() -> None:
    prompts = [prompt_tokens(RENDERER, problem.question) for problem in TEST[:8]]
    first, again, other = (
        write_answers(MODEL, TOKENIZER, prompts, sampling_seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_two_runs_of_a_seed_give_the_same_weights_and_another_seed_does_not() -> None:
    def digest(seed: int) -> str:
        with one_thread():
            run = WarmStart(replace(TWO_STEPS, seed=seed))
            list(run.run())
        return str({k: v.numpy().tobytes() for k, v in run.average.state_dict().items()})

    first = digest(3)
    assert digest(3) == first
    assert digest(4) != first


def test_missed_targets_are_an_error_that_says_what_was_reached() -> None:
    with one_thread(), pytest.raises(ServiceError, match=r"step 2: equations right 0\.\d+, greedy"):
        list(WarmStart(replace(TWO_STEPS, equation_target=1.0)).run())


def test_greedy_accuracy_outside_its_target_does_not_stop_the_training() -> None:
    with one_thread(), pytest.raises(ServiceError, match=r"step 2: .* greedy 0\.\d+"):
        list(WarmStart(replace(TWO_STEPS, greedy_target=(0.999, 1.0))).run())


def test_first_weights_depend_on_the_recipes_seed_alone() -> None:
    def weights(seed: int, global_seed: int) -> torch.Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(global_seed)
            return new_model(Recipe(seed=seed), TOKENIZER).model.embed_tokens.weight

    first = weights(3, global_seed=1)
    assert torch.equal(first, weights(3, global_seed=2)), "the global generator leaked in"
    assert not torch.equal(first, weights(4, global_seed=1)), "two seeds, one set of weights"


def test_only_answers_and_results_are_learnt() -> None:
    rows = RowMaker(TOKENIZER, RENDERER, style_seed=0, drill_seed=0)
    ids, mask = rows.answered(iter(TEST), 1)[0]
    prompt = prompt_tokens(RENDERER, TEST[0].question)
    assert ids[: len(prompt)] == prompt
    assert mask == [0] * len(prompt) + [1] * (len(ids) - len(prompt))
    assert ids[-1] == 2, "an answer ends with the stop token"
    ids, mask = rows.drills(1)[0]
    learnt = TOKENIZER.decode([i for i, on in zip(ids, mask, strict=True) if on])
    text = str(TOKENIZER.decode(ids[1:]))
    assert learnt == "".join(line.split("=")[1] for line in text.splitlines(keepends=True))


def test_equations_count_as_right_only_with_every_result_token() -> None:
    ids = torch.tensor([[9, 5, 1, 2, 7, 5, 3, 7]])
    mask = torch.tensor([[0, 0, 1, 1, 1, 0, 1, 1]])
    for said, share in (([5, 1, 2, 7, 0, 3, 7], 1.0), ([0, 1, 4, 7, 0, 3, 7], 0.5), ([8] * 7, 0.0)):
        logits = torch.nn.functional.one_hot(torch.tensor([said]), 10).float()
        model: Any = lambda input_ids, logits=logits: SimpleNamespace(logits=logits)  # noqa: E731, ARG005
        assert equations_right(model, ids, mask) == share, f"model said {said}"


def test_record_is_strict_json_with_every_seed() -> None:
    record = parse_json((MODEL_DIR / "recipe.json").read_bytes(), where="recipe.json")
    recipe = Recipe(seed=record["training"]["settings"]["seed"])
    assert record["training"]["seeds"] == recipe.seeds()
    assert record["parameters"] == sum(p.numel() for p in MODEL.parameters())


@pytest.mark.slow
def test_recipe_reaches_the_band_from_scratch_with_another_seed(tmp_path: Path) -> None:
    assert main(["--seed", "1", "--out", str(tmp_path)]) == 0
    figures = measure_figures(tmp_path)
    check_band(figures)
    assert (
        sha256_file(tmp_path / "model.safetensors") != load_record()["sha256"]["model.safetensors"]
    )


@pytest.mark.slow
def test_check_accepts_the_shipped_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0
    assert "greedy:" in capsys.readouterr().out
