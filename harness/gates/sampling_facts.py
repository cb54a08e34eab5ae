"""Facts about drawing tokens: greedy, seeded, unseeded, by the stated probabilities, and stopping.

Every completion is drawn the way the run draws its rollouts (same prompts, stop tokens,
temperature), but for what a fact is about. Bounds are those of the probe's kind of service.

Legend: ``_P`` prompts, ``_T`` tokens, ``_N`` samples of one prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import tinker

from harness.gates.draw_probabilities import (
    FALSE_ALARM,
    next_token_facts,
    temperature_facts,
    uncertain_prefixes,
)
from harness.gates.fact import VACUOUS, Fact, Measured
from harness.gates.live_probe import LiveProbe, sample_each
from harness.gates.not_offered import drawn_logprobs, lacks

GREEDY_PROMPTS = 16
GREEDY_REPEATS = 8
LOAD_REQUESTS = 64
"""As many requests as a step of the run has rollouts."""

TIE = 1e-3
"""Nats. A greedy token this close below the largest log-probability counts as the largest: the
two were computed in different batches. Embedded ties are broken by the same float64 numbers."""

GROUP = 8
CLONE_MARGIN = 0.25
"""How far the share of identical pairs may exceed the probability of drawing one completion twice,
estimated from the completions' own log-probabilities: above four standard deviations here."""

LIKELY_LIMIT = 0.5
"""Above that, honest rollouts would repeat so often that clones could hide among them."""


def measure_greedy(probe: LiveProbe) -> Measured:
    """Check that temperature 0 is the argmax, and repeats: alone, in one request, under load."""
    prompts_P = probe.prompts_P[:GREEDY_PROMPTS]
    greedy = probe.params(temperature=0.0)
    alone = [sample_each(probe.sampler, [prompt], [greedy])[0][0] for prompt in prompts_P]
    together = sample_each(probe.sampler, prompts_P[:1], [greedy], GREEDY_REPEATS)[0]
    loaded = LOAD_REQUESTS // len(prompts_P)
    crowd = sample_each(probe.sampler, prompts_P * loaded, [greedy] * (loaded * len(prompts_P)))
    pairs = [(alone[0], one) for one in together]
    load_pairs = [(alone[i % len(prompts_P)], one[0]) for i, one in enumerate(crowd)]
    below, positions = _below_argmax(probe, prompts_P, alone)
    effect = "greedy accuracy would be that of a noisy decoder, and differ from run to run"
    flips = {"at_most": probe.tolerances.flip_rate}
    return Measured(
        (
            Fact("distinct greedy completions", _distinct(alone), {"at_least": 4}, VACUOUS),
            Fact("completions repeated under load", len(load_pairs), {"at_least": 48}, VACUOUS),
            Fact("flip rate, samples of one request", _flip_rate(pairs), flips, effect),
            Fact(
                f"flip rate, {len(crowd)} requests at once", _flip_rate(load_pairs), flips, effect
            ),
            Fact("greedy tokens scored", positions, {"at_least": 100}, VACUOUS),
            Fact(
                f"share of greedy tokens more than {TIE} nats below the argmax",
                below,
                flips,
                effect,
            ),
        ),
        {"flip_rate_load": _flip_rate(load_pairs), "completions": len(pairs) + len(load_pairs)},
    )


def _distinct(sequences: Sequence[tinker.SampledSequence]) -> int:
    return len({tuple(sequence.tokens) for sequence in sequences})


def _flip_rate(pairs: Sequence[tuple[tinker.SampledSequence, tinker.SampledSequence]]) -> float:
    return sum(list(a.tokens) != list(b.tokens) for a, b in pairs) / len(pairs)


def _below_argmax(
    probe: LiveProbe,
    prompts_P: Sequence[Sequence[int]],
    sequences: Sequence[tinker.SampledSequence],
) -> tuple[float, int]:
    """Return the share of tokens below the service's own argmax, and how many were scored."""
    asked = probe.params(temperature=0.0, max_tokens=1)
    pending = [
        probe.sampler.sample(
            tinker.ModelInput.from_ints([*prompt_T, *sequence.tokens]),
            1,
            asked,
            include_prompt_logprobs=True,
            topk_prompt_logprobs=1,
        )
        for prompt_T, sequence in zip(prompts_P, sequences, strict=True)
    ]
    gaps: list[float] = []
    for future, sequence in zip(pending, sequences, strict=True):
        response, size = future.result(), len(sequence.tokens)
        scores = (response.prompt_logprobs or [])[-size:]
        tops = (response.topk_prompt_logprobs or [])[-size:]
        if len(scores) != size or len(tops) != size:
            raise lacks("asample", "prompt_logprobs and topk_prompt_logprobs of every token")
        gaps += [
            top[0][1] - score
            for score, top in zip(scores, tops, strict=True)
            if score is not None and top
        ]
    return (sum(gap > TIE for gap in gaps) / len(gaps) if gaps else 1.0), len(gaps)


def measure_seeds(probe: LiveProbe) -> Measured:
    """Check that seeds repeat, and that rollouts of one prompt are draws, not clones."""
    prompts_P = probe.prompts_P[:GROUP]
    seeded = [probe.params(temperature=1.0, seed=1000 + i) for i in range(GROUP)]
    first, second = (sample_each(probe.sampler, prompts_P, seeded) for _ in range(2))
    repeats = [(a[0], b[0]) for a, b in zip(first, second, strict=True)]
    by_seed = [probe.params(temperature=1.0, seed=i) for i in range(GROUP)]
    unseeded = [probe.params(temperature=1.0)] * GROUP
    groups = {
        "seeds 0…7 of one prompt": _each_alone(probe, prompts_P, by_seed),
        "samples of one seeded request": sample_each(probe.sampler, prompts_P, seeded, GROUP),
        "unseeded requests for one prompt": _each_alone(probe, prompts_P, unseeded),
    }
    likely = _repeat_probability([one for group in groups.values() for row in group for one in row])
    clones = "a group's rollouts would be copies: advantages 0, or one rollout counted many times"
    facts = [
        Fact(
            "flip rate, same seed twice",
            _flip_rate(repeats),
            {"at_most": probe.tolerances.flip_rate},
            "a recorded seed would not reproduce a rollout",
        ),
        Fact(
            "mean probability of drawing one completion twice",
            likely,
            {"below": LIKELY_LIMIT},
            VACUOUS,
        ),
    ]
    facts += [
        Fact(
            f"share of identical pairs, {name}",
            _clone_share(group),
            {"at_most": likely + CLONE_MARGIN},
            clones,
        )
        for name, group in groups.items()
    ]
    drawn = [groups["samples of one seeded request"], groups["unseeded requests for one prompt"]]
    places = [
        (prompt_T, one)
        for group in drawn
        for prompt_T, row in zip(prompts_P, group, strict=True)
        for one in row
    ]
    facts += next_token_facts(probe, uncertain_prefixes(prompts_P, [row[0] for row in first]))
    facts += temperature_facts(probe, places)
    return Measured(tuple(facts), {"false_alarm_rate": FALSE_ALARM})


def _each_alone(
    probe: LiveProbe,
    prompts_P: Sequence[Sequence[int]],
    params_N: Sequence[tinker.SamplingParams],
) -> list[list[tinker.SampledSequence]]:
    """Sample as the stock loop does: every rollout a request of its own, all at once."""
    repeated = [prompt_T for prompt_T in prompts_P for _ in params_N]
    rows = sample_each(probe.sampler, repeated, list(params_N) * len(prompts_P))
    size = len(params_N)
    return [[row[0] for row in rows[i : i + size]] for i in range(0, len(rows), size)]


def _clone_share(groups: Sequence[Sequence[tinker.SampledSequence]]) -> float:
    pairs = [pair for group in groups for pair in combinations(group, 2)]
    return 1.0 - _flip_rate(pairs)


def _repeat_probability(sequences: Sequence[tinker.SampledSequence]) -> float:
    """Estimate Σ p(x)² as the mean of p(x) over completions drawn from p."""
    return float(np.mean([math.exp(math.fsum(drawn_logprobs(one))) for one in sequences]))
