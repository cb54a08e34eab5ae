"""The arm with the treatment off, which shows that the new path is stock code there (contract §4).

Mode grpo is what the stock loop computes. A spec whose arms all treat has no such arm of its own,
so one of the same batch size is made; it is never trained.
"""

from __future__ import annotations

from harness.errors import GateError
from harness.spec_model import Arm, ExperimentSpec

STOCK_MODE = "grpo"
MOST_ROLLOUTS = 8
"""Largest group of an arm that is made here, where the batch size lets it be chosen."""


def treatment_off_arms(spec: ExperimentSpec) -> list[Arm]:
    """Return the spec's own grpo arms, or one that stands for them.

    Raises:
        GateError: when the batch size admits no group of two.
    """
    own = [arm for arm in spec.arms if arm.advantage_mode == STOCK_MODE]
    if own:
        return own
    if spec.batch_size < 2:
        raise GateError(
            "no arm turns the treatment off, and no group of two fits the batch",
            expected="batch_size 2 or more",
            found=str(spec.batch_size),
        )
    sizes = [size for size in range(2, spec.batch_size + 1) if spec.batch_size % size == 0]
    size = max((size for size in sizes if size <= MOST_ROLLOUTS), default=sizes[0])
    return [
        spec.arms[0].model_copy(
            update={
                "name": "treatment_off",
                "advantage_mode": STOCK_MODE,
                "group_size": size,
                "groups_per_batch": spec.batch_size // size,
                "tau": None,
                "similarity": None,
            }
        )
    ]
