"""The built-in losses, token by token, in float64.

Formulas as Tinker's public loss pages state them; every one is summed over tokens and datums,
never averaged, and has no mask: a token is left out by giving it advantage or weight 0.

    importance_sampling   -exp(logp - logq) * A
    ppo                   -min(r * A, clamp(r, low, high) * A),  r = exp(logp - logq)
    cross_entropy         -logp * weight

Legend: `_T` all target tokens of a micro-batch, datums end to end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from harness.local_service.refusals import RefusalError

PPO_DEFAULTS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
"""Bounds of the probability ratio when the request gives none (public PPO page)."""

Inputs = Mapping[str, torch.Tensor]
Config = Mapping[str, float]


@dataclass(frozen=True)
class BuiltinLoss:
    """A loss by its required inputs, its options with defaults, and its formula."""

    inputs: frozenset[str]
    options: Mapping[str, float]
    formula: Callable[[torch.Tensor, Inputs, Config], torch.Tensor]


def importance_sampling(logprobs_T: torch.Tensor, inputs: Inputs, _config: Config) -> torch.Tensor:
    """Importance-weighted policy gradient, unclipped; (T,) -> (T,)."""
    ratio_T = torch.exp(logprobs_T - inputs["logprobs"])
    return -(ratio_T * inputs["advantages"])


def ppo(logprobs_T: torch.Tensor, inputs: Inputs, config: Config) -> torch.Tensor:
    """The clipped surrogate of PPO (arXiv:1707.06347), token by token; (T,) -> (T,)."""
    ratio_T = torch.exp(logprobs_T - inputs["logprobs"])
    low, high = config["clip_low_threshold"], config["clip_high_threshold"]
    clipped_T = torch.clamp(ratio_T, low, high)
    return -torch.minimum(ratio_T * inputs["advantages"], clipped_T * inputs["advantages"])


def cross_entropy(logprobs_T: torch.Tensor, inputs: Inputs, _config: Config) -> torch.Tensor:
    """Weighted negative log-likelihood; (T,) -> (T,). Weights may be negative (custom losses)."""
    return -(logprobs_T * inputs["weights"])


LOSSES: dict[str, BuiltinLoss] = {
    "importance_sampling": BuiltinLoss(
        frozenset({"logprobs", "advantages"}), {}, importance_sampling
    ),
    "ppo": BuiltinLoss(frozenset({"logprobs", "advantages"}), PPO_DEFAULTS, ppo),
    "cross_entropy": BuiltinLoss(frozenset({"weights"}), {}, cross_entropy),
}


def find_loss(name: str) -> BuiltinLoss:
    """Return the named loss.

    Raises:
        RefusalError: if it is not one of LOSSES.
    """
    if name not in LOSSES:
        raise RefusalError(
            "the loss is not offered by the embedded service",
            expected=", ".join(LOSSES),
            found=name or "(empty)",
            where="loss_fn",
            fix="use one of these, or forward_backward_custom",
        )
    return LOSSES[name]


def loss_config(name: str, given: Config) -> dict[str, float]:
    """Return a loss's options with defaults filled in.

    Raises:
        RefusalError: for an unknown option, or thresholds that are not 0 <= low <= high < infinity.
    """
    loss = find_loss(name)
    unknown = sorted(set(given) - set(loss.options))
    if unknown:
        raise RefusalError(
            f"{name} has no such option",
            expected=", ".join(loss.options) or "no loss_fn_config",
            found=", ".join(unknown),
            where="loss_fn_config",
        )
    config = {**loss.options, **given}
    if config and not _ordered(config["clip_low_threshold"], config["clip_high_threshold"]):
        raise RefusalError(
            "the clip thresholds are not an interval of probability ratios",
            expected="0 <= clip_low_threshold <= clip_high_threshold, both finite",
            found=str(config),
            where="loss_fn_config",
        )
    return config


def _ordered(low: float, high: float) -> bool:
    return 0.0 <= low <= high and math.isfinite(high)


def token_losses(
    name: str, logprobs_T: torch.Tensor, inputs: Inputs, config: Config
) -> torch.Tensor:
    """Return every token's loss (T,), float64, differentiable in ``logprobs_T``."""
    return find_loss(name).formula(logprobs_T.double(), inputs, config)
