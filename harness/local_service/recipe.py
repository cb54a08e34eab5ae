"""The settings of the warm start, and the untrained model and optimizers they describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from harness.local_service.muon import Muon
from harness.local_service.tokenizer import CONTEXT_TOKENS, END_OF_TURN, PAD_TOKEN, token_id


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the model's bytes, but the machine and the library versions."""

    seed: int = 0
    width: int = 64
    layers: int = 2
    heads: int = 4
    mlp_width: int = 192
    muon_lr: float = 1e-2
    adamw_lr: float = 3e-3
    answered_rows: int = 24
    drill_rows: int = 48
    average_decay: float = 0.98
    check_every_steps: int = 50
    max_steps: int = 2000
    held_out_problems: int = 400
    held_out_drills: int = 150
    equation_target: float = 0.95
    greedy_target: tuple[float, float] = (0.44, 0.58)

    def seeds(self) -> dict[str, int]:
        """Return the seed of each source of randomness."""
        names = ("weights", "problems", "styles", "drills", "held_out_drills")
        return {name: 1000 * (self.seed + 1) + place for place, name in enumerate(names)}


def new_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """Return the untrained float32 model, its weights drawn from the recipe's seed."""
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": recipe.width,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": recipe.heads,
        "head_dim": recipe.width // recipe.heads,
        "intermediate_size": recipe.mlp_width,
        "max_position_embeddings": CONTEXT_TOKENS,
        "tie_word_embeddings": True,
        "eos_token_id": token_id(tokenizer, END_OF_TURN),
        "pad_token_id": token_id(tokenizer, PAD_TOKEN),
        "bos_token_id": None,
        "dtype": "float32",
    }
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seeds()["weights"])
        return Qwen3ForCausalLM(Qwen3Config(**settings))


def new_optimizers(model: Qwen3ForCausalLM, recipe: Recipe) -> tuple[Muon, torch.optim.AdamW]:
    """Return Muon for the layers' matrices and AdamW for the embedding and the norms."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    adamw = torch.optim.AdamW(rest, lr=recipe.adamw_lr, betas=(0.9, 0.95), weight_decay=0.0)
    return Muon(matrices, lr=recipe.muon_lr), adamw
