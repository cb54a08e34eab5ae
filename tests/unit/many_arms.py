"""A small spec of three arms and two seeds, by data alone."""

from __future__ import annotations

import copy
from typing import Any

from small_run import GS1, small_spec_json

RLOO = "rloo_small"
SEEDS = (0, 3)


def three_arms_two_seeds() -> dict[str, Any]:
    """Return the small spec with a third arm in mode rloo, two seeds and a second criterion."""
    raw = small_spec_json()
    third = copy.deepcopy(raw["arms"][0])
    third |= {"name": RLOO, "advantage_mode": "rloo"}
    raw["arms"].append(third)
    group = raw["restoration_preflight"]["groups"][0]["arms"]
    group.append(copy.deepcopy(group[0]) | {"name": RLOO})
    rule = raw["decision_rule"]
    rule["seeds"] = list(SEEDS)
    rule["criteria"].append(
        copy.deepcopy(rule["criteria"][0]) | {"id": "far_better", "margin": 0.9}
    )
    assert rule["arms"]["treatment"] == GS1
    return raw
