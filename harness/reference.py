"""The pinned reference: advantages and loss of every mode in plain Python, from the formulas.

A spec names this file by its git blob id, so it is self-contained: no numpy, no scikit-learn, and
from the package only the error class, which affects no number. It is slow and meant to be read.
Every sum is ``math.fsum``, the correctly rounded sum of its float64 terms, so the order of
prompts, tokens and datums cannot change a result.

Sources: contract §12 (advantages, TF-IDF of the prompt text), contract §4 (pinned reference), the
papers named in ``harness.advantage_modes``, MurmurHash3 (Appleby, public domain) for the hashed
similarity, the public definition of the importance_sampling loss: ``-(exp(logp - q) * A)`` summed
over tokens and datums, whose gradient in ``logp`` is ``-exp(logp - q) * A``.
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


def gs1_advantages(
    prompts: Sequence[str],
    rewards: Sequence[float],
    tau: float,
    similarity: Sequence[Sequence[float]] | None = None,
) -> list[float]:
    """Return ``r_i - sum_{j != i} w_ij r_j`` with ``w_ij = softmax_{j != i}(cos_ij / tau)``.

    Args:
        prompts: question texts.
        rewards: one reward each.
        tau: temperature.
        similarity: cosines of the prompts; None for those of TF-IDF.

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
    weights = gs1_weights(cosines(prompts) if similarity is None else similarity, tau)
    return [
        math.fsum([reward, *(-w * r for w, r in zip(row, rewards, strict=True))])
        for reward, row in zip(rewards, weights, strict=True)
    ]


def uniform_loo_advantages(rewards: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return ``r_i`` minus the mean of all other rewards of the batch."""
    flat = _flat(rewards)
    total = math.fsum(flat)
    return [[r - (total - r) / (len(flat) - 1) for r in group] for group in rewards]


def rloo_advantages(rewards: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return ``r`` minus the mean of the other rewards of its group."""
    return [
        [r - other for r, other in zip(group, _means_of_others(group), strict=True)]
        for group in rewards
    ]


def grpo_std_advantages(rewards: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return ``(r - mean) / population deviation`` inside each group; zeros where all are equal."""
    return [_standardised(group) for group in rewards]


def reinforce_batch_norm_advantages(rewards: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return ``(r - mean) / population deviation`` over the batch; zeros where all are equal."""
    values = iter(_standardised(_flat(rewards)))
    return [[next(values) for _ in group] for group in rewards]


def james_stein_advantages(rewards: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return ``r - (1 - L) * mean of the group's others - L * mean of the other groups' means``.

    ``L = v / (v + s)``, 0 where both are 0, with v the mean over the other groups of the estimated
    variance of their mean and s the mean squared distance of their means from their mean. Both are
    written with differences of pairs, which are exactly 0 where all are equal.
    """
    found: list[list[float]] = []
    for p, group in enumerate(rewards):
        others = [other for k, other in enumerate(rewards) if k != p]
        means = [math.fsum(other) / len(other) for other in others]
        v = math.fsum(_pair_squares(o) / (len(o) ** 2 * (len(o) - 1)) for o in others) / len(others)
        s = _pair_squares(means) / len(means) ** 2
        shrink = v / (v + s) if v + s > 0 else 0.0
        centre = math.fsum(means) / len(means)
        found.append(
            [
                r - (1 - shrink) * other - shrink * centre
                for r, other in zip(group, _means_of_others(group), strict=True)
            ]
        )
    return found


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
    return _pair_cosines(vectors)


def tfidf_vectors(prompts: Sequence[str]) -> list[dict[str, float]]:
    """Return one sparse unit vector per prompt; a prompt without tokens has the empty vector.

    Tokens are runs of two or more word characters of the lower-cased text, their weight is
    ``count * (ln((1 + n) / (1 + df)) + 1)`` with n prompts, df of which contain the token.
    """
    return _weighted([Counter(_TOKEN.findall(prompt.lower())) for prompt in prompts])


def similarity_cosines(name: str, prompts: Sequence[str]) -> list[list[float]]:
    """Return the cosine of every pair of prompts under a similarity of that name.

    Raises:
        AdvantageError: for a similarity that has no plain-Python form.
    """
    if name not in VECTORS:
        raise AdvantageError(
            "the similarity has no plain-Python reference",
            expected=" or ".join(sorted(VECTORS)),
            found=repr(name),
            where="arms[].similarity",
            fix="name one of these, or hand over its cosines",
        )
    vectors = VECTORS[name](prompts)
    return _pair_cosines(vectors)


def tf_vectors(prompts: Sequence[str]) -> list[dict[str, float]]:
    """Return unit vectors of plain counts of the tokens of :func:`tfidf_vectors`."""
    return [_unit(dict(Counter(_TOKEN.findall(prompt.lower())))) for prompt in prompts]


def char_tfidf_vectors(prompts: Sequence[str]) -> list[dict[str, float]]:
    """Return TF-IDF vectors of the 3- to 5-character runs inside each space-padded word."""
    return _weighted([Counter(_runs(prompt.lower())) for prompt in prompts])


def hashed_tf_vectors(prompts: Sequence[str]) -> list[dict[str, float]]:
    """Return unit vectors of token counts in 4096 columns: MurmurHash3 modulo the columns."""
    counts: list[dict[str, float]] = []
    for prompt in prompts:
        columns = Counter(str(_column(token, 4096)) for token in _TOKEN.findall(prompt.lower()))
        counts.append(_unit(dict(columns)))
    return counts


def _runs(text: str) -> list[str]:
    found: list[str] = []
    for word in text.split():
        padded = f" {word} "
        for length in (3, 4, 5):
            found.append(padded[:length])
            found += [padded[at : at + length] for at in range(1, len(padded) - length + 1)]
            if len(padded) <= length:
                break
    return found


def _column(token: str, columns: int) -> int:
    signed = _murmur3(token.encode())
    return abs(signed - (1 << 32) if signed >= 1 << 31 else signed) % columns


def _murmur3(data: bytes) -> int:
    """Return the unsigned 32-bit MurmurHash3 of ``data`` with seed 0."""

    def turned(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (32 - bits))) & 0xFFFFFFFF

    mixed = 0
    for at in range(0, len(data), 4):
        block = data[at : at + 4]
        k = int.from_bytes(block, "little") * 0xCC9E2D51 & 0xFFFFFFFF
        mixed ^= turned(k, 15) * 0x1B873593 & 0xFFFFFFFF
        if len(block) == 4:
            mixed = (turned(mixed, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    mixed ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ (mixed >> shift)) * factor & 0xFFFFFFFF
    return mixed


VECTORS = {
    "tfidf_prompt_cosine": tfidf_vectors,
    "tf_prompt_cosine": tf_vectors,
    "char_tfidf_prompt_cosine": char_tfidf_vectors,
    "hashed_tf_prompt_cosine": hashed_tf_vectors,
}
"""Vectors of every similarity that has a plain-Python form."""


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


def _weighted(counts: Sequence[Counter[str]]) -> list[dict[str, float]]:
    frequency = Counter(token for count in counts for token in count)
    n = len(counts)
    idf = {token: math.log((1 + n) / (1 + df)) + 1 for token, df in frequency.items()}
    return [_unit({token: k * idf[token] for token, k in count.items()}) for count in counts]


def _standardised(rewards: Sequence[float]) -> list[float]:
    _require_finite(rewards, "a reward")
    if min(rewards) == max(rewards):
        return [0.0] * len(rewards)
    mean = math.fsum(rewards) / len(rewards)
    deviation = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / len(rewards))
    return [(r - mean) / deviation for r in rewards]


def _means_of_others(group: Sequence[float]) -> list[float]:
    _require_finite(group, "a reward")
    values = list(group)
    return [
        math.fsum(values[:at] + values[at + 1 :]) / (len(values) - 1) for at in range(len(values))
    ]


def _pair_squares(values: Sequence[float]) -> float:
    """Return the sum over pairs of squared differences: n times the sum of squared deviations."""
    return math.fsum((a - b) ** 2 for at, a in enumerate(values) for b in values[:at])


def _flat(groups: Sequence[Sequence[float]]) -> list[float]:
    flat = [reward for group in groups for reward in group]
    _require_finite(flat, "a reward")
    return flat


def _unit(vector: dict[str, float]) -> dict[str, float]:
    length = math.sqrt(math.fsum(value * value for value in vector.values()))
    return {token: value / length for token, value in vector.items()}


def _pair_cosines(vectors: Sequence[dict[str, float]]) -> list[list[float]]:
    """Return the dot product of every pair; it is the same from both sides, so taken once."""
    size = len(vectors)
    below = [[_dot(left, right) for right in vectors[: at + 1]] for at, left in enumerate(vectors)]
    return [[*below[i], *(below[j][i] for j in range(i + 1, size))] for i in range(size)]


def _dot(left: dict[str, float], right: dict[str, float]) -> float:
    return math.fsum([left[token] * right[token] for token in left.keys() & right.keys()])
