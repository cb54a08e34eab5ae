"""Seeds depend on arm seed, step and place alone, and only planned rollouts get one."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
import tinker
from small_run import arm_dataset, small_arm

from harness.arm_dataset import ArmDataset
from harness.errors import ArmError
from harness.rollout_seeds import RolloutSeeds, SeededSampler, rollout_seed


def prompts(dataset: ArmDataset) -> list[list[int]]:
    return [dataset.prompt_tokens_T(problem) for problem in dataset.current_problems_P()]


def test_a_seed_is_31_bits_of_a_digest_of_where_the_rollout_is() -> None:
    digest = hashlib.sha256(b'["rollout",7,3,12]').digest()
    assert rollout_seed(7, 3, 12) == int.from_bytes(digest[:4], "big") // 2


def test_no_two_rollouts_of_an_experiment_share_a_seed() -> None:
    seeds = {rollout_seed(0, step, place) for step in range(40) for place in range(64)}
    assert len(seeds) == 40 * 64


def test_rollouts_get_the_seeds_of_their_places_whatever_order_prompts_come_in() -> None:
    dataset = arm_dataset(small_arm("grpo"))
    dataset.get_batch(1)
    seeds = RolloutSeeds(5, dataset)
    first, second = prompts(dataset)
    taken = [seeds.take(prompt) for prompt in (second, first, first, second)]
    assert taken == [rollout_seed(5, 1, place) for place in (2, 0, 1, 3)]


def test_history_plays_no_part() -> None:
    dataset = arm_dataset(small_arm("grpo"))
    seeds = RolloutSeeds(0, dataset)
    dataset.get_batch(0)
    for prompt in prompts(dataset):
        seeds.take(prompt)
    dataset.get_batch(1)
    after_a_step = seeds.take(prompts(dataset)[0])
    assert after_a_step == RolloutSeeds(0, dataset).take(prompts(dataset)[0])


def test_more_rollouts_than_planned_are_refused() -> None:
    dataset = arm_dataset(small_arm("gs1", groups=4, group_size=1))
    seeds = RolloutSeeds(0, dataset)
    with pytest.raises(ArmError, match="before any batch"):
        seeds.take([1])
    dataset.get_batch(0)
    prompt = prompts(dataset)[0]
    seeds.take(prompt)
    with pytest.raises(ArmError, match="one rollout more of a prompt"):
        seeds.take(prompt)
    with pytest.raises(ArmError, match="another prompt"):
        seeds.take([1, 2, 3])


class Sampler:
    """A client that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, int, tinker.SamplingParams]] = []

    async def sample_async(
        self, prompt: Any, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> str:
        self.asked.append((prompt, num_samples, sampling_params))
        return "answer"


def test_the_sampler_changes_the_seed_and_nothing_else() -> None:
    dataset = arm_dataset(small_arm("grpo"))
    dataset.get_batch(0)
    client: Any = Sampler()
    sampler = SeededSampler(client, RolloutSeeds(3, dataset))
    prompt = tinker.ModelInput.from_ints(prompts(dataset)[1])
    asked = tinker.SamplingParams(max_tokens=9, temperature=0.7, stop=[2])
    given: Any = asyncio.run(sampler.sample_async(prompt, 1, asked))
    assert given == "answer"
    ((found_prompt, count, found),) = client.asked
    assert (found_prompt, count) == (prompt, 1)
    assert found == asked.model_copy(update={"seed": rollout_seed(3, 0, 2)})
    assert asked.seed is None, "the loop's own object stays as it was"
    with pytest.raises(ArmError, match="num_samples 1"):
        asyncio.run(sampler.sample_async(prompt, 2, asked))
