"""Runs the cookbook's GSM8K recipe as it is: no name of it is rebound, only a tokenizer registered.

``python stock_math_loop.py LOG_DIR``, with the working directory holding ``openai/gsm8k/`` and the
environment naming the service.
"""

from __future__ import annotations

import asyncio
import sys
import warnings

import chz
import torch
from tinker_cookbook.recipes.math_rl.math_env import Gsm8kDatasetBuilder
from tinker_cookbook.rl import train
from tinker_cookbook.tokenizer_utils import register_tokenizer

from harness.local_service.tokenizer import load_tokenizer

MODEL = "embedded/gradeschool"
RENDERER = "qwen3_5_disable_thinking"


def main(log_path: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)
    register_tokenizer(MODEL, load_tokenizer)  # pyright: ignore[reportArgumentType] - fast tokenizer
    dataset = Gsm8kDatasetBuilder(
        batch_size=4,
        model_name_for_tokenizer=MODEL,
        renderer_name=RENDERER,
        group_size=4,
        convo_prefix=None,
    )
    config = chz.Blueprint(train.Config).apply(
        {
            "learning_rate": 3e-4,
            "dataset_builder": dataset,
            "model_name": MODEL,
            "recipe_name": "math_rl",
            "renderer_name": RENDERER,
            "lora_rank": 8,
            "max_tokens": 80,
            "log_path": log_path,
            "max_steps": 3,
            "save_every": 2,
            "eval_every": 2,
            "loss_fn": "importance_sampling",
        }
    )
    asyncio.run(train.main(config.make()))


if __name__ == "__main__":
    main(sys.argv[1])
