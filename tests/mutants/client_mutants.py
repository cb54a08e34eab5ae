"""Defects in the advantages and similarities, each against the gate that measures them offline.

The gates' measuring functions are the real ones; each defect replaces code of the harness in this
process. Shape suffixes: ``_P`` problems, ``_G`` rollouts of a group, ``_PP`` pairs of problems.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from harness import activation, advantages
from harness.gates import advantage_identities, prompt_activation
from harness.similarity import BatchFitted, tfidf_cosine, uniform_loo_weights
from tests.mutants.client_registry import planted

PROPERTIES, ACTIVATION = "advantage_properties", "dry_activation"
PREFIX = "How many r's are in strawberry? Let's spell the word out and number all the letters: "
Array = np.ndarray


def change_mode(
    patch: pytest.MonkeyPatch, mode: str, found: Callable[[Any, Any], list[Array]]
) -> None:
    patch.setattr(advantages, "MODES", {**advantages.MODES, mode: found})


def change_groups(patch: pytest.MonkeyPatch, formula: Callable[[Array], Array]) -> None:
    """Replace what GRPO does with one group's rewards."""
    change_mode(patch, "grpo", lambda batch, _params: [formula(r_G) for r_G in batch.rewards_P])


def change_gs1(patch: pytest.MonkeyPatch, change: Callable[[Array, Array], Array]) -> None:
    """Change the finished gs1 advantages, given the rewards as well."""

    def changed(batch: Any, params: Any) -> list[Array]:
        values_P = np.concatenate(advantages.gs1(batch, params))
        return list(change(values_P, np.concatenate(batch.rewards_P)).reshape(-1, 1))

    change_mode(patch, "gs1", changed)


def change_weights(patch: pytest.MonkeyPatch, change: Callable[[Array, float], Array]) -> None:
    """Replace the weights everywhere: in the advantages and in what measures them."""
    for module in (advantages, advantage_identities, activation):
        patch.setattr(module, "gs1_weights", change)


def change_similarity(
    patch: pytest.MonkeyPatch, similarity: Callable[[Sequence[str]], Array]
) -> None:
    for module in (advantages, advantage_identities, prompt_activation):
        patch.setattr(module, "SIMILARITIES", {"tfidf_prompt_cosine": similarity})


# --- GRPO -------------------------------------------------------------------------------------


@planted(PROPERTIES, "the baseline arm learns to be wrong")
def grpo_sign_flipped(patch: pytest.MonkeyPatch) -> None:
    change_groups(patch, lambda r_G: r_G.mean() - r_G)


@planted(PROPERTIES, "the baseline is over the batch: hard prompts are only ever punished")
def grpo_mean_over_the_batch(patch: pytest.MonkeyPatch) -> None:
    def centred(batch: Any, _params: Any) -> list[Array]:
        mean = np.concatenate(batch.rewards_P).mean()
        return [r_G - mean for r_G in batch.rewards_P]

    change_mode(patch, "grpo", centred)


@planted(PROPERTIES, "rollouts are compared with the same place of other groups")
def grpo_mean_over_the_wrong_axis(patch: pytest.MonkeyPatch) -> None:
    def centred(batch: Any, _params: Any) -> list[Array]:
        mean_G = np.stack(batch.rewards_P).mean(axis=0)
        return [r_G - mean_G for r_G in batch.rewards_P]

    change_mode(patch, "grpo", centred)


@planted(PROPERTIES, "easy and hard prompts weigh alike: another objective than the plan's")
def grpo_divided_by_deviation(patch: pytest.MonkeyPatch) -> None:
    change_groups(patch, lambda r_G: (r_G - r_G.mean()) / (r_G.std() + 1e-6))


@planted(PROPERTIES, "a sample deviation: another scale for every group size")
def grpo_divided_by_sample_deviation(patch: pytest.MonkeyPatch) -> None:
    change_groups(patch, lambda r_G: (r_G - r_G.mean()) / (r_G.std(ddof=1) + 1e-6))


@planted(PROPERTIES, "n − 1 in the mean: groups no longer sum to 0")
def grpo_mean_with_ddof(patch: pytest.MonkeyPatch) -> None:
    change_groups(patch, lambda r_G: r_G - r_G.sum() / (len(r_G) - 1))


@planted(PROPERTIES, "what decides is rounded to seven digits")
def grpo_in_float32(patch: pytest.MonkeyPatch) -> None:
    def rounded(r_G: Array) -> Array:
        single_G = r_G.astype(np.float32)
        return (single_G - single_G.mean()).astype(np.float64)

    change_groups(patch, rounded)


@planted(PROPERTIES, "one outlier sets the baseline of its whole group")
def grpo_best_of_group_baseline(patch: pytest.MonkeyPatch) -> None:
    change_groups(patch, lambda r_G: r_G - r_G.max())


# --- GS1: rewards and advantages --------------------------------------------------------------


@planted(PROPERTIES, "the treatment learns to be wrong")
def gs1_sign_flipped(patch: pytest.MonkeyPatch) -> None:
    change_gs1(patch, lambda values_P, _rewards_P: -values_P)


@planted(PROPERTIES, "each baseline holds its own reward: the gradient shrinks")
def gs1_baseline_includes_own_reward(patch: pytest.MonkeyPatch) -> None:
    change_gs1(patch, lambda values_P, rewards_P: values_P * (1 - 1 / len(rewards_P)))


@planted(PROPERTIES, "no baseline at all: plain REINFORCE")
def gs1_baseline_forgotten(patch: pytest.MonkeyPatch) -> None:
    change_gs1(patch, lambda _values_P, rewards_P: rewards_P)


@planted(PROPERTIES, "advantages are whitened: the learning rate is another one at every step")
def gs1_divided_by_deviation(patch: pytest.MonkeyPatch) -> None:
    change_gs1(patch, lambda values_P, _rewards_P: values_P / (values_P.std() + 1e-6))


@planted(PROPERTIES, "advantages are centred over the batch: every baseline sees its own reward")
def gs1_centred_over_the_batch(patch: pytest.MonkeyPatch) -> None:
    change_gs1(patch, lambda values_P, _rewards_P: values_P - values_P.mean())


@planted(PROPERTIES, "what decides is rounded to seven digits")
def gs1_in_float32(patch: pytest.MonkeyPatch) -> None:
    change_gs1(patch, lambda values_P, _rewards_P: values_P.astype(np.float32).astype(np.float64))


@planted(PROPERTIES, "weights are drawn from the rewards they weigh: a biased gradient")
def gs1_weights_from_rewards(patch: pytest.MonkeyPatch) -> None:
    def by_reward(batch: Any, params: Any) -> list[Array]:
        rewards_P = np.concatenate(batch.rewards_P)
        near_PP = 1.0 - np.abs(rewards_P[:, None] - rewards_P[None, :])
        weights_PP = advantages.gs1_weights(near_PP, params.tau)
        return list((rewards_P - weights_PP @ rewards_P).reshape(-1, 1))

    change_mode(patch, "gs1", by_reward)


# --- GS1: weights -----------------------------------------------------------------------------


@planted(PROPERTIES, "a reward is compared with itself: the gradient shrinks")
def gs1_self_weight_kept(patch: pytest.MonkeyPatch) -> None:
    def softmax(similarity_PP: Array, tau: float) -> Array:
        powers_PP = np.exp(similarity_PP / tau)
        return powers_PP / powers_PP.sum(axis=1, keepdims=True)

    change_weights(patch, softmax)


@planted(PROPERTIES, "a sharp kernel becomes a flat one")
def gs1_tau_multiplies(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, tau: honest(similarity_PP, 1 / tau))


@planted(PROPERTIES, "columns instead of rows sum to one")
def gs1_softmax_over_the_wrong_axis(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, tau: honest(similarity_PP, tau).T)


@planted(PROPERTIES, "the least similar prompts make the baseline")
def gs1_most_distant_weighted(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, tau: honest(1 - similarity_PP, tau))


@planted(PROPERTIES, "one neighbour decides: the variance of a single rollout")
def gs1_nearest_neighbour_only(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, _tau: honest(similarity_PP, 1e-9))


@planted(ACTIVATION, "the treatment is plain leave-one-out under another name")
def gs1_tau_ignored(patch: pytest.MonkeyPatch) -> None:
    change_weights(patch, lambda similarity_PP, _tau: uniform_loo_weights(len(similarity_PP)))


@planted(ACTIVATION, "a tau given in percent: one neighbour decides")
def gs1_tau_in_percent(patch: pytest.MonkeyPatch) -> None:
    honest = advantages.gs1_weights
    change_weights(patch, lambda similarity_PP, tau: honest(similarity_PP, tau / 100))


# --- similarities -----------------------------------------------------------------------------


@planted(PROPERTIES, "long prompts count as similar to everything")
def cosine_not_normalised(patch: pytest.MonkeyPatch) -> None:
    change_similarity(patch, BatchFitted(norm=None))


@planted(PROPERTIES, "common words decide what is similar")
def tf_without_idf(patch: pytest.MonkeyPatch) -> None:
    change_similarity(patch, BatchFitted(use_idf=False))


@planted(PROPERTIES, "rare words weigh infinitely more: idf without its smoothing")
def idf_not_smoothed(patch: pytest.MonkeyPatch) -> None:
    change_similarity(patch, BatchFitted(smooth_idf=False))


@planted(PROPERTIES, "names are no longer the same word at the start of a sentence")
def similarity_keeps_case(patch: pytest.MonkeyPatch) -> None:
    change_similarity(patch, BatchFitted(lowercase=False))


@planted(PROPERTIES, "another vocabulary than the plan's: stop words are dropped")
def stop_words_dropped(patch: pytest.MonkeyPatch) -> None:
    change_similarity(patch, BatchFitted(stop_words="english"))


@planted(PROPERTIES, "raw counts of repeated words are damped: another kernel than the plan's")
def sublinear_counts(patch: pytest.MonkeyPatch) -> None:
    change_similarity(patch, BatchFitted(sublinear_tf=True))


@planted(ACTIVATION, "every prompt looks alike, because the few-shot text is part of each")
def fewshot_text_left_in_prompts(patch: pytest.MonkeyPatch) -> None:
    change_similarity(patch, lambda texts: tfidf_cosine([PREFIX * 4 + text for text in texts]))


@planted(PROPERTIES, "only words of the few-shot text count: the vocabulary is that of other texts")
def vocabulary_of_other_texts(patch: pytest.MonkeyPatch) -> None:
    vectoriser = TfidfVectorizer().fit([PREFIX])

    def other_vocabulary(texts: Sequence[str]) -> np.ndarray:
        vectors: Any = vectoriser.transform(texts)
        return (vectors @ vectors.T).toarray().clip(0, 1)

    change_similarity(patch, other_vocabulary)
