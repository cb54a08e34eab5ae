"""How many pilot rollouts were cut off by ``max_tokens``, and a word to the person if many were.

A truncated rollout is no error: it is trained on (right but cut off is rewarded with 0.9, tinker-
notes §2), and in the evaluation it is wrong unless its box was complete. Where many are cut, the
comparison is about length as much as about the method.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

HIGH_TRUNCATION = 0.10
"""Share of cut rollouts from which the pilot says so. No gate: the spec fixes max_tokens, and only
a person can revise it."""


def truncation_by_arm(steps: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Return each arm's share of rollouts that ended at max_tokens; steps have one size.

    Args:
        steps: arm → its lines of ``steps.jsonl``.
    """
    return {
        arm: statistics.fmean(float(row["truncation"]) for row in rows)
        for arm, rows in steps.items()
    }


def truncation_warning(by_arm: Mapping[str, float], max_tokens: int) -> str | None:
    """Return what a person should know before the run, or None when few rollouts are cut."""
    high = {arm: share for arm, share in by_arm.items() if share >= HIGH_TRUNCATION}
    if not high:
        return None
    shares = ", ".join(f"{arm} {share:.1%}" for arm, share in high.items())
    return (
        f"many pilot rollouts were cut off at max_tokens {max_tokens}: {shares}"
        f" (said from {HIGH_TRUNCATION:.0%}). Without a complete box they are wrong in the"
        " evaluation; a larger execution.max_tokens is a revised"
        " spec with a recorded deviation"
    )
