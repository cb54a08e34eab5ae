"""Facts about weights: sampler against trainer, and fresh samplers after each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tinker

from harness.gates.fact import VACUOUS, Fact, Measured
from harness.gates.live_probe import (
    LiveProbe,
    Scored,
    sample_each,
    sampler_logprobs,
    trainer_logprobs,
    update,
)
from harness.gates.not_offered import drawn_logprobs
from harness.sdk_generation import sampling_client

ROWS = 8
UPDATES = 2

LEAST_TOKENS = 100
"""Fewest sampled tokens whose log-probabilities are compared."""

MOST_ROUNDS = 8
"""How often the prompts are sampled, with new seeds, until there are as many: an update on gold
answers leaves a model that answers in a few tokens."""

FRESH_SHARE = 0.25
"""Largest mean distance of a sampler to the weights it should have, as a share of how far the step
moved them. A sampler one step behind has a share of 1; it needs no bound on the service's noise."""

LEAST_MOVE = 0.05
"""Least mean |change| of a log-probability by one probe step, in nats: below it a stale sampler
would look fresh."""


def measure_agreement(probe: LiveProbe) -> Measured:
    """Compare log-probabilities that came with sampled tokens with the trainer's on those tokens.

    Twice: on initial weights and after an update, so that the adapter's path is in it.
    """
    training = probe.new_trainer()
    facts: list[Fact] = []
    notes: dict[str, Any] = {}
    for stage in ("initial weights", "after an update"):
        if facts:
            update(training, probe.gold_rows(0, ROWS), probe.adam())
        sampler = sampling_client(training.save_weights_and_get_sampling_client())
        rows, given = _rollouts(probe, sampler)
        gaps = np.abs(given - trainer_logprobs(training, rows))
        facts += _gap_facts(probe, gaps, stage)
        notes[stage] = {"max": float(gaps.max()), "mean": float(gaps.mean()), "tokens": gaps.size}
    return Measured(tuple(facts), notes)


def _rollouts(probe: LiveProbe, sampler: tinker.SamplingClient) -> tuple[list[Scored], np.ndarray]:
    """Sample as the run does, in rounds, until there are enough tokens.

    Returns:
        the rows, and the log-probabilities that came with all their tokens, in order.
    """
    prompts_P = probe.prompts_P[:ROWS]
    rows: list[Scored] = []
    given: list[float] = []
    for _ in range(MOST_ROUNDS):
        params_P = [probe.params(seed=len(rows) + i) for i in range(len(prompts_P))]
        drawn = [row[0] for row in sample_each(sampler, prompts_P, params_P)]
        rows += zip(prompts_P, [list(one.tokens) for one in drawn], strict=True)
        given += [value for one in drawn for value in drawn_logprobs(one)]
        if len(given) >= LEAST_TOKENS:
            break
    return rows, np.asarray(given, dtype=np.float64)


def _gap_facts(probe: LiveProbe, gaps: np.ndarray, where: str) -> list[Fact]:
    effect = "importance ratios would be off on-policy: the gradient is biased in both arms"
    limits = probe.tolerances
    return [
        Fact("tokens compared", gaps.size, {"at_least": LEAST_TOKENS}, VACUOUS, where),
        Fact(
            "largest |sampler - trainer|, nats",
            float(gaps.max()),
            {"at_most": limits.gap_max},
            effect,
            where,
        ),
        Fact(
            "mean |sampler - trainer|, nats",
            float(gaps.mean()),
            {"at_most": limits.gap_mean},
            effect,
            where,
        ),
    ]


def measure_freshness(probe: LiveProbe) -> Measured:
    """Follow samplers over updates: a new one has the new weights, an old one keeps its own."""
    training, rows = probe.new_trainer(), probe.gold_rows(0, 2 * ROWS)
    old_sampler = sampling_client(training.save_weights_and_get_sampling_client())
    old_weights = trainer_logprobs(training, rows)
    facts: list[Fact] = []
    for step in range(1, UPDATES + 1):
        update(training, rows, probe.adam())
        weights = trainer_logprobs(training, rows)
        sampler = sampling_client(training.save_weights_and_get_sampling_client())
        path = training.save_weights_for_sampler(f"{probe.label}-fresh-{step}").result().path
        named = sampling_client(probe.client.create_sampling_client(model_path=path))
        moved = _mean_distance(weights, old_weights)
        distances = {
            "new sampler": _mean_distance(sampler_logprobs(sampler, rows), weights),
            "new sampler from a saved checkpoint": _mean_distance(
                sampler_logprobs(named, rows), weights
            ),
            "old sampler": _mean_distance(sampler_logprobs(old_sampler, rows), old_weights),
        }
        facts += _fresh_facts(moved, distances, f"step {step}, {len(weights)} tokens")
        old_sampler, old_weights = sampler, weights
    return Measured(tuple(facts), {fact.name + f" ({fact.where})": fact.value for fact in facts})


def _mean_distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).mean())


def _fresh_facts(moved: float, distances: Mapping[str, float], where: str) -> list[Fact]:
    effect = (
        "rollouts, or the evaluation, would come from other weights than those that were trained"
    )
    blind = "a stale sampler would look fresh"
    # Where nothing moved there is no share, and the first fact is missed by itself.
    shares = {name: distance / moved for name, distance in distances.items()} if moved else {}
    facts = [
        Fact(
            "mean move of the trainer's log-probabilities, nats",
            moved,
            {"at_least": LEAST_MOVE},
            blind,
            where,
        )
    ]
    facts += [
        Fact(
            f"{name}: distance to its weights / move",
            share,
            {"at_most": FRESH_SHARE},
            effect,
            where,
        )
        for name, share in shares.items()
    ]
    return facts
