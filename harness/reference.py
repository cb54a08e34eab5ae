"""The pinned reference: advantages and loss of the two arms in plain Python, from the formulas.

A spec names this file by its git blob id, so it is self-contained: no numpy, no scikit-learn, and
from the package only the error class, which affects no number. It is slow and meant to be read.
Every sum is ``math.fsum``, the correctly rounded sum of its float64 terms, so the order of
prompts, tokens and datums cannot change a result.

Sources: contract §12 (advantages, TF-IDF of the prompt text), contract §4 (pinned reference), the
public definition of the importance_sampling loss: ``-(exp(logp - q) * A)`` summed over tokens and
datums, whose gradient in ``logp`` is ``-exp(logp - q) * A``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import AdvantageError

_TOKEN = re.compile(r"(?u)\b\w\w+\b")


def grpo_advantages(rewards: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return ``r - mean(r)`` inside each group; groups may differ in size.

    Raises:
        AdvantageError: for an empty group or a reward that is not finite.
    """
    return [_centred(group) for group in rewards]


def gs1_advantages(prompts: Sequence[str], rewards: Sequence[float], tau: float) -> list[float]:
    """Return ``r_i - sum_{j != i} w_ij r_j`` with ``w_ij = softmax_{j != i}(cos_ij / tau)``.

    Raises:
        AdvantageError: for fewer than two prompts, another number of rewards, a reward that is not
            finite, or a tau that is not finite and above 0.
    """
    _require_finite(rewards, "a reward")
    if len(prompts) != len(rewards):
        raise AdvantageError(
            "there must be one reward for each prompt",
            expected=f"{len(prompts)} rewards",
            found=f"{len(rewards)}",
        )
    weights = gs1_weights(cosines(prompts), tau)
    return [
        math.fsum([reward, *(-w * r for w, r in zip(row, rewards, strict=True))])
        for reward, row in zip(rewards, weights, strict=True)
    ]


def gs1_weights(similarity: Sequence[Sequence[float]], tau: float) -> list[list[float]]:
    """Return the softmax of each row over the other prompts, with 0 for the prompt itself.

    Raises:
        AdvantageError: for fewer than two prompts, or a tau that is not finite and above 0.
    """
    if len(similarity) < 2 or not math.isfinite(tau) or tau <= 0:
        raise AdvantageError(
            "the leave-one-out softmax is undefined",
            expected="at least 2 prompts and a finite tau above 0",
            found=f"{len(similarity)} prompts, tau {tau!r}",
        )
    return [_softmax_of_others(i, row, tau) for i, row in enumerate(similarity)]


def cosines(prompts: Sequence[str]) -> list[list[float]]:
    """Return the cosine of every pair of TF-IDF vectors, fitted on these prompts alone."""
    vectors = tfidf_vectors(prompts)
    return [[_dot(left, right) for right in vectors] for left in vectors]


def tfidf_vectors(prompts: Sequence[str]) -> list[dict[str, float]]:
    """Return one sparse unit vector per prompt; a prompt without tokens has the empty vector.

    Tokens are runs of two or more word characters of the lower-cased text, their weight is
    ``count * (ln((1 + n) / (1 + df)) + 1)`` with n prompts, df of which contain the token.
    """
    counts = [Counter(_TOKEN.findall(prompt.lower())) for prompt in prompts]
    frequency = Counter(token for count in counts for token in count)
    n = len(prompts)
    idf = {token: math.log((1 + n) / (1 + df)) + 1 for token, df in frequency.items()}
    return [_unit({token: k * idf[token] for token, k in count.items()}) for count in counts]


@dataclass(frozen=True)
class ReferenceDatum:
    """One rollout as the loss sees it: sequences of equal length, one entry per target token.

    Attributes:
        logprobs: of the weights being trained.
        sampling_logprobs: of the weights that sampled the rollout.
        advantages: of the token; 0 on prompt tokens.
        mask: 1 on action tokens, 0 elsewhere. The wire has no mask: it relies on advantage 0.
    """

    logprobs: Sequence[float]
    sampling_logprobs: Sequence[float]
    advantages: Sequence[float]
    mask: Sequence[float]


def importance_sampling_loss(datums: Sequence[ReferenceDatum]) -> float:
    """Return ``-sum exp(logp - q) A`` over the action tokens of all datums: a sum, never a mean."""
    return math.fsum(term for datum in datums for term in token_gradients(datum))


def token_gradients(datum: ReferenceDatum) -> list[float]:
    """Return d loss / d logp of each token: ``-exp(logp - q) A``, and 0 where the mask is 0.

    Each entry is also that token's term of the loss, because exp is its own derivative.

    Raises:
        AdvantageError: for a number that is not finite.
        ValueError: for sequences of unequal length.
    """
    columns = (datum.logprobs, datum.sampling_logprobs, datum.advantages, datum.mask)
    for values in columns:
        _require_finite(values, "a number of a datum")
    return [
        -math.exp(logp - q) * advantage if keep else 0.0
        for logp, q, advantage, keep in zip(*columns, strict=True)
    ]


def _centred(group: Sequence[float]) -> list[float]:
    _require_finite(group, "a reward")
    if not group:
        raise AdvantageError("a group has no mean", expected="at least 1 reward", found="none")
    mean = math.fsum(group) / len(group)
    return [reward - mean for reward in group]


def _require_finite(values: Sequence[float], what: str) -> None:
    for index, value in enumerate(values):
        if not math.isfinite(value):
            raise AdvantageError(
                f"{what} is not finite",
                expected="a finite number",
                found=repr(value),
                where=f"position {index}",
            )


def _softmax_of_others(i: int, row: Sequence[float], tau: float) -> list[float]:
    largest = max(value for j, value in enumerate(row) if j != i)
    powers = [0.0 if j == i else math.exp((s - largest) / tau) for j, s in enumerate(row)]
    total = math.fsum(powers)
    return [power / total for power in powers]


def _unit(vector: dict[str, float]) -> dict[str, float]:
    length = math.sqrt(math.fsum(value * value for value in vector.values()))
    return {token: value / length for token, value in vector.items()}


def _dot(left: dict[str, float], right: dict[str, float]) -> float:
    return math.fsum(value * right.get(token, 0.0) for token, value in left.items())
