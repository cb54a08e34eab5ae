"""The arm's data set hands the stock loop the cookbook's own environments, in the planned order."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace

import pytest
from small_run import LOCAL_SPEC, TRAIN_ROWS, arm_dataset, problems, small_arm
from tinker_cookbook.recipes.math_rl.math_env import MathEnv
from tinker_cookbook.rl.problem_env import ProblemGroupBuilder

from harness.arm_dataset import (
    ArmDataset,
    ArmDatasetBuilder,
    fewshot_prefix,
    prompt_for,
    prompt_ids_sha256,
    renderer_for,
)
from harness.errors import ArmError


@pytest.fixture
def dataset() -> ArmDataset:
    return arm_dataset(small_arm(groups=2, group_size=3, steps=2))


@pytest.mark.parametrize("shots", ["none", "standard"])
def test_prompts_are_those_of_the_cookbooks_environment(dataset: ArmDataset, shots: str) -> None:
    execution = LOCAL_SPEC.execution.model_copy(update={"fewshot_prefix": shots})
    prefix = fewshot_prefix(LOCAL_SPEC.model_copy(update={"execution": execution}))
    problem = problems(1)[0]
    stock = MathEnv(problem.question, problem.gold, dataset.renderer, convo_prefix=prefix)
    question = stock.get_question()
    messages = [*stock.convo_prefix, {"role": "user", "content": question}]
    expected = dataset.renderer.build_generation_prompt(messages).to_ints()
    assert prompt_for(problem, dataset.renderer, prefix).to_ints() == expected
    assert len(stock.convo_prefix) == (2 if shots == "standard" else 0)


def test_a_batch_is_one_builder_a_problem_in_order(dataset: ArmDataset) -> None:
    for step, batch in enumerate(dataset.batches):
        builders = dataset.get_batch(step)
        assert len(builders) == len(batch) == 2
        for builder, problem in zip(builders, batch, strict=True):
            assert isinstance(builder, ProblemGroupBuilder)
            assert builder.num_envs == 3
            env = builder.env_thunk()
            assert isinstance(env, MathEnv)
            assert (env.problem, env.answer) == (problem.question, problem.gold)
        assert dataset.current_problems_P() == batch


def test_nothing_is_current_before_the_first_batch(dataset: ArmDataset) -> None:
    with pytest.raises(ArmError, match="before any batch"):
        dataset.current_problems_P()


def test_a_row_the_environment_refuses_fails_instead_of_shrinking_the_batch() -> None:
    rows = problems(4)
    rows[1] = replace(rows[1], answer="no final answer")
    broken = arm_dataset(small_arm(groups=2), rows)
    with pytest.raises(ArmError, match=f"{rows[1].item_id}.*step 0"):
        broken.get_batch(0)


async def _built(builder: ArmDatasetBuilder) -> tuple[object, object]:
    return await builder()


def test_the_builder_gives_the_same_object_and_no_test_set(dataset: ArmDataset) -> None:
    train, test = asyncio.run(_built(ArmDatasetBuilder(dataset=dataset)))
    assert train is dataset
    assert test is None, "the stock evaluation is not greedy"


def test_a_copy_for_the_log_is_the_same_data_set(dataset: ArmDataset) -> None:
    """The seam asks the data set the loop advances; a copied one would stay at step None."""
    assert copy.deepcopy({"dataset": dataset})["dataset"] is dataset


def test_the_logged_form_names_size_and_order(dataset: ArmDataset) -> None:
    order = [problem for batch in dataset.batches for problem in batch]
    assert dataset.to_dict() == {
        "steps": 2,
        "group_size": 3,
        "prompts": 4,
        "order_sha256": prompt_ids_sha256(order),
    }


def test_the_digest_of_prompts_depends_on_ids_and_order() -> None:
    some = problems(TRAIN_ROWS)
    assert prompt_ids_sha256(some) == prompt_ids_sha256(list(some))
    assert prompt_ids_sha256(some) != prompt_ids_sha256([some[1], some[0], *some[2:]])
    assert prompt_ids_sha256(some) != prompt_ids_sha256(some[:-1])


def test_the_renderer_is_the_specs(dataset: ArmDataset) -> None:
    text = str(renderer_for(LOCAL_SPEC).tokenizer.decode(dataset.prompt_tokens_T(problems(1)[0])))
    assert text.endswith("<think>\n\n</think>\n\n"), f"thinking is not disabled: {text[-60:]!r}"
