"""Vectors of question texts other than the default's, each with every parameter it runs with.

Shape suffixes as in :mod:`harness.similarity`. A text without any feature has the zero vector, so
its cosine with every text is 0: the documented rule for the default holds here too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer

from harness.errors import AdvantageError

FloatArray = npt.NDArray[np.float64]


class BatchFitted:
    """Cosines of vectors whose vocabulary and idf come from the batch being compared.

    Args:
        options: arguments of ``TfidfVectorizer`` that depart from its defaults.
    """

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        """Return the (P, P) cosines; AdvantageError for anything but a sequence of strings."""
        return cosines(self.vectors(texts))

    def vectors(self, texts: Sequence[str]) -> csr_matrix:
        """Return the texts' unit (or zero) vectors, one sparse row each."""
        checked = strings(texts)
        vectoriser = TfidfVectorizer(**self.options)
        try:
            return csr_matrix(vectoriser.fit_transform(checked))
        except ValueError:
            if _keeps_a_term(vectoriser, checked):
                raise
            return csr_matrix((len(checked), 1), dtype=np.float64)

    def parameters(self) -> dict[str, Any]:
        """Return every parameter of the vectoriser, defaults filled in, as JSON values."""
        return {"fitted_on": "batch", **_parameters(TfidfVectorizer(**self.options))}


class CorpusFitted:
    """Cosines of vectors whose vocabulary and idf come from a whole training set.

    Args:
        corpus: the texts to fit on, at least one of them with a token.
        options: arguments of ``TfidfVectorizer`` that depart from its defaults.
    """

    def __init__(self, corpus: Sequence[str], **options: Any) -> None:
        self.vectoriser = TfidfVectorizer(**options).fit(strings(corpus))

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        """Return the (P, P) cosines; tokens that the corpus never used count for nothing."""
        return cosines(self.vectoriser.transform(strings(texts)))


class Hashed:
    """Cosines of token counts in hashed columns: nothing is fitted, so a batch cannot shift it.

    Tokens that share a column (32-bit MurmurHash3 modulo the number of columns) count as one.

    Args:
        columns: how many columns there are.
    """

    def __init__(self, columns: int) -> None:
        self.vectoriser = HashingVectorizer(n_features=columns, alternate_sign=False)

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        """Return the (P, P) cosines; AdvantageError for anything but a sequence of strings."""
        checked = strings(texts)
        return cosines(self.vectors(checked)) if checked else np.zeros((0, 0))

    def vectors(self, texts: Sequence[str]) -> csr_matrix:
        """Return the texts' unit (or zero) vectors, one sparse row each."""
        return csr_matrix(self.vectoriser.transform(strings(texts)))

    def parameters(self) -> dict[str, Any]:
        """Return every parameter of the vectoriser, defaults filled in, as JSON values."""
        return {"fitted_on": "nothing", **_parameters(self.vectoriser)}


def cosines(vectors: Any) -> FloatArray:
    """Return the dot products of unit (or zero) rows; rounding above 1 is cut off."""
    return np.clip((vectors @ vectors.T).toarray(), 0.0, 1.0)


def strings(texts: Sequence[str]) -> list[str]:
    """Return question texts as a list.

    Raises:
        AdvantageError: for anything but a sequence of strings.
    """
    wrong = [texts] if isinstance(texts, str) else [t for t in texts if not isinstance(t, str)]
    if wrong:
        raise AdvantageError(
            "prompt similarity is defined for a sequence of question texts",
            expected="a sequence of str",
            found=f"{type(wrong[0]).__name__} {wrong[0]!r:.60}",
            fix="pass the question texts of the batch, in batch order",
        )
    return list(texts)


def _keeps_a_term(vectoriser: TfidfVectorizer, texts: Sequence[str]) -> bool:
    """Say whether any term survives ``min_df``: if none does, the refusal means "no tokens"."""
    analyse = vectoriser.build_analyzer()
    frequency = Counter(term for text in texts for term in set(analyse(text)))
    return any(count >= vectoriser.min_df for count in frequency.values())


def _parameters(vectoriser: Any) -> dict[str, Any]:
    found: Mapping[str, Any] = vectoriser.get_params(deep=False)
    return {"vectoriser": type(vectoriser).__name__, **{k: _plain(v) for k, v in found.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, type):
        return value.__name__
    return list(value) if isinstance(value, tuple) else value
