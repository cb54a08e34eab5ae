"""The pure parts of the live gates: endings, probabilities, AdamW, facts and their verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import tinker
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, chisquare

from harness.errors import GateError
from harness.gates.draw_probabilities import (
    PREFIXES,
    pearson,
    temperature_score,
    uncertain_prefixes,
)
from harness.gates.fact import Fact, Measured
from harness.gates.optimizer_rule import Constants, adamw_steps, wrong_constants
from harness.gates.recorder import GateRecorder
from harness.gates.stop_facts import stop_defect

STOP = 9


def sequence(
    tokens: Sequence[int], reason: str = "stop", logprobs: Sequence[float] | None = None
) -> tinker.SampledSequence:
    return tinker.SampledSequence(
        stop_reason=reason,  # pyright: ignore[reportArgumentType] -- also words no service should use
        sequence_id="s",
        tokens_np=np.asarray(tokens, dtype=np.int32),
        logprobs_np=np.asarray(logprobs or [-1.0] * len(tokens), dtype=np.float32),
    )


@pytest.mark.parametrize(
    ("tokens", "reason", "defect"),
    [
        ([1, 2, STOP], "stop", ""),
        ([1, 2, 3, 4], "length", ""),
        ([1, 2, 3, STOP], "stop", ""),
        ([1, 2], "stop", "without a stop token"),
        ([], "stop", "without a stop token"),
        ([1, 2, 3, 4, 5], "length", "5 tokens for max_tokens 4"),
        ([1, STOP, 3, 4], "length", "went on"),
        ([1, 2, 3], "length", "after 3 of 4"),
        ([1, 2, 3, STOP], "length", "ends with a stop token"),
        ([1, 2, STOP], "eos", "unknown reason"),
    ],
)
def test_every_wrong_ending_is_told_from_a_right_one(
    tokens: list[int], reason: str, defect: str
) -> None:
    found = stop_defect(sequence(tokens, reason), 4, [STOP])
    assert bool(found) == bool(defect), f"{tokens} {reason}: {found!r}"
    assert defect in found, f"{tokens} {reason}: {found!r} does not say {defect!r}"


def drawn(probabilities: Sequence[float], counts: Sequence[int]) -> list[tuple[int, float]]:
    return [
        (token, math.log(p))
        for token, (p, n) in enumerate(zip(probabilities, counts, strict=True))
        for _ in range(n)
    ]


def test_pearson_is_scipys_statistic_when_every_token_is_its_own_cell() -> None:
    probabilities, counts = [0.5, 0.3, 0.2], [60, 25, 15]
    statistic, freedom = pearson(drawn(probabilities, counts))
    expected = chisquare(counts, [100 * p for p in probabilities])
    assert freedom == 2
    assert statistic == pytest.approx(float(expected.statistic), rel=1e-9)
    assert chi2.sf(statistic, freedom) == pytest.approx(float(expected.pvalue), rel=1e-9)


def test_rare_and_unseen_tokens_are_one_cell() -> None:
    statistic, freedom = pearson(drawn([0.6, 0.3, 0.03, 0.02], [60, 30, 5, 5]))
    assert freedom == 2, f"two large cells and the rest give 2 degrees of freedom, found {freedom}"
    assert statistic == pytest.approx(0.0, abs=1e-9), "10 of the rest's expected 10 were seen"


@pytest.mark.parametrize(
    "rows",
    [
        drawn([0.9, 0.5], [50, 50]),
        [(0, -0.5)] * 50 + [(0, -1.5)] * 50,
        [(0, math.nan)] * 10,
    ],
)
def test_impossible_probabilities_have_no_finite_statistic(rows: list[tuple[int, float]]) -> None:
    assert pearson(rows)[0] == math.inf


def test_the_test_has_the_false_alarm_rate_it_states_and_sees_a_hot_sampler() -> None:
    random = np.random.default_rng(4)
    logits = random.normal(size=12) * 1.5
    p = np.exp(logits) / np.exp(logits).sum()
    hot = np.exp(logits / 1.5) / np.exp(logits / 1.5).sum()

    def tails(source: np.ndarray, trials: int) -> np.ndarray:
        found = []
        for _ in range(trials):
            tokens = random.choice(12, size=512, p=source)
            found.append(chi2.sf(*pearson([(int(t), math.log(p[t])) for t in tokens])))
        return np.asarray(found)

    honest, faulty = tails(p, 400), tails(hot, 40)
    share = float((honest < 0.05).mean())
    assert 0.01 < share < 0.11, f"{share} of honest tails below 0.05, expected about 0.05"
    assert float(faulty.max()) < 1e-6, f"a sampler at temperature 1.5 passed: {faulty.max()}"


def test_the_temperature_score_sees_small_deviations_and_is_calibrated() -> None:
    random = np.random.default_rng(5)
    logits = random.normal(size=(1500, 6)) * 2

    def z(temperature: float) -> float:
        cells = []
        for row in logits:
            logp = row - np.log(np.exp(row).sum())
            hot = np.exp(row / temperature)
            token = int(random.choice(6, p=hot / hot.sum()))
            order = np.argsort(-logp)[:4]
            cells.append(({int(k): float(logp[k]) for k in order}, token))
        score, information = temperature_score(cells)
        return score / math.sqrt(information)

    honest = np.asarray([z(1.0) for _ in range(60)])
    assert abs(honest.mean()) < 0.5, f"mean z {honest.mean()} of honest draws, expected 0"
    assert 0.7 < honest.std() < 1.3, f"standard deviation {honest.std()}, expected 1"
    assert z(1.3) < -4.4, "too hot a sampler passed"
    assert z(0.75) > 4.4, "too cold a sampler passed"


def test_the_temperature_score_by_hand() -> None:
    # p = 3/4, 1/4: E[log p] = -0.5623351, and log p(x) is -0.2876821 or -1.3862944.
    cells = [({1: math.log(0.75), 2: math.log(0.25)}, 1), ({1: math.log(0.75)}, 2)]
    score, information = temperature_score(cells)
    assert score == pytest.approx(-0.2876821 - 1.3862944 + 2 * 0.5623351, abs=1e-6)
    assert information == pytest.approx(2 * 0.75 * 0.25 * math.log(3) ** 2, rel=1e-6)


def test_uncertain_prefixes_end_before_the_least_likely_token() -> None:
    prompts = [[1, 2], [3], [4], [5], [6]]
    rows = [sequence([10, 11, 12], logprobs=[-0.1, -2.0 - i, -0.2]) for i in range(5)]
    found = uncertain_prefixes(prompts, rows)
    assert found == [[6, 10], [5, 10], [4, 10], [3, 10]]
    assert len(found) == PREFIXES


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.integers(0, 2**31),
    st.floats(0, 0.95),
    st.floats(0, 0.999),
    st.floats(1e-6, 1.0),
    st.floats(0, 0.5),
)
def test_the_reference_is_torchs_adamw(
    seed: int, beta1: float, beta2: float, eps: float, decay: float
) -> None:
    random = np.random.default_rng(seed)
    gradients = [random.normal(size=5) for _ in range(3)]
    parameter = torch.nn.Parameter(torch.tensor(random.normal(size=5)))
    torch_adam = torch.optim.AdamW(
        [parameter], lr=0.01, betas=(beta1, beta2), eps=eps, weight_decay=decay
    )
    weights, changes = [], []
    for gradient in gradients:
        weights.append(parameter.detach().numpy().copy())
        parameter.grad = torch.tensor(gradient)
        torch_adam.step()
        changes.append(parameter.detach().numpy() - weights[-1])
    ours = adamw_steps(gradients, weights, Constants(0.01, beta1, beta2, eps, decay))
    gap = max(float(np.abs(a - b).max()) for a, b in zip(ours, changes, strict=True))
    assert gap < 1e-12, f"largest gap to torch {gap}, tolerance 1e-12"


def test_every_wrong_constant_is_another_optimizer() -> None:
    asked = Constants(5e-3, 0.3, 0.02, 0.8, 8.0)
    others = wrong_constants(asked)
    assert len(others) >= 6
    assert all(other != asked for other in others.values())


def test_facts_fail_a_gate_at_the_first_that_breaks_and_all_are_listed() -> None:
    measured = Measured(
        (
            Fact("kept", 1.0, {"at_most": 2.0}, "none"),
            Fact("broken", 3.0, {"at_most": 2.0}, "the arms differ", "arm x"),
            Fact("not a number", math.nan, {"at_most": 2.0}, "none"),
        ),
        {"table": [1, 2]},
    )
    assert [fact.name for fact in measured.failures()] == ["broken", "not a number"]
    gate = GateRecorder("greedy_decoding", "issue 3")
    with pytest.raises(GateError, match=r"broken.*the arms differ.*arm x"):
        measured.record(gate)
    assert gate.notes == {"table": [1, 2]}
    assert [measure["name"] for measure in gate.measures] == ["kept", "broken"]
