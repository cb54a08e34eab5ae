"""How alike two prompts are, and the leave-one-out weights that follow (contract §12; issue 2).

Shape suffixes: ``_P`` prompts of a batch, ``_PP`` pairs of them.

The vector of a prompt is what scikit-learn's ``TfidfVectorizer()`` gives with every default: lower
case, tokens of two or more word characters, no stop words, idf ``ln((1 + n) / (1 + df)) + 1``,
length one. It is fitted on the batch's own question texts: no few-shot pair, suffix or template.

Documented rule for prompts without any token ("", "?", "a b"): the vector is zero, so the cosine
with every prompt, itself included, is 0. A batch without any token at all gives a matrix of zeros.
scikit-learn refuses such a batch; an experiment must not stop because of one, and must not guess.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from harness.embedding_similarity import (
    EMBEDDING_SIMILARITY,
    embedding_cosine,
    embedding_installed,
    embedding_parameters,
)
from harness.errors import AdvantageError
from harness.similarity_vectorisers import BatchFitted, CorpusFitted, FloatArray, Hashed

__all__ = [
    "SIMILARITIES",
    "BatchFitted",
    "CorpusFitted",
    "FloatArray",
    "Similarity",
    "diagnostic_similarities",
    "folded_text",
    "gs1_weights",
    "similarity_parameters",
    "tfidf_cosine",
    "uniform_loo_weights",
    "weight_blocks",
]

BLOCK_ROWS = 64
"""Rows of weights in memory at once where a batch is too large for one matrix."""

Similarity = Callable[[Sequence[str]], FloatArray]
"""Question texts (P) to a float64 matrix (P, P); only its off-diagonal entries are used."""


def tfidf_cosine(texts: Sequence[str]) -> FloatArray:
    """Return the (P, P) float64 cosines of the batch's TF-IDF vectors, each in [0, 1].

    Reordering the texts reorders rows and columns and changes nothing beyond rounding, because
    document frequencies and the sorted vocabulary do not depend on the order.

    Raises:
        AdvantageError: for anything but a sequence of strings.
    """
    return BatchFitted()(texts)


SIMILARITIES: Mapping[str, Similarity] = MappingProxyType(
    {
        "tfidf_prompt_cosine": tfidf_cosine,
        "tf_prompt_cosine": BatchFitted(use_idf=False),
        "char_tfidf_prompt_cosine": BatchFitted(analyzer="char_wb", ngram_range=(3, 5)),
        "hashed_tf_prompt_cosine": Hashed(columns=4096),
        EMBEDDING_SIMILARITY: embedding_cosine,
    }
)
"""What a spec's ``similarity`` may name; the last one needs the extra ``embedding``."""


def similarity_parameters(name: str | None) -> dict[str, Any] | None:
    """Return everything a registered similarity depends on, as JSON values; None for none.

    Raises:
        AdvantageError: for a name that is not registered, or a missing extra.
    """
    if name is None:
        return None
    if name == EMBEDDING_SIMILARITY:
        return embedding_parameters()
    found = BatchFitted() if name == "tfidf_prompt_cosine" else SIMILARITIES.get(name)
    if not isinstance(found, BatchFitted | Hashed):
        raise AdvantageError(
            "the similarity is not registered",
            expected=" or ".join(sorted(SIMILARITIES)),
            found=repr(name),
            where="arms[].similarity",
        )
    return found.parameters()


def diagnostic_similarities(corpus: Sequence[str]) -> dict[str, Similarity]:
    """Return the vectorisers that a refused activation gate is compared with, by name.

    They explain a refusal and change nothing. The first entry is the registered default, the others
    are every registered similarity (the embedding where its package is installed) and two more
    fits of TF-IDF that no spec can select.
    """
    table: dict[str, Similarity] = {"tfidf, batch fit (default)": tfidf_cosine}
    for name, similarity in SIMILARITIES.items():
        if similarity is not tfidf_cosine and (
            name != EMBEDDING_SIMILARITY or embedding_installed()
        ):
            table[name] = similarity
    return table | {
        "tfidf, train fit": CorpusFitted(corpus),
        "tfidf min_df=2, batch fit": BatchFitted(min_df=2),
    }


def gs1_weights(similarity_PP: FloatArray, tau: float | None) -> FloatArray:
    """Return the (P, P) leave-one-out weights ``softmax_{j != i}(s_ij / tau)``.

    Zero diagonal, entries >= 0, rows summing to 1. Each row is shifted by its largest off-diagonal
    similarity before the division, so that the exponent is never positive: a tau down to the least
    positive float gives weight 0 to everyone but the nearest, never an overflow.

    Raises:
        AdvantageError: unless the matrix is finite, square and at least 2 by 2, and tau is finite
            and above 0.
    """
    checked_tau = _positive(tau)
    weights_PP = np.array(similarity_PP, dtype=np.float64)
    _check_square(weights_PP)
    _leave_one_out_softmax(weights_PP, 0, checked_tau)
    return weights_PP


def weight_blocks(
    similarity: Similarity, texts_P: Sequence[str], tau: float | None
) -> Iterator[tuple[slice, FloatArray]]:
    """Yield ``gs1_weights(similarity(texts), tau)`` as blocks of rows, first to last.

    Beside the prompts' vectors only one block of ``BLOCK_ROWS`` rows is in memory, so 16 384
    prompts need no matrix of 2 GiB. A similarity that has no vectors is computed whole.

    Yields:
        the rows' place in the batch, and their weights (rows, P).

    Raises:
        AdvantageError: as :func:`gs1_weights`.
    """
    checked_tau = _positive(tau)
    if len(texts_P) < 2:
        raise _too_few(len(texts_P))
    rows_of = _similarity_rows(similarity, texts_P)
    for first in range(0, len(texts_P), BLOCK_ROWS):
        rows = slice(first, min(first + BLOCK_ROWS, len(texts_P)))
        weights_BP = rows_of(rows)
        _leave_one_out_softmax(weights_BP, first, checked_tau)
        yield rows, weights_BP


def _similarity_rows(
    similarity: Similarity, texts_P: Sequence[str]
) -> Callable[[slice], FloatArray]:
    """Return what computes some rows of the similarity matrix, in memory of their own."""
    vectoriser = BatchFitted() if similarity is tfidf_cosine else similarity
    if not isinstance(vectoriser, BatchFitted | Hashed):
        whole_PP = np.array(similarity(texts_P), dtype=np.float64)
        _check_square(whole_PP)
        return lambda rows: whole_PP[rows]
    vectors = vectoriser.vectors(texts_P)
    # Transposed once: scipy would turn it into rows again for every block.
    columns = vectors.T.tocsr()
    return lambda rows: np.clip((vectors[rows] @ columns).toarray(), 0.0, 1.0)


def _leave_one_out_softmax(rows_BP: FloatArray, first: int, tau: float) -> None:
    """Turn rows ``first``… of a similarity matrix into weights, in place."""
    own = np.arange(len(rows_BP))
    rows_BP[own, first + own] = -np.inf
    with np.errstate(over="ignore", under="ignore"):
        rows_BP -= rows_BP.max(axis=1, keepdims=True)
        rows_BP /= tau
        np.exp(rows_BP, out=rows_BP)
    rows_BP /= rows_BP.sum(axis=1, keepdims=True)


def uniform_loo_weights(problems: int) -> FloatArray:
    """Return the (P, P) weights of the plain leave-one-out mean: 0 on the diagonal, else 1/(P-1).

    Raises:
        AdvantageError: for fewer than two problems.
    """
    if problems < 2:
        raise _too_few(problems)
    weights_PP = np.full((problems, problems), 1.0 / (problems - 1))
    np.fill_diagonal(weights_PP, 0.0)
    return weights_PP


def folded_text(text: str) -> str:
    """Return the form under which two prompts count as one: NFKC, casefold, white space folded."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _positive(tau: float | None) -> float:
    if tau is None or not math.isfinite(tau) or tau <= 0:
        raise AdvantageError(
            "the temperature of the similarity weights is undefined",
            expected="a finite tau above 0",
            found=repr(tau),
            where="arms[].tau",
            fix="give the arm a positive tau",
        )
    return float(tau)


def _check_square(similarity_PP: FloatArray) -> None:
    shape = similarity_PP.shape
    if len(shape) != 2 or shape[0] != shape[1] or not np.isfinite(similarity_PP).all():
        raise AdvantageError(
            "similarities do not form a finite square matrix",
            expected="shape (P, P) and finite entries",
            found=f"shape {shape}, {int((~np.isfinite(similarity_PP)).sum())} entries not finite",
            fix="check the similarity function",
        )
    if shape[0] < 2:
        raise _too_few(shape[0])


def _too_few(problems: int) -> AdvantageError:
    return AdvantageError(
        "a leave-one-out baseline needs another prompt",
        expected="at least 2 prompts",
        found=f"{problems} prompts",
        fix="compute advantages over the full batch, not for one printed group",
    )
