"""Gates on sampled text draw until there is enough to compare, and give up after stated rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import httpx
import numpy as np
import pytest
import tinker
from tinker.types import RequestErrorCategory

from harness.errors import GateError
from harness.gates import service_facts, stop_facts
from harness.gates.live_probe import LiveProbe, Scored
from harness.gates.recorder import GateRecorder

END = 7
PROMPTS_P = [[i] for i in range(16)]
Draws = list[list[tinker.SampledSequence]]


@dataclass
class Script:
    """A sampler that ends every ``one_in``-th completion early, and the seeds it was asked for.

    Of those with an empty stop list, every ``open_in``-th goes past a stop token.
    """

    one_in: int
    open_in: int = 1
    seeds: list[int] = field(default_factory=list)

    def __call__(self, sampler: Any, prompts_P: Sequence[Any], params_P: Sequence[Any]) -> Draws:
        del sampler
        return [[self.one(params)] for params, _ in zip(params_P, prompts_P, strict=True)]

    def one(self, params: Any) -> tinker.SampledSequence:
        limit, seed = params.max_tokens, params.seed
        if params.temperature == 0.0:
            return sequence([2] * limit, "length")
        if params.stop == []:
            passes = seed % self.open_in == self.open_in - 1
            return sequence([2, END if passes else 2, *[2] * (limit - 2)], "length")
        if limit > 3:
            self.seeds.append(seed)
        ends = limit > 3 and seed % self.one_in == self.one_in - 1
        return sequence([2, END], "stop") if ends else sequence([2] * limit, "length")


def sequence(tokens: list[int], reason: str) -> tinker.SampledSequence:
    """A stand-in: the SDK's generations make theirs in different ways."""
    one = SimpleNamespace(tokens=tokens, logprobs=[-1.0] * len(tokens), stop_reason=reason)
    return cast("tinker.SampledSequence", one)


def params(
    *, temperature: float = 1.0, seed: int | None = None, max_tokens: int = 0, stop: Any = None
) -> SimpleNamespace:
    return SimpleNamespace(
        temperature=temperature, seed=seed, max_tokens=max_tokens or 16, stop=stop
    )


def stand_in(**more: Any) -> LiveProbe:
    probe = SimpleNamespace(prompts_P=PROMPTS_P, stop_ids=[END], params=params, **more)
    return cast("LiveProbe", probe)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Script]:
    def made(one_in: int) -> Script:
        script = Script(one_in)
        monkeypatch.setattr(stop_facts, "sample_each", script)
        monkeypatch.setattr(stop_facts, "_string_stop", lambda *_: (0, "not tried"))
        return script

    return made


@pytest.mark.parametrize(("one_in", "rounds"), [(2, 1), (4, 1), (16, 4)])
def test_rare_endings_are_waited_for(
    script: Callable[[int], Script], one_in: int, rounds: int
) -> None:
    sampler = script(one_in)
    stop_facts.measure_stops(stand_in(sampler=None)).record(GateRecorder("stop_reasons", "a test"))
    asked = len(sampler.seeds)
    assert asked == 16 * rounds, f"expected {16 * rounds} completions, found {asked}"
    assert len(set(sampler.seeds)) == asked, "a round repeated the seeds of another"


def test_rare_stop_tokens_of_an_empty_stop_list_are_waited_for(
    script: Callable[[int], Script],
) -> None:
    sampler = script(2)
    sampler.open_in = 50
    stop_facts.measure_stops(stand_in(sampler=None)).record(GateRecorder("stop_reasons", "a test"))


def failed(category: RequestErrorCategory, message: str = "no") -> tinker.RequestFailedError:
    return tinker.RequestFailedError(message, "req-1", category)


def string_stop(
    monkeypatch: pytest.MonkeyPatch, error: Exception, *, good: int = 0
) -> tuple[int, str]:
    """Try string stops on a service that ignores ``good`` of them and then ends with an error."""
    left = [good]

    def drawn(sampler: Any, prompts_P: Sequence[Any], params_P: Sequence[Any]) -> Draws:
        del sampler
        if params_P[0].stop is not None:
            left[0] -= 1
            if left[0] < 0:
                raise error
        return [[sequence([2] * 16, "length")] for _ in prompts_P]

    monkeypatch.setattr(stop_facts, "sample_each", drawn)
    tokenizer = SimpleNamespace(decode=lambda tokens: "b" * len(tokens))
    return stop_facts._string_stop(stand_in(sampler=None, tokenizer=tokenizer), PROMPTS_P)


def test_declined_string_stops_are_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = string_stop(monkeypatch, failed(RequestErrorCategory.User))
    assert found == (0, "not offered: RequestFailedError"), found


def test_a_wrong_string_stop_stays_wrong_when_the_next_is_declined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defects, note = string_stop(monkeypatch, failed(RequestErrorCategory.User), good=2)
    assert defects == 2, f"2 wrong endings were measured, told as {defects}: {note}"


@pytest.mark.parametrize(
    "error",
    [
        failed(RequestErrorCategory.Server),
        failed(RequestErrorCategory.User, "capacity exhausted"),
        tinker.RateLimitError(
            "full", response=httpx.Response(429, request=httpx.Request("POST", "/")), body=None
        ),
    ],
)
def test_a_fault_at_a_string_stop_is_no_sign_of_what_is_offered(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with pytest.raises(type(error)):
        string_stop(monkeypatch, error)


def test_a_model_that_never_ends_is_given_up(script: Callable[[int], Script]) -> None:
    sampler = script(10**6)
    measured = stop_facts.measure_stops(stand_in(sampler=None))
    with pytest.raises(GateError, match=r"completions that stopped ≥ 4 .* found: 0"):
        measured.record(GateRecorder("stop_reasons", "a test"))
    asked, most = len(sampler.seeds), 16 * stop_facts.MOST_ROUNDS
    assert asked == most, f"expected {most} completions, found {asked}"


@pytest.mark.parametrize(("length", "rounds"), [(16, 1), (2, 7), (1, 8)])
def test_short_answers_are_drawn_again_until_enough_tokens_are_compared(
    monkeypatch: pytest.MonkeyPatch, length: int, rounds: int
) -> None:
    seeds: list[int] = []

    def drawn(sampler: Any, prompts_P: Sequence[Any], params_P: Sequence[Any]) -> Draws:
        del sampler, prompts_P
        seeds.extend(one.seed for one in params_P)
        return [[sequence([2] * length, "stop")] for _ in params_P]

    def trained(training: Any, rows: Sequence[Scored]) -> Any:
        del training
        return np.full(sum(len(tokens) for _, tokens in rows), -1.0)

    monkeypatch.setattr(service_facts, "sample_each", drawn)
    monkeypatch.setattr(service_facts, "trainer_logprobs", trained)
    monkeypatch.setattr(service_facts, "update", lambda *_: None)
    monkeypatch.setattr(service_facts, "sampling_client", lambda client: client)
    trainer = SimpleNamespace(save_weights_and_get_sampling_client=lambda: None)
    probe = stand_in(
        new_trainer=lambda: trainer,
        gold_rows=lambda *_: [],
        adam=lambda: None,
        tolerances=SimpleNamespace(gap_max=1e-4, gap_mean=1e-5),
    )
    measured = service_facts.measure_agreement(probe)
    asked = 2 * 8 * rounds
    assert len(seeds) == asked, f"expected {asked} completions in two stages, found {len(seeds)}"
    compared = [fact.value for fact in measured.facts if fact.name == "tokens compared"]
    assert compared == [8 * rounds * length] * 2, f"tokens compared: {compared}"
    enough = 8 * rounds * length >= service_facts.LEAST_TOKENS
    recorder = GateRecorder("sampler_trainer_agreement", "a test")
    if enough:
        measured.record(recorder)
    else:
        with pytest.raises(GateError, match=r"tokens compared ≥ 100 .* found: 64"):
            measured.record(recorder)


def test_an_optimizer_that_moves_nothing_misses_the_move_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("trainer_logprobs", "sampler_logprobs"):
        monkeypatch.setattr(service_facts, name, lambda *_: np.full(120, -1.0))
    monkeypatch.setattr(service_facts, "update", lambda *_: None)
    monkeypatch.setattr(service_facts, "sampling_client", lambda client: client)
    saved = SimpleNamespace(result=lambda: SimpleNamespace(path="tinker://saved"))
    trainer = SimpleNamespace(
        save_weights_and_get_sampling_client=lambda: None, save_weights_for_sampler=lambda _: saved
    )
    probe = stand_in(
        new_trainer=lambda: trainer,
        gold_rows=lambda *_: [],
        adam=lambda: None,
        label="a-test",
        client=SimpleNamespace(create_sampling_client=lambda **_: None),
    )
    with pytest.raises(GateError, match=r"mean move .* ≥ 0.05 .* found: 0"):
        service_facts.measure_freshness(probe).record(GateRecorder("sampler_freshness", "a test"))
