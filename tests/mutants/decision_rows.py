"""Complete rows of a comparison, as tampering finds them, and the guards that judge them."""

from __future__ import annotations

import json
from pathlib import Path

from harness.completeness import Plan
from harness.decision import decide
from harness.decision_rule import Arms, Rule
from harness.digest import sha256_bytes
from harness.errors import HarnessError
from harness.observations import Observation, read_observations

ARMS = Arms("gs1_seed0", "grpo_gs8_seed0")
RULE = Rule.from_spec(
    {
        "version": 1,
        "estimand": "mean accuracy difference",
        "unit": "fixed_checkpoint_items",
        "seeds": [0],
        "alpha": 0.05,
        "method": "paired_hoeffding",
        "criteria": [
            {
                "id": "primary",
                "metric": "accuracy",
                "weights": {"treatment": 1, "baseline": -1},
                "margin": -0.05,
                "bounds": [0, 1],
            }
        ],
    }
)
ITEMS = [f"item-{n}" for n in range(20)]
PLAN = Plan.of(RULE, ARMS, ITEMS, {"accuracy": "e1"})


def stored() -> list[Observation]:
    """Return one row for each arm and item."""
    return [
        Observation(item, arm, 0, "accuracy", float((at + shift) % 3 > 0), "e1")
        for shift, arm in enumerate((ARMS.treatment, ARMS.baseline))
        for at, item in enumerate(ITEMS)
    ]


def decision_alarms(folder: Path) -> list[str]:
    """Return the defects for which the decision refuses to judge the rows."""
    del folder
    try:
        decision = decide(RULE, stored(), PLAN)
    except HarnessError as error:
        return [str(error)]
    return [f"{defect.count} {defect.kind}" for defect in decision.defects]


def edited(text: str) -> str:
    """Return the observations file as it is when it is read."""
    return text


def frozen_rows_alarms(folder: Path) -> list[str]:
    """Freeze the rows in a file and return how reading them back is refused."""
    text = "".join(json.dumps(row._asdict()) + "\n" for row in stored())
    named = {"name": "observations.jsonl", "sha256": sha256_bytes(text.encode())}
    (folder / named["name"]).write_text(edited(text))
    try:
        rows = read_observations({"version": 1, "observations_file": named}, folder)
    except HarnessError as error:
        return [str(error)]
    return [] if list(rows) == stored() else ["other rows were read than were frozen"]
