"""One sampling seed a rollout, so that a step draws the same tokens whenever it is taken.

A seed depends on the arm's seed, the step and the rollout's place in the batch, and on nothing that
happened before: a step taken again after an interruption asks for what it asked for the first time,
and on a service that honours seeds it gets the same answers. The loop itself sends no seed
(tinker-notes §1), so the sampling client it is handed adds them.

Shape suffixes: ``_T`` tokens.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

import tinker

from harness.arm_dataset import ArmDataset
from harness.digest import sha256_json
from harness.errors import ArmError

SEED_RULE = "first 31 bits of sha256 of [rollout, arm seed, step, place in the batch]"
"""How seeds are made, as the effective configuration states it."""


def rollout_seed(arm_seed: int, step: int, place: int) -> int:
    """Return the sampling seed of one rollout: 31 bits, which every service's integer holds.

    Args:
        arm_seed: the arm's seed in the spec.
        step: index of the batch.
        place: place of the rollout in the batch, groups one after the other.
    """
    return int(sha256_json(["rollout", arm_seed, step, place])[:8], 16) >> 1


class RolloutSeeds:
    """Hands out the seeds of the batch that the data set gave out last.

    Args:
        arm_seed: the arm's seed in the spec.
        dataset: knows the step and its prompts.
    """

    def __init__(self, arm_seed: int, dataset: ArmDataset) -> None:
        self.arm_seed = arm_seed
        self.dataset = dataset
        self._step: int | None = None
        self._places: dict[tuple[int, ...], deque[int]] = {}

    def take(self, prompt_T: Sequence[int]) -> int:
        """Return the seed of the next rollout of this prompt.

        Rollouts of one prompt are asked for in their order: the loop starts them in order and does
        not wait before it asks.

        Raises:
            ArmError: for a prompt that is not in the batch, or more rollouts of it than planned.
        """
        step = self.dataset.current_step
        if step is None:
            raise ArmError("a rollout was asked for before any batch was handed out")
        if step != self._step:
            self._step, self._places = step, self._planned()
        places = self._places.get(tuple(prompt_T))
        if not places:
            raise ArmError(
                "the loop asks for a rollout that is not planned",
                expected="each prompt of the batch, once for each rollout of its group",
                found="another prompt" if places is None else "one rollout more of a prompt",
                where=f"step {step}",
                fix="run the synchronous loop, without retries of single rollouts",
            )
        return rollout_seed(self.arm_seed, step, places.popleft())

    def _planned(self) -> dict[tuple[int, ...], deque[int]]:
        places: dict[tuple[int, ...], deque[int]] = defaultdict(deque)
        size = self.dataset.group_size
        for group, problem in enumerate(self.dataset.current_problems_P()):
            prompt = tuple(self.dataset.prompt_tokens_T(problem))
            places[prompt].extend(range(group * size, (group + 1) * size))
        return dict(places)


class SeededSampler:
    """The loop's sampling client with a seed added to every request, and nothing else changed.

    Args:
        client: the SDK's client.
        seeds: where seeds come from.
    """

    def __init__(self, client: tinker.SamplingClient, seeds: RolloutSeeds) -> None:
        self.client = client
        self.seeds = seeds

    async def sample_async(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> tinker.SampleResponse:
        """Sample one completion under the rollout's own seed.

        Raises:
            ArmError: for several samples at once, which one seed may not tell apart.
        """
        if num_samples != 1:
            raise ArmError(
                "a rollout is one request of its own",
                expected="num_samples 1",
                found=str(num_samples),
                where=f"step {self.seeds.dataset.current_step}",
            )
        seed = self.seeds.take(prompt.to_ints())
        return await self.client.sample_async(
            prompt=prompt,
            num_samples=1,
            sampling_params=sampling_params.model_copy(update={"seed": seed}),
        )
