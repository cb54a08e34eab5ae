"""Measures how well the embedded model does its task, as the cookbook's environment scores it.

The prompt and the reward are those of ``tinker_cookbook``'s MathEnv without its few-shot pair:
``0.1·(format − 1) + correct``, where format needs the stop token and a box, and correct needs
the last box to equal the gold answer. The bands are those of issue 2, part 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from tinker_cookbook.recipes.math_rl.math_env import MathEnv
from tinker_cookbook.renderers import Renderer
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3ForCausalLM

from harness.local_service.task import Problem
from harness.local_service.tokenizer import END_OF_TURN, PAD_TOKEN, token_id
from harness.local_service.warm_rows import prompt_tokens

MAX_ANSWER_TOKENS = 64
"""More than any worked answer needs; every measured truncation rate was 0."""
GREEDY_BAND = (0.35, 0.65)
SAMPLED_REWARD_BAND = (0.2, 0.5)
_PROMPTS_A_CALL = 330


@dataclass(frozen=True)
class Scores:
    """Means over problems: shares in [0, 1], reward in [-0.1, 1], answer length in tokens."""

    problems: int
    accuracy: float
    format: float
    reward: float
    truncated: float
    answer_tokens: float

    def record(self) -> dict[str, float]:
        """Return the scores as a JSON object."""
        return asdict(self)


def measure(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    renderer: Renderer,
    problems: Sequence[Problem],
    *,
    sampling_seed: int | None = None,
) -> Scores:
    """Score one answer a problem: greedy, or sampled at temperature 1 when a seed is given."""
    prompts = [prompt_tokens(renderer, problem.question) for problem in problems]
    answers = write_answers(model, tokenizer, prompts, sampling_seed=sampling_seed)
    steps = asyncio.run(_grade(renderer, problems, answers))
    end = token_id(tokenizer, END_OF_TURN)
    count = len(problems)
    return Scores(
        problems=count,
        accuracy=sum(correct for _, correct, _ in steps) / count,
        format=sum(well_formed for _, _, well_formed in steps) / count,
        reward=sum(reward for reward, _, _ in steps) / count,
        truncated=sum(answer[-1] != end for answer in answers) / count,
        answer_tokens=sum(map(len, answers)) / count,
    )


def write_answers(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: Sequence[list[int]],
    *,
    sampling_seed: int | None = None,
) -> list[list[int]]:
    """Return each prompt's answer tokens, up to and including the stop token.

    Args:
        model: the embedded model.
        tokenizer: its tokenizer.
        prompts: token ids, of any lengths.
        sampling_seed: seed for temperature 1; None decodes greedily.
    """
    end = token_id(tokenizer, END_OF_TURN)
    pad = token_id(tokenizer, PAD_TOKEN)
    sampling = {} if sampling_seed is None else {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    config = GenerationConfig(
        do_sample=sampling_seed is not None,
        max_new_tokens=MAX_ANSWER_TOKENS,
        eos_token_id=end,
        pad_token_id=pad,
        **sampling,
    )
    answers: list[list[int]] = []
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(sampling_seed or 0)
        for start in range(0, len(prompts), _PROMPTS_A_CALL):
            batch = prompts[start : start + _PROMPTS_A_CALL]
            answers += _generate(model, batch, config, pad=pad, end=end)
    return answers


def _generate(
    model: Qwen3ForCausalLM,
    prompts: Sequence[list[int]],
    config: GenerationConfig,
    *,
    pad: int,
    end: int,
) -> list[list[int]]:
    width = max(map(len, prompts))
    gaps = [width - len(prompt) for prompt in prompts]
    ids = torch.tensor([[pad] * gap + prompt for gap, prompt in zip(gaps, prompts, strict=True)])
    mask = torch.tensor([[0] * gap + [1] * (width - gap) for gap in gaps])
    # The protocol that annotates `generate` asks for attributes no model class declares.
    written = model.generate(  # pyright: ignore[reportAttributeAccessIssue]
        input_ids=ids, attention_mask=mask, generation_config=config
    )
    return [_until(row, end) for row in written[:, width:].tolist()]


def _until(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


async def _grade(
    renderer: Renderer, problems: Sequence[Problem], answers: Sequence[list[int]]
) -> list[tuple[float, float, float]]:
    """Return (reward, correct, format) of each answer from the cookbook's own environment."""
    graded: list[tuple[float, float, float]] = []
    for problem, answer in zip(problems, answers, strict=True):
        result = await MathEnv(problem.question, str(problem.gold), renderer).step(answer)
        graded.append((result.reward, result.metrics["correct"], result.metrics["format"]))
    return graded
