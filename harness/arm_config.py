"""What the stock loop is configured with for one arm."""

from __future__ import annotations

from pathlib import Path

import chz
from tinker_cookbook.rl import train

from harness.arm_dataset import ArmDataset, ArmDatasetBuilder
from harness.errors import ArmError
from harness.spec_model import Arm, ExperimentSpec

STOCK_ADAM = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
"""What the stock loop hard-codes (tinker-notes §1); a spec that asks for more is refused."""
STATE_TTL_S = 7 * 24 * 3600
"""How long the service keeps a state to go on from; the loop deletes it when the next is saved."""


def training_config(
    spec: ExperimentSpec, arm: Arm, dataset: ArmDataset, log_path: Path, initial_uri: str
) -> train.Config:
    """Return the stock loop's configuration of one arm; arms differ in data set and group size.

    Raises:
        ArmError: when the spec asks for Adam constants the stock loop does not use.
    """
    asked = spec.execution.optimizer.model_dump()
    if {key: asked[key] for key in STOCK_ADAM} != STOCK_ADAM:
        raise ArmError(
            "the stock loop fixes Adam's constants",
            expected=str(STOCK_ADAM),
            found=str(asked),
            where="execution.optimizer",
            fix="write a revised spec with the stock constants",
        )
    return (
        chz.Blueprint(train.Config)
        .apply(
            {
                "learning_rate": arm.lr,
                "dataset_builder": ArmDatasetBuilder(dataset=dataset),
                "recipe_name": "rl_comparison_harness",
                "model_name": spec.base_model,
                "renderer_name": spec.execution.renderer,
                "max_tokens": spec.execution.max_tokens,
                "temperature": spec.execution.temperature,
                "log_path": str(log_path),
                "load_checkpoint_path": initial_uri,
                "lora_rank": spec.lora_rank,
                "loss_fn": spec.execution.loss_fn,
                "num_substeps": 1,
                "remove_constant_reward_groups": False,
                "kl_penalty_coef": 0.0,
                "max_steps": len(dataset),
                "eval_every": 0,
                "save_every": 0,
                "rolling_save_every": spec.execution.checkpoint_every,
                "rolling_ttl_seconds": STATE_TTL_S,
                "num_groups_to_log": 0,
            }
        )
        .make()
    )
