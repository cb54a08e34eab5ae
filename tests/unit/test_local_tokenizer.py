"""The embedded tokenizer: lossless, one token a word or digit, and fit for Qwen's renderer."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinker_cookbook.recipes.math_rl.math_env import MathEnv
from transformers import AutoTokenizer

from harness.errors import DocumentError
from harness.local_service.task import generate_problems
from harness.local_service.tokenizer import (
    CONTEXT_TOKENS,
    MODEL_DIR,
    SPECIAL_TOKENS,
    build_tokenizer,
    load_tokenizer,
    task_texts,
    token_id,
)
from harness.local_service.warm_rows import prompt_tokens, task_renderer

TOKENIZER = load_tokenizer()
RENDERER = task_renderer(TOKENIZER)
TEST = generate_problems("test", 0)

_fragments = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *SPECIAL_TOKENS,
            " \\boxed{",
            "\\boxed",
            "Anna",
            " apples",
            " 12",
            "\n\n",
            "  ",
            " .",
            " ?",
            " 's",
        ]
    ),
)


@settings(derandomize=True, deadline=None, max_examples=400)
@given(st.lists(_fragments, max_size=8))
def test_decoding_gives_back_any_text(fragments: list[str]) -> None:
    text = "".join(fragments)
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(min_value=0, max_value=10**12))
def test_a_number_is_one_token_a_digit(number: int) -> None:
    tokens = TOKENIZER.convert_ids_to_tokens(TOKENIZER.encode(str(number)))
    assert tokens == list(str(number))


def test_no_word_of_the_task_is_spelled_in_bytes() -> None:
    piece = re.compile(r" ?\\boxed\{|\n+| ?[A-Za-z]+|\d| ?[^\sA-Za-z\d]|\s")
    for problem in TEST:
        row = problem.row()
        for text in (row["question"], row["answer"].rsplit("\n", 1)[0]):
            ids = TOKENIZER.encode(text)
            assert [TOKENIZER.decode([i]) for i in ids] == piece.findall(text), text


def test_turn_tokens_are_single_and_special() -> None:
    ids = [token_id(TOKENIZER, token) for token in SPECIAL_TOKENS]
    assert ids == [0, 1, 2, 3, 4], f"ids of {SPECIAL_TOKENS}"
    assert set(ids) <= set(TOKENIZER.all_special_ids)
    assert TOKENIZER.decode([*ids, *TOKENIZER.encode("Anna")], skip_special_tokens=True) == "Anna"


def test_a_text_of_two_tokens_has_no_token_id() -> None:
    with pytest.raises(DocumentError, match="2 for '12'"):
        token_id(TOKENIZER, "12")


def test_prompt_is_qwens_turn_without_thinking() -> None:
    text = TOKENIZER.decode(prompt_tokens(RENDERER, "Anna has 12 apples."))
    assert text == (
        "<|im_start|>user\nAnna has 12 apples. Write your answer in \\boxed{} format.<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


def test_prompt_is_the_cookbook_environments_own() -> None:
    for problem in TEST[:50]:
        env = MathEnv(problem.question, str(problem.gold), RENDERER)
        observation, _ = asyncio.run(env.initial_observation())
        assert prompt_tokens(RENDERER, problem.question) == observation.to_ints()


def test_prompts_are_short() -> None:
    lengths = [len(prompt_tokens(RENDERER, problem.question)) for problem in TEST]
    mean = sum(lengths) / len(lengths)
    assert mean < 55, f"mean prompt of {mean:.1f} tokens, allowed 55"
    assert max(lengths) < 64, f"longest prompt of {max(lengths)} tokens, allowed 63"


def test_renderer_stops_at_the_end_of_turn_and_reads_the_answer_back() -> None:
    assert RENDERER.get_stop_sequences() == [token_id(TOKENIZER, "<|im_end|>")]
    answer = "3*4=12\nThe answer is \\boxed{12}."
    message, termination = RENDERER.parse_response(TOKENIZER.encode(answer + "<|im_end|>"))
    assert (message["content"], termination.is_stop_sequence) == (answer, True)
    _, cut_short = RENDERER.parse_response(TOKENIZER.encode(answer))
    assert not cut_short.is_stop_sequence


def test_the_order_of_the_texts_does_not_matter() -> None:
    texts = task_texts()
    assert build_tokenizer(reversed(texts)).get_vocab() == build_tokenizer(texts).get_vocab()


def test_the_shipped_file_is_the_built_tokenizer() -> None:
    built = build_tokenizer(task_texts())
    assert built.get_vocab() == TOKENIZER.get_vocab()
    assert built.backend_tokenizer.to_str() == TOKENIZER.backend_tokenizer.to_str()


def test_transformers_loads_the_shipped_folder_by_itself() -> None:
    loaded = AutoTokenizer.from_pretrained(MODEL_DIR)
    text = TEST[0].question + "<|im_end|> ünïcode"
    assert loaded.encode(text) == TOKENIZER.encode(text)
    assert (loaded.eos_token, loaded.model_max_length) == ("<|im_end|>", CONTEXT_TOKENS)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"tokenizer\.json.*make local-model"):
        load_tokenizer(tmp_path)
