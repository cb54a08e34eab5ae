"""Token rows for the warm start: answered problems, and bare arithmetic drills.

Shapes: `_D` rows of a batch, `_T` tokens of the longest row. A row is token ids with a mask of
the same length; a masked-in token (1) is one the model learns to write. Of a problem that is
the answer; of a drill, the result of each equation and the newline after it, since nothing
could predict its operands.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import torch
from tinker_cookbook.renderers import Renderer, get_renderer
from transformers import PreTrainedTokenizerFast

from harness.local_service.styles import draw_answer
from harness.local_service.task import Problem, draw_problem
from harness.local_service.tokenizer import (
    END_OF_TURN,
    PAD_TOKEN,
    QUESTION_SUFFIX,
    RENDERER,
    token_id,
)

EQUATIONS_A_DRILL = 7

TokenRow = tuple[list[int], list[int]]
"""Token ids and mask, of one length."""


def task_renderer(tokenizer: PreTrainedTokenizerFast) -> Renderer:
    """Return the cookbook renderer of the embedded model's prompts."""
    # The cookbook's annotation names the slow tokenizer class; it takes either kind.
    return get_renderer(RENDERER, tokenizer=tokenizer)  # pyright: ignore[reportArgumentType]


def prompt_tokens(renderer: Renderer, question: str) -> list[int]:
    """Return the prompt the cookbook's MathEnv makes of a question without a few-shot pair."""
    content = question + QUESTION_SUFFIX
    return renderer.build_generation_prompt([{"role": "user", "content": content}]).to_ints()


class RowMaker:
    """Turns problems and seeded draws into token rows.

    Args:
        tokenizer: the embedded tokenizer.
        renderer: the cookbook renderer built on it.
        style_seed: seed of the answers' styles.
        drill_seed: seed of the drills' equations.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        renderer: Renderer,
        *,
        style_seed: int,
        drill_seed: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._renderer = renderer
        self._styles = random.Random(style_seed)
        self._drills = random.Random(drill_seed)
        self._pad = token_id(tokenizer, PAD_TOKEN)
        self._end = token_id(tokenizer, END_OF_TURN)

    def answered(self, problems: Iterator[Problem], count: int) -> list[TokenRow]:
        """Return ``count`` rows of prompt and answer from the next problems."""
        return [self._answered(next(problems)) for _ in range(count)]

    def drills(self, count: int) -> list[TokenRow]:
        """Return ``count`` rows of bare equations."""
        return [self._drill() for _ in range(count)]

    def batch(self, rows: Sequence[TokenRow]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and mask, each int64 of shape (_D, _T), padded on the right."""
        width = max(len(ids) for ids, _ in rows)
        ids = [row + [self._pad] * (width - len(row)) for row, _ in rows]
        masks = [mask + [0] * (width - len(mask)) for _, mask in rows]
        return torch.tensor(ids), torch.tensor(masks)

    def _answered(self, problem: Problem) -> TokenRow:
        prompt = prompt_tokens(self._renderer, problem.question)
        answer = [*self._tokenizer.encode(draw_answer(self._styles, problem)), self._end]
        return prompt + answer, [0] * len(prompt) + [1] * len(answer)

    def _drill(self) -> TokenRow:
        equations: list[str] = []
        while len(equations) < EQUATIONS_A_DRILL:
            equations += [step.equation for step in draw_problem(self._drills).steps]
        self._drills.shuffle(equations)
        text = "\n".join(equations[:EQUATIONS_A_DRILL]) + "\n"
        ids = [self._pad, *self._tokenizer.encode(text)]
        return ids, self._result_mask(ids)

    def _result_mask(self, ids: list[int]) -> list[int]:
        equals, newline = (token_id(self._tokenizer, text) for text in "=\n")
        mask: list[int] = []
        inside = 0
        for token in ids:
            mask.append(inside)
            inside = 0 if token == newline else 1 if token == equals else inside
        return mask
