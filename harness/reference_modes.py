"""The pinned reference by the name of a mode: what gates and ``verify`` compare advantages with.

Shape suffixes: ``_P`` problems (groups) of a batch, ``_PG`` rollouts of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from harness import reference
from harness.advantage_batch import ArmParams
from harness.embedding_similarity import EMBEDDING_SIMILARITY, embedding_cosine
from harness.errors import AdvantageError

Rewards = Sequence[Sequence[float]]
ReferenceMode = Callable[[Sequence[str], Rewards, ArmParams], list[list[float]]]


def reference_advantages(
    mode: str, prompts_P: Sequence[str], rewards_PG: Rewards, params: ArmParams
) -> list[list[float]]:
    """Return the advantages of a batch by the pinned plain-Python formulas.

    Args:
        mode: the advantage mode.
        prompts_P: question text of each group.
        rewards_PG: rewards of each group.
        params: tau and similarity, for the mode that has them.

    Raises:
        AdvantageError: for a mode without a reference, or whatever the reference refuses.
    """
    if mode not in REFERENCE_MODES:
        raise AdvantageError(
            "an advantage mode has no reference to be compared with",
            expected=f"one of {sorted(REFERENCE_MODES)}",
            found=mode,
            fix="add its formula to harness/reference.py and to REFERENCE_MODES, and pin it",
        )
    return REFERENCE_MODES[mode](prompts_P, rewards_PG, params)


def reference_cosines(similarity: str, prompts_P: Sequence[str]) -> list[list[float]]:
    """Return the cosines of prompts in plain Python; of the embedding, the model's own.

    A sentence encoder has no second implementation here: with it the reference proves the weights
    and advantages that follow from its cosines, and the package's pinned version stands for them.
    """
    if similarity == EMBEDDING_SIMILARITY:
        return embedding_cosine(prompts_P).tolist()
    return reference.similarity_cosines(similarity, prompts_P)


def _gs1(prompts_P: Sequence[str], rewards_PG: Rewards, params: ArmParams) -> list[list[float]]:
    if params.tau is None or params.similarity is None:
        raise AdvantageError(
            "gs1 has no reference without tau and similarity",
            expected="both",
            found=f"tau {params.tau}, similarity {params.similarity}",
        )
    rewards = [reward for group in rewards_PG for reward in group]
    cosines = reference_cosines(params.similarity, prompts_P)
    found = reference.gs1_advantages(prompts_P, rewards, params.tau, cosines)
    return [[advantage] for advantage in found]


REFERENCE_MODES: Mapping[str, ReferenceMode] = MappingProxyType(
    {
        "grpo": lambda _prompts, rewards, _params: reference.grpo_advantages(rewards),
        "gs1": _gs1,
        "uniform_loo": lambda _prompts, rewards, _params: reference.uniform_loo_advantages(rewards),
        "rloo": lambda _prompts, rewards, _params: reference.rloo_advantages(rewards),
        "grpo_std": lambda _prompts, rewards, _params: reference.grpo_std_advantages(rewards),
        "reinforce_batch_norm": lambda _prompts, rewards, _params: (
            reference.reinforce_batch_norm_advantages(rewards)
        ),
        "james_stein": lambda _prompts, rewards, _params: reference.james_stein_advantages(rewards),
    }
)
"""The pinned reference of each mode; a mode without one cannot be proven."""
