"""The prompts of one arm, as the cookbook's loop asks for them.

A subclass of the cookbook's own GSM8K data set, fed from :mod:`harness.problems` instead of the
hub; environment, reward and rendering stay the cookbook's. It remembers the batch it handed out
last, so that the advantage seam can check that the rollouts it is given belong to it.

Shape suffixes: ``_P`` problems of a batch, ``_G`` rollouts of a group, ``_T`` tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import chz
import tinker
from tinker_cookbook import renderers
from tinker_cookbook.recipes.math_rl.math_env import Gsm8kDataset, MathEnv
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder
from tinker_cookbook.tokenizer_utils import get_tokenizer

from harness.errors import ArmError
from harness.problems import Problem
from harness.spec_model import ExperimentSpec


def renderer_for(spec: ExperimentSpec) -> renderers.Renderer:
    """Return the renderer that both training and evaluation use."""
    tokenizer = get_tokenizer(spec.base_model)
    return renderers.get_renderer(spec.execution.renderer, tokenizer=tokenizer)


def fewshot_prefix(spec: ExperimentSpec) -> list[renderers.Message] | None:
    """Return the cookbook's few-shot pair, or None where the spec leaves it out."""
    if spec.execution.fewshot_prefix == "none":
        return None
    return MathEnv.standard_fewshot_prefix()


def prompt_for(
    problem: Problem,
    renderer: renderers.Renderer,
    prefix: list[renderers.Message] | None,
) -> tinker.ModelInput:
    """Render one question exactly as the cookbook's environment does."""
    question = problem.question + MathEnv.question_suffix()
    messages = [*(prefix or []), renderers.Message(role="user", content=question)]
    return renderer.build_generation_prompt(messages)


class ArmDataset(Gsm8kDataset):
    """Hands out one batch of groups a step.

    Args:
        batches: the problems of each step, in order.
        group_size: rollouts a problem.
        renderer: turns messages into tokens.
        prefix: few-shot messages before the question, or None.
    """

    def __init__(
        self,
        batches: Sequence[Sequence[Problem]],
        group_size: int,
        renderer: renderers.Renderer,
        prefix: list[renderers.Message] | None,
    ) -> None:
        # The parent's own constructor would load from the hub.
        self.batches = batches
        self.group_size = group_size
        self.renderer = renderer
        self.convo_prefix = prefix
        self.current_step: int | None = None

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        """Return the group builders of step ``index``, one for each problem, in order.

        Raises:
            ArmError: when the environment cannot be built for a row; nothing is dropped silently.
        """
        self.current_step = index
        builders: list[EnvGroupBuilder] = []
        for problem in self.batches[index]:
            row = {"question": problem.question, "answer": problem.answer}
            builder = self._make_env_group_builder(row, self.group_size)
            if builder is None:
                raise ArmError(
                    "the cookbook's environment refuses a training row",
                    expected="a row with a final answer",
                    found=problem.item_id,
                    where=f"step {index}",
                    fix="correct the data set",
                )
            builders.append(builder)
        return builders

    def __len__(self) -> int:
        return len(self.batches)

    def __deepcopy__(self, memo: dict[int, object]) -> ArmDataset:
        """Return itself: the cookbook copies its whole configuration only to log it."""
        return self

    def to_dict(self) -> dict[str, object]:
        """Return what the cookbook's config.json keeps of this data set."""
        order_P = [problem for batch_P in self.batches for problem in batch_P]
        return {
            "steps": len(self.batches),
            "group_size": self.group_size,
            "prompts": len(order_P),
            "order_sha256": prompt_ids_sha256(order_P),
        }

    def current_problems_P(self) -> Sequence[Problem]:  # noqa: N802 - shape suffix
        """Return the problems of the batch handed out last.

        Raises:
            ArmError: before the first batch.
        """
        if self.current_step is None:
            raise ArmError("rollouts arrived before any batch was handed out")
        return self.batches[self.current_step]

    def prompt_tokens_T(self, problem: Problem) -> list[int]:  # noqa: N802 - shape suffix
        """Return the rendered prompt of one problem as token ids."""
        return prompt_for(problem, self.renderer, self.convo_prefix).to_ints()


def prompt_ids_sha256(problems_P: Sequence[Problem]) -> str:
    """Digest of the item ids of a batch, in order: equal digests mean equal prompts."""
    return hashlib.sha256("\n".join(problem.item_id for problem in problems_P).encode()).hexdigest()


@chz.chz
class ArmDatasetBuilder(RLDatasetBuilder):
    """Gives the loop a data set that was built, and can be inspected, outside of it."""

    dataset: RLDataset

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        """Return the train set and no test set: evaluation is the harness's own, and greedy."""
        return self.dataset, None
