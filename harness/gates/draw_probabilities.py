"""Do drawn tokens follow the probabilities that the service states for them?

Two tests at temperature 1, both on the service's own numbers: counts of next tokens at a few
uncertain places against exp(log-probability), and the score test of temperature over every token
of many rollouts, which is the most powerful one against sampling that is too hot or too cold.

Legend: ``_P`` prompts, ``_T`` tokens, ``_N`` samples of one prompt, ``_K`` most likely tokens.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import tinker
from scipy.stats import chi2, norm

from harness.gates.fact import VACUOUS, Fact
from harness.gates.live_probe import LiveProbe, sample_each
from harness.gates.not_offered import drawn_logprobs, lacks

FALSE_ALARM = 1e-5
"""Probability that honest sampling fails one of the two tests, each by its asymptotic tail."""

PREFIXES = 4
DRAWS = 128

LEAST_EXPECTED = 5.0
"""Cells with a smaller expected count are pooled: chi-square is an approximation there."""

SUM_ROUNDING = 0.02
"""Slack of probabilities that must agree or sum to 1, for services that compute in bfloat16."""

TOP = 20
"""Most likely tokens asked for at each place; all others are one cell."""

RESOLUTION = 0.05
"""Largest standard error of 1 / temperature: temperature 1.3 is then 4.6 standard errors away."""

WRONG = "rollouts would not come from the policy whose gradient is taken"


def next_token_facts(probe: LiveProbe, prefixes_P: Sequence[Sequence[int]]) -> list[Fact]:
    """Test counts of next tokens against the probabilities that came with them."""
    tail, freedom = _next_token_test(probe, prefixes_P)
    where = f"{len(prefixes_P)} places, {DRAWS} draws each"
    return [
        Fact("degrees of freedom, next-token test", freedom, {"at_least": 4}, VACUOUS, where),
        Fact(
            "chi-square tail of next tokens against exp(logprobs)",
            tail,
            {"above": FALSE_ALARM},
            WRONG,
            where,
        ),
    ]


def temperature_facts(
    probe: LiveProbe, places: Sequence[tuple[Sequence[int], tinker.SampledSequence]]
) -> list[Fact]:
    """Test the temperature of rollouts drawn at 1.

    Args:
        probe: the service.
        places: (prompt_T, completion) of every rollout; their draws must be independent.
    """
    cells = _cells(probe, places)
    score, information = temperature_score(cells)
    error = 1 / math.sqrt(information) if information > 0 else math.inf
    tail = 2 * float(norm.sf(abs(score) * error)) if information > 0 else 0.0
    estimate = 1 + score * error**2 if information > 0 else math.nan
    where = f"{len(cells)} tokens, 1 / temperature {estimate:.3f} with standard error {error:.3f}"
    return [
        Fact("standard error of 1 / temperature", error, {"at_most": RESOLUTION}, VACUOUS, where),
        Fact("tail of the score test of temperature 1", tail, {"above": FALSE_ALARM}, WRONG, where),
    ]


def _cells(
    probe: LiveProbe, places: Sequence[tuple[Sequence[int], tinker.SampledSequence]]
) -> list[tuple[dict[int, float], int]]:
    """Score every rollout; return its places as (log-probability by token, token drawn)."""
    asked = probe.params(temperature=0.0, max_tokens=1)
    pending = [
        probe.sampler.sample(
            tinker.ModelInput.from_ints([*prompt_T, *one.tokens]),
            1,
            asked,
            include_prompt_logprobs=True,
            topk_prompt_logprobs=TOP,
        )
        for prompt_T, one in places
    ]
    found: list[tuple[dict[int, float], int]] = []
    for future, (prompt_T, one) in zip(pending, places, strict=True):
        tops = (future.result().topk_prompt_logprobs or [])[len(prompt_T) :]
        found += [(dict(top), token) for top, token in zip(tops, one.tokens, strict=False) if top]
    if not found:
        raise lacks("asample", "topk_prompt_logprobs")
    return found


def temperature_score(cells: Sequence[tuple[dict[int, float], int]]) -> tuple[float, float]:
    """Return the score of 1 / temperature at 1, and its information.

    With inverse temperature b, d log p_b(x) / db at b = 1 is log p(x) - E[log p]: its sum has mean
    0 and the variance ``information`` when tokens are drawn at temperature 1.

    Args:
        cells: for each place, log-probabilities of its most likely tokens, and the token drawn;
            what is left of the probability is one more cell, which is treated like a token.
    """
    scores: list[float] = []
    information: list[float] = []
    for logprob_K, token in cells:
        rest = 1.0 - math.fsum(math.exp(value) for value in logprob_K.values())
        values = dict(logprob_K) if rest < 1e-9 else {**logprob_K, -1: math.log(rest)}
        mean = math.fsum(math.exp(value) * value for value in values.values())
        square = math.fsum(math.exp(value) * value**2 for value in values.values())
        scores.append(values.get(token, values.get(-1, -math.inf)) - mean)
        information.append(max(0.0, square - mean**2))
    return math.fsum(scores), math.fsum(information)


def uncertain_prefixes(
    prompts_P: Sequence[Sequence[int]], sequences_P: Sequence[tinker.SampledSequence]
) -> list[list[int]]:
    """Return prompt and completion up to each completion's least likely token, least likely first.

    The draws that are tested later are new ones, so choosing places this way biases nothing.
    """
    found: list[tuple[float, int, list[int]]] = []
    for i, (prompt_T, one) in enumerate(zip(prompts_P, sequences_P, strict=True)):
        logprobs = drawn_logprobs(one) or [0.0]
        place = int(np.argmin(logprobs))
        found.append((logprobs[place], i, [*prompt_T, *list(one.tokens)[:place]]))
    return [prefix_T for _, _, prefix_T in sorted(found)[:PREFIXES]]


def _next_token_test(probe: LiveProbe, prefixes_P: Sequence[Sequence[int]]) -> tuple[float, int]:
    """Return the tail probability and degrees of freedom over all prefixes, at temperature 1."""
    params = [probe.params(temperature=1.0, seed=9000 + i, max_tokens=1) for i in range(PREFIXES)]
    rows = sample_each(probe.sampler, prefixes_P, params, DRAWS)
    found = [pearson([(one.tokens[0], drawn_logprobs(one)[0]) for one in row]) for row in rows]
    freedom = sum(part for _, part in found)
    statistic = math.fsum(value for value, _ in found)
    return float(chi2.sf(statistic, max(1, freedom))), freedom


def pearson(drawn_N: Sequence[tuple[int, float]]) -> tuple[float, int]:
    """Return Pearson's statistic of counts against their own probabilities, and its freedom.

    Args:
        drawn_N: (token, log-probability that came with it) of N independent draws.

    Returns:
        (statistic, cells - 1). Tokens expected less than LEAST_EXPECTED times, those that never
        appeared included, are one cell. The statistic is infinite where the probabilities cannot
        be: not finite, different for one token, or above 1 in sum.
    """
    counts = Counter(token for token, _ in drawn_N)
    seen: dict[int, list[float]] = {}
    for token, logprob in drawn_N:
        seen.setdefault(token, []).append(math.exp(logprob))
    probability = {token: values[0] for token, values in seen.items()}
    spread = max(max(values) - min(values) for values in seen.values())
    total, mass = len(drawn_N), math.fsum(probability.values())
    if not (mass <= 1.0 + SUM_ROUNDING and spread <= SUM_ROUNDING):
        return math.inf, len(probability)
    large = [token for token, p in probability.items() if total * p >= LEAST_EXPECTED]
    cells = [(counts[token], total * probability[token]) for token in large]
    rest = total * max(0.0, 1.0 - math.fsum(probability[token] for token in large))
    others = total - sum(counts[token] for token in large)
    if rest >= 1.0:
        cells.append((others, rest))
    elif others > LEAST_EXPECTED:
        return math.inf, len(cells)
    return math.fsum((n - expected) ** 2 / expected for n, expected in cells), len(cells) - 1
