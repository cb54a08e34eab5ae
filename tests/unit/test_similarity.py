"""TF-IDF cosines of prompts and the leave-one-out weights they give."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import reference
from harness.errors import AdvantageError
from harness.similarity import (
    SIMILARITIES,
    BatchFitted,
    CorpusFitted,
    FloatArray,
    diagnostic_similarities,
    folded_text,
    gs1_weights,
    tfidf_cosine,
    uniform_loo_weights,
)

MATH = settings(
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow],
)
# Few words, so that batches share some; tokenless prompts and stop words are drawn on purpose.
WORDS = ["cat", "dog", "the", "of", "and", "Été", "naïve", "x1", "10", "a", "?", "b c", "CAT"]
PROMPTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), min_size=1)
TAUS = st.floats(-2.5, 3.0).map(lambda exponent: 10.0**exponent)
SQUARES = st.integers(2, 8).flatmap(
    lambda p: st.lists(
        st.lists(st.integers(0, 8).map(lambda k: k / 8), min_size=p, max_size=p),
        min_size=p,
        max_size=p,
    )
)


def assert_close(name: str, found: object, wanted: object, tolerance: float) -> None:
    gap = float(np.max(np.abs(np.asarray(found) - np.asarray(wanted)), initial=0.0))
    assert gap <= tolerance, f"{name}: {found} against {wanted}, gap {gap} > {tolerance}"


def plain_tf_cosine(left: str, right: str) -> float:
    one, two = Counter(left.split()), Counter(right.split())
    dot = sum(one[word] * two[word] for word in one)
    return dot / math.sqrt(sum(k * k for k in one.values()) * sum(k * k for k in two.values()))


def test_cosines_of_a_hand_worked_batch() -> None:
    # df: cat 2, dog 2, bird 1 of n = 3, so idf is 1.287682, 1.287682, 1.693147; the third vector
    # has length 2.127175, its "dog" entry is 0.605349, and 0.605349 / sqrt(2) = 0.428046.
    wanted = [[1.0, 0.707107, 0.428046], [0.707107, 1.0, 0.0], [0.428046, 0.0, 1.0]]
    assert_close("cosines", tfidf_cosine(["cat dog", "cat", "dog bird"]), wanted, 1e-6)


def test_cosines_equal_the_plain_python_reference() -> None:
    reached: Counter[str] = Counter()

    @given(PROMPTS)
    @MATH
    def check(prompts: list[str]) -> None:
        tokenless = [not vector for vector in reference.tfidf_vectors(prompts)]
        reached["a tokenless prompt among others"] += any(tokenless) and not all(tokenless)
        reached["no token at all"] += all(tokenless)
        reached["a repeated prompt"] += len(set(prompts)) < len(prompts)
        found = tfidf_cosine(prompts)
        assert_close("cosines", found, reference.cosines(prompts), 1e-12)
        assert found.max() <= 1.0, f"a cosine of {found.max()!r} is above 1"

    check()
    assert min(reached.values()) >= 5, f"classes hardly reached: {dict(reached)}"
    assert len(reached) == 3


@given(PROMPTS, st.randoms(use_true_random=False))
@MATH
def test_reordering_prompts_only_reorders_cosines(prompts: list[str], random: Random) -> None:
    order = list(range(len(prompts)))
    random.shuffle(order)
    moved = tfidf_cosine([prompts[i] for i in order])
    assert_close("reordered", moved, tfidf_cosine(prompts)[np.ix_(order, order)], 1e-12)


@pytest.mark.parametrize("prompts", [["", "?"], ["a", "b c", " "]], ids=["empty", "one letter"])
def test_a_batch_without_tokens_has_cosines_of_zero(prompts: list[str]) -> None:
    assert_close("cosines", tfidf_cosine(prompts), np.zeros((len(prompts), len(prompts))), 0.0)


def test_a_tokenless_prompt_is_like_nothing_and_stop_words_count() -> None:
    cosines = tfidf_cosine(["", "of the and", "and of the"])
    assert_close("tokenless row", cosines[0], [0.0, 0.0, 0.0], 0.0)
    assert_close("stop words", cosines[1:, 1:], np.ones((2, 2)), 1e-15)


def test_registry_names_the_spec_s_similarity() -> None:
    assert SIMILARITIES["tfidf_prompt_cosine"] is tfidf_cosine


@pytest.mark.parametrize("texts", ["one string", ["fine", None], [b"bytes"]], ids=repr)
def test_anything_but_strings_is_refused(texts: Sequence[str]) -> None:
    with pytest.raises(AdvantageError, match="sequence of question texts"):
        tfidf_cosine(texts)


def test_another_refusal_of_the_vectoriser_is_not_taken_for_an_empty_batch() -> None:
    with pytest.raises(ValueError, match="capturing group"):
        BatchFitted(token_pattern="(a)(b)")(["ab", "ab"])


def test_diagnostic_vectorisers_do_what_their_names_say() -> None:
    prompts = ["cat cat dog", "cat bird", "dog fish fish"]
    table = diagnostic_similarities([*prompts, "cat", "cat", "cat"])
    raw = [[plain_tf_cosine(left, right) for right in prompts] for left in prompts]
    assert_close("raw tf", table["tf_prompt_cosine"](prompts), raw, 1e-12)
    # min_df 2 keeps cat and dog, equally frequent: vectors (2, 1), (1, 0), (0, 1) up to scale.
    kept = [[1.0, 2 / math.sqrt(5), 1 / math.sqrt(5)], [2 / math.sqrt(5), 1, 0]]
    assert_close("min_df=2", table["tfidf min_df=2, batch fit"](prompts)[:2], kept, 1e-12)
    # Over six texts cat has df 5 and bird 1: the shared word weighs less than in the batch.
    idf_cat, idf_bird = math.log(7 / 6) + 1, math.log(7 / 2) + 1
    idf_dog = math.log(7 / 3) + 1
    first = 2 * idf_cat / math.hypot(2 * idf_cat, idf_dog)
    wanted = first * idf_cat / math.hypot(idf_cat, idf_bird)
    assert_close("train fit", table["tfidf, train fit"](prompts)[0, 1], wanted, 1e-12)
    assert next(iter(table.values())) is tfidf_cosine


def test_min_df_that_drops_every_word_gives_zeros() -> None:
    assert_close("cosines", BatchFitted(min_df=2)(["cat", "dog"]), np.zeros((2, 2)), 0.0)


def test_corpus_fit_ignores_unseen_words() -> None:
    assert_close("cosines", CorpusFitted(["cat"])(["cat dog", "dog"])[0], [1.0, 0.0], 1e-15)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("How  many\tapples?", " how many\u00a0apples? ", True),
        ("ＡＢＣ 1", "abc 1", True),
        ("Straße", "STRASSE", True),
        ("How many apples?", "How many apple?", False),
        ("3 apples", "8 apples", False),
    ],
)
def test_folded_text_joins_only_equal_prompts(left: str, right: str, same: bool) -> None:
    assert (folded_text(left) == folded_text(right)) is same, f"{left!r} and {right!r}"


@given(PROMPTS.filter(lambda prompts: len(prompts) > 1), TAUS)
@MATH
def test_weights_are_a_leave_one_out_distribution(prompts: list[str], tau: float) -> None:
    weights = gs1_weights(tfidf_cosine(prompts), tau)
    assert (np.diag(weights) == 0).all(), f"diagonal {np.diag(weights)} is not exactly 0"
    assert (weights >= 0).all(), f"least weight {weights.min()} < 0"
    assert_close("row sums", weights.sum(axis=1), 1.0, 1e-14)
    assert_close("weights", weights, reference.gs1_weights(reference.cosines(prompts), tau), 1e-12)


@given(SQUARES)
@MATH
def test_a_large_tau_gives_the_uniform_mean(rows: list[list[float]]) -> None:
    wanted = np.full((len(rows), len(rows)), 1 / (len(rows) - 1)) * (1 - np.eye(len(rows)))
    assert_close("uniform", uniform_loo_weights(len(rows)), wanted, 0.0)
    assert_close("tau 1e12", gs1_weights(np.array(rows), 1e12), wanted, 1e-11)


@pytest.mark.parametrize("tau", [5e-324, 1e-300, 1e-6])
def test_a_small_tau_gives_the_nearest_prompts(tau: float) -> None:
    reached: Counter[str] = Counter()

    @given(SQUARES)
    @MATH
    def check(rows: list[list[float]]) -> None:
        weights, plain = gs1_weights(np.array(rows), tau), reference.gs1_weights(rows, tau)
        for i, row in enumerate(rows):
            best = max(value for j, value in enumerate(row) if j != i)
            nearest = [j for j, value in enumerate(row) if value == best and j != i]
            reached["a tie"] += len(nearest) > 1
            reached["self is the largest"] += row[i] > best
            wanted = [1 / len(nearest) if j in nearest else 0.0 for j in range(len(row))]
            assert_close(f"row {i}", weights[i], wanted, 1e-15)
            assert_close(f"row {i} of the reference", plain[i], wanted, 1e-15)

    check()
    assert min(reached["a tie"], reached["self is the largest"]) >= 20, dict(reached)


@pytest.mark.parametrize("tau", [5e-324, 1e-300, 1e-17, 1.0, 1e300, 1.7976931348623157e308])
def test_no_tau_and_no_similarity_overflows(tau: float) -> None:
    extreme = np.array([[0.0, 1e308, -1e308], [1.0, 0.0, 0.5], [-1e-300, 0.0, 5.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = gs1_weights(extreme, tau)
    assert np.isfinite(weights).all(), f"tau {tau}: {weights}"
    assert_close("row sums", weights.sum(axis=1), 1.0, 1e-15)


@pytest.mark.parametrize("tau", [0.0, -0.1, math.inf, math.nan, None])
def test_an_undefined_tau_is_refused(tau: float | None) -> None:
    with pytest.raises(AdvantageError, match="finite tau above 0"):
        gs1_weights(np.eye(2), tau)


@pytest.mark.parametrize(
    "matrix",
    [np.ones((1, 1)), np.ones((0, 0)), np.ones((2, 3)), np.ones(4), np.full((2, 2), np.nan)],
    ids=["one prompt", "none", "not square", "vector", "NaN"],
)
def test_an_unusable_matrix_is_refused(matrix: FloatArray) -> None:
    with pytest.raises(AdvantageError, match=r"square matrix|another prompt"):
        gs1_weights(matrix, 0.1)


def test_uniform_weights_need_two_prompts() -> None:
    with pytest.raises(AdvantageError, match="at least 2 prompts"):
        uniform_loo_weights(1)
