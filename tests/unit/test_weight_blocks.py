"""Weights in blocks of rows are the weights of one matrix, and take less memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

import harness.advantages
import harness.similarity
from harness.advantages import ArmParams, RolloutBatch, compute
from harness.errors import AdvantageError
from harness.similarity import SIMILARITIES, FloatArray, Similarity, gs1_weights, weight_blocks

PLAIN = [name for name in SIMILARITIES if name != "embedding_prompt_cosine"]


def questions(count: int) -> list[str]:
    """Return texts that share words in many ways; the last has no token at all."""
    words = ["apples", "red", "green", "buys", "sells", "box", "price", "half", "twice", "left"]
    texts = [f"{words[i % 7]} {words[i % 10]} {words[i // 10 % 9]} n{i}" for i in range(count - 1)]
    return [*texts, "?"]


def joined(similarity: Similarity, texts: Sequence[str], tau: float) -> FloatArray:
    weights_PP = np.full((len(texts), len(texts)), np.nan)
    for rows, weights_BP in weight_blocks(similarity, texts, tau):
        weights_PP[rows] = weights_BP
    return weights_PP


def without_vectors(texts: Sequence[str]) -> FloatArray:
    sizes = np.array([float(len(text)) for text in texts])
    return np.minimum.outer(sizes, sizes) / np.maximum.outer(sizes, sizes)


# 2 and 64 fill less than a block and exactly one, 65 and 130 leave a rest of 1 and 2 rows.
@pytest.mark.parametrize("count", [2, 64, 65, 130])
@pytest.mark.parametrize("name", [*PLAIN, "without vectors"])
def test_blocks_joined_are_the_whole_matrix(count: int, name: str) -> None:
    similarity = SIMILARITIES.get(name, without_vectors)
    texts = questions(count)
    for tau in (0.05, 0.2, 1e-300):
        wanted = gs1_weights(similarity(texts), tau)
        found = joined(similarity, texts, tau)
        worst = np.abs(found - wanted).max()
        assert worst <= 1e-12, f"weights differ by {worst} at tau {tau}, allowed 1e-12"
        assert (np.diag(found) == 0).all(), f"own weights {np.diag(found).max()}, expected 0"


@pytest.mark.parametrize("name", PLAIN)
def test_advantages_in_blocks_equal_those_at_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 130
    rewards = [[float(i * 7919 % 11) / 10.0] for i in range(count)]
    batch = RolloutBatch.of(rewards, questions(count))
    params = ArmParams(group_size=1, groups_per_batch=count, tau=0.2, similarity=name)
    at_once = np.concatenate(compute("gs1", batch, params))
    monkeypatch.setattr(harness.advantages, "MOST_PROMPTS_AT_ONCE", count - 1)
    in_blocks = np.concatenate(compute("gs1", batch, params))
    worst = np.abs(in_blocks - at_once).max()
    assert worst <= 1e-12, f"advantages differ by {worst}, allowed 1e-12"


def test_blocks_hold_no_whole_matrix() -> None:
    count = 2048
    rewards = [[float(i % 3)] for i in range(count)]
    batch = RolloutBatch.of(rewards, questions(count))
    params = ArmParams(1, count, tau=0.2, similarity="tfidf_prompt_cosine")
    tracemalloc.start()
    compute("gs1", batch, params)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    one_matrix = count * count * 8
    assert peak < one_matrix / 2, (
        f"peak {peak} bytes, allowed half of one matrix, {one_matrix // 2}"
    )


@pytest.mark.parametrize("count", [0, 1])
def test_a_batch_of_fewer_than_two_is_refused(count: int) -> None:
    with pytest.raises(AdvantageError, match="at least 2 prompts"):
        list(weight_blocks(SIMILARITIES["tfidf_prompt_cosine"], questions(3)[:count], 0.2))


def test_a_similarity_that_is_not_finite_is_refused() -> None:
    def broken(texts: Sequence[str]) -> FloatArray:
        return np.full((len(texts), len(texts)), np.nan)

    with pytest.raises(AdvantageError, match="finite square matrix"):
        list(weight_blocks(broken, questions(3), 0.2))
