"""Identities of advantages, and which of them each mode's definition implies.

Every registered mode declares its set in :data:`OBEYS`, and one suite measures them all; a mode
without a declared set cannot be proven. An identity returns its largest absolute violation over one
batch. That the sets are complete, i.e. that a mode breaks every identity it does not declare, is a
test of its own: an identity that nothing can break would prove nothing.

Shape suffixes: ``_P`` problems (groups) of a batch, ``_G`` rollouts of a group, ``_PG`` both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from harness import advantages
from harness.advantage_batch import ArmParams, RolloutBatch
from harness.errors import GateError
from harness.reference_modes import reference_advantages
from harness.similarity import FloatArray


@dataclass(frozen=True, eq=False)
class Case:
    """One mode on one batch of equal groups.

    Attributes:
        mode: an advantage mode.
        params: what the mode depends on beside the batch.
        prompts_P: question texts.
        rewards_PG: rewards, shape (P, G).
    """

    mode: str
    params: ArmParams
    prompts_P: Sequence[str]  # noqa: N815 - shape suffix
    rewards_PG: FloatArray  # noqa: N815

    def advantages(
        self, rewards_PG: FloatArray, prompts_P: Sequence[str] | None = None
    ) -> FloatArray:
        """Return the mode's advantages, shape (P, G), for other rewards or another order."""
        texts = self.prompts_P if prompts_P is None else prompts_P
        batch = RolloutBatch.of(rewards_PG.tolist(), texts)
        return np.stack(advantages.compute(self.mode, batch, self.params))

    @property
    def found(self) -> FloatArray:
        """The advantages of the case itself."""
        return self.advantages(self.rewards_PG)


Identity = Callable[[Case], float]


def _largest(values: FloatArray) -> float:
    return float(np.abs(values).max())


def _reference(case: Case) -> float:
    wanted = reference_advantages(case.mode, case.prompts_P, case.rewards_PG.tolist(), case.params)
    return _largest(case.found - np.asarray(wanted))


def _group_order(case: Case) -> float:
    turned = case.advantages(case.rewards_PG[::-1], list(case.prompts_P)[::-1])
    return _largest(turned[::-1] - case.found)


def _rollout_order(case: Case) -> float:
    return _largest(case.advantages(case.rewards_PG[:, ::-1])[:, ::-1] - case.found)


def _shift(case: Case) -> float:
    return _largest(case.advantages(case.rewards_PG + 1.0) - case.found)


def _scale(case: Case) -> float:
    return _largest(case.advantages(2.0 * case.rewards_PG) - 2.0 * case.found)


def _scale_free(case: Case) -> float:
    return _largest(case.advantages(2.0 * case.rewards_PG) - case.found)


def _equal_rewards(case: Case) -> float:
    return _largest(case.advantages(np.full_like(case.rewards_PG, case.rewards_PG[0, 0])))


def _group_sum(case: Case) -> float:
    return _largest(case.found.sum(axis=1))


def _batch_sum(case: Case) -> float:
    return abs(float(case.found.sum()))


def _own_reward(case: Case) -> float:
    """Raise one reward: only its own advantage's reward part may move, by as much."""
    worst = 0.0
    for place in ((0, 0), (case.rewards_PG.shape[0] - 1, case.rewards_PG.shape[1] - 1)):
        raised_PG = case.rewards_PG.copy()
        raised_PG[place] += 0.5
        moved = case.advantages(raised_PG)[place] - case.found[place]
        worst = max(worst, abs(float(moved) - 0.5))
    return worst


def _other_groups(case: Case) -> float:
    """Change the first group: no other group's advantages may move."""
    changed_PG = case.rewards_PG.copy()
    changed_PG[0, 0] += 0.5
    after = case.advantages(changed_PG)[1:]
    return _largest(after - case.found[1:]) if after.size else 0.0


def _group_square(case: Case) -> float:
    """Mean square of each group that is not of equal rewards, against 1."""
    mixed_P = np.ptp(case.rewards_PG, axis=1) > 0
    squares_P = np.square(case.found).mean(axis=1)
    return _largest(squares_P - mixed_P)


def _batch_square(case: Case) -> float:
    return abs(float(np.square(case.found).mean()) - float(np.ptp(case.rewards_PG) > 0))


def _among_others(case: Case) -> float:
    """How far a baseline lies outside the rewards of the batch's other rollouts."""
    rewards, baselines = case.rewards_PG.reshape(-1), (case.rewards_PG - case.found).reshape(-1)
    others = np.where(np.eye(len(rewards), dtype=bool), np.nan, rewards)
    low, high = np.nanmin(others, axis=1), np.nanmax(others, axis=1)
    return float(np.maximum(0.0, np.maximum(low - baselines, baselines - high)).max())


IDENTITIES: Mapping[str, Identity] = MappingProxyType(
    {
        "|advantage - reference|": _reference,
        "|A(groups reversed) - reversed A|": _group_order,
        "|A(rollouts reversed) - reversed A|": _rollout_order,
        "|A(r + 1) - A(r)|": _shift,
        "|A(2r) - 2 A(r)|": _scale,
        "|A(2r) - A(r)|": _scale_free,
        "|A(equal rewards)|": _equal_rewards,
        "|sum over a group|": _group_sum,
        "|sum over the batch|": _batch_sum,
        "own reward in its baseline": _own_reward,
        "other groups in a group's advantages": _other_groups,
        "|mean square of a mixed group - 1|": _group_square,
        "|mean square of a mixed batch - 1|": _batch_square,
        "baseline outside the others' rewards": _among_others,
    }
)
"""Every identity by the name that a gate's measurement carries."""

_ALL = (
    "|advantage - reference|",
    "|A(groups reversed) - reversed A|",
    "|A(rollouts reversed) - reversed A|",
    "|A(r + 1) - A(r)|",
    "|A(equal rewards)|",
)
_LINEAR = (*_ALL, "|A(2r) - 2 A(r)|")
_LEFT_OUT = (*_LINEAR, "own reward in its baseline", "baseline outside the others' rewards")
_IN_GROUP = ("|sum over a group|", "|sum over the batch|", "other groups in a group's advantages")

OBEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "grpo": frozenset((*_LINEAR, *_IN_GROUP)),
        "gs1": frozenset(_LEFT_OUT),
        "uniform_loo": frozenset((*_LEFT_OUT, "|sum over the batch|")),
        "rloo": frozenset((*_LEFT_OUT, *_IN_GROUP)),
        "grpo_std": frozenset(
            (*_ALL, *_IN_GROUP, "|A(2r) - A(r)|", "|mean square of a mixed group - 1|")
        ),
        "reinforce_batch_norm": frozenset(
            (
                *_ALL,
                "|sum over the batch|",
                "|A(2r) - A(r)|",
                "|mean square of a mixed batch - 1|",
            )
        ),
        "james_stein": frozenset(_LEFT_OUT),
    }
)
"""What each mode's definition implies."""


def mode_violations(case: Case) -> dict[str, float]:
    """Return the violation of every identity that the case's mode declares, named with the mode.

    Raises:
        GateError: for a mode that declares no identities.
    """
    if case.mode not in OBEYS:
        raise GateError(
            "an advantage mode declares no identities, so nothing proves it",
            expected=f"one of {sorted(OBEYS)}",
            found=case.mode,
            fix="declare its identities in harness/gates/mode_identities.py",
        )
    return {f"{case.mode} {name}": IDENTITIES[name](case) for name in sorted(OBEYS[case.mode])}
