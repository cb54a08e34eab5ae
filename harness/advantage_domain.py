"""Which batches each advantage mode is defined for: one table for the spec's rules and the modes.

A mode outside its domain would not crash: a group of one has deviation 0 and trains on zeros. So a
spec is refused for it before anything runs, and the mode itself refuses again.

Pure data: importing this brings neither numpy nor scikit-learn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Domain:
    """What a mode needs of an arm's batch.

    Attributes:
        least_group_size: fewest rollouts of one prompt.
        least_groups: fewest prompts of a step.
        least_rollouts: fewest rollouts of a step.
        most_group_size: most rollouts of one prompt; None for any number.
        weighs_prompts: it needs a tau and a similarity.
        because: why fewer would be undefined, in words.
    """

    least_group_size: int = 1
    least_groups: int = 1
    least_rollouts: int = 1
    most_group_size: int | None = None
    weighs_prompts: bool = False
    because: str = ""


DOMAINS: Mapping[str, Domain] = MappingProxyType(
    {
        "grpo": Domain(
            least_group_size=2,
            because="a reward minus its own mean is always 0",
        ),
        "gs1": Domain(
            least_groups=2,
            most_group_size=1,
            weighs_prompts=True,
            because="mode gs1 is one rollout a prompt, and the baseline leaves one out",
        ),
        "uniform_loo": Domain(
            least_rollouts=2,
            because="the mean of the others needs another rollout in the batch",
        ),
        "rloo": Domain(
            least_group_size=2,
            because="the mean of the others needs another rollout of the prompt",
        ),
        "grpo_std": Domain(
            least_group_size=2,
            because="one rollout has no deviation from its own mean",
        ),
        "reinforce_batch_norm": Domain(
            least_rollouts=2,
            because="one rollout has no deviation from its own mean",
        ),
        "james_stein": Domain(
            least_group_size=2,
            least_groups=3,
            because="the spread of the other prompts' means needs two of them, and the variance"
            " inside a prompt needs two rollouts",
        ),
    }
)
"""The domain of every mode that ``harness.advantages.MODES`` registers."""


@dataclass(frozen=True, slots=True)
class Outside:
    """One way in which a batch's shape is outside a mode's domain."""

    field: str
    found: int
    allowed: str


def outside(mode: str, group_size: int, groups: int | None) -> Iterator[Outside]:
    """Yield what is wrong with a shape; nothing for a mode that is not in the table.

    Args:
        mode: the advantage mode.
        group_size: rollouts of one prompt.
        groups: prompts of a step, or None where no step is planned.
    """
    domain = DOMAINS.get(mode)
    if domain is None:
        return
    least, most = domain.least_group_size, domain.most_group_size
    if group_size < least:
        yield Outside("group_size", group_size, f"{least} or more: {domain.because}")
    if most is not None and group_size > most:
        yield Outside("group_size", group_size, f"{most}: {domain.because}")
    if groups is None:
        return
    if groups < domain.least_groups:
        yield Outside(
            "groups_per_batch", groups, f"{domain.least_groups} or more: {domain.because}"
        )
    rollouts = group_size * groups
    if rollouts < domain.least_rollouts:
        what = f"{domain.least_rollouts} rollouts a step or more: {domain.because}"
        yield Outside("group_size × groups_per_batch", rollouts, what)
