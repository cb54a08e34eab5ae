"""Facts about how completions end: stop tokens, reasons, max_tokens, empty and string stops.

Legend: ``_P`` prompts, ``_T`` tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tinker
from tinker.types import RequestErrorCategory

from harness.gates.fact import VACUOUS, Fact, Measured
from harness.gates.live_probe import LiveProbe, sample_each
from harness.service_fault import FaultKind, fault_of_error

PROMPTS = 16
LEAST_ENDED = 4
"""Fewest completions that end by themselves, and that are cut, for the gate to mean anything."""

MOST_ROUNDS = 8
"""How often the prompts are sampled, with new seeds, until enough have ended: a model that rarely
ends within max_tokens needs more than one round."""

_DECLINED = frozenset({400, 404, 422})
"""Answers to a request that the service understood and does not serve (501 arrives as 404)."""

Drawn = list[tinker.SampledSequence]


def measure_stops(probe: LiveProbe) -> Measured:
    """Check stop reasons, stop tokens and max_tokens on long, short and unstopped completions."""
    prompts_P = probe.prompts_P[:PROMPTS]
    limits = {"long": probe.params().max_tokens or 0, "short": 3}
    draws = partial(_draws, probe, prompts_P)
    drawn = {
        "long": _in_rounds(
            lambda seed: draws(seed, max_tokens=limits["long"]),
            lambda ones: sum(str(one.stop_reason) == "stop" for one in ones) >= LEAST_ENDED,
        ),
        "short": draws(0, max_tokens=limits["short"]),
    }
    open_ended = _in_rounds(
        lambda seed: draws(seed, stop=[]), lambda ones: _past(ones, probe.stop_ids) > 0
    )
    every = [(one, limits[name]) for name, ones in drawn.items() for one in ones]
    wrong = [defect for one, limit in every if (defect := stop_defect(one, limit, probe.stop_ids))]
    open_wrong = [d for one in open_ended if (d := stop_defect(one, limits["long"], []))]
    past = _past(open_ended, probe.stop_ids)
    reasons = Counter(str(one.stop_reason) for one, _ in every)
    text_wrong, text_note = _string_stop(probe, prompts_P)
    format_effect = "finished answers would be graded as truncated, or truncated ones as finished"
    return Measured(
        (
            Fact("stop tokens of the run", len(probe.stop_ids), {"at_least": 1}, VACUOUS),
            Fact("completions that stopped", reasons["stop"], {"at_least": LEAST_ENDED}, VACUOUS),
            Fact(
                "completions cut by max_tokens",
                reasons["length"],
                {"at_least": LEAST_ENDED},
                VACUOUS,
            ),
            Fact(
                "completions with a wrong ending",
                len(wrong),
                {"equals": 0},
                format_effect,
                _few(wrong),
            ),
            Fact(
                "completions with stop=[] with a wrong ending",
                len(open_wrong),
                {"equals": 0},
                "an empty stop list would not mean what the SDK says",
                _few(open_wrong),
            ),
            Fact("completions with stop=[] past a stop token", past, {"at_least": 1}, VACUOUS),
            Fact(
                "string stops with a wrong ending",
                text_wrong,
                {"equals": 0},
                format_effect,
                text_note,
            ),
        ),
        {"string_stops": text_note, "stop_reasons": dict(reasons)},
    )


def _in_rounds(draw: Callable[[int], Drawn], enough: Callable[[Drawn], bool]) -> Drawn:
    """Draw from a first seed on, again and again, until there is enough or no round is left."""
    drawn: Drawn = []
    for _ in range(MOST_ROUNDS):
        drawn += draw(len(drawn))
        if enough(drawn):
            break
    return drawn


def _draws(
    probe: LiveProbe, prompts_P: Sequence[Sequence[int]], first_seed: int, **asked: Any
) -> Drawn:
    """Sample every prompt once, each with its own seed."""
    params_P = [probe.params(seed=first_seed + i, **asked) for i in range(len(prompts_P))]
    return [row[0] for row in sample_each(probe.sampler, prompts_P, params_P)]


def _past(drawn: Drawn, stop_ids: Sequence[int]) -> int:
    """Count the completions that went on after a stop token."""
    return sum(any(token in stop_ids for token in one.tokens[:-1]) for one in drawn)


def _few(defects: Sequence[str]) -> str:
    return "; ".join(defects[:2])


def stop_defect(sequence: tinker.SampledSequence, limit: int, stop_ids: Sequence[int]) -> str:
    """Return what is wrong with a completion's ending, or an empty string.

    Args:
        sequence: the completion.
        limit: max_tokens of its request.
        stop_ids: the tokens that end it; the one that did is part of the completion.
    """
    tokens, reason = list(sequence.tokens), str(sequence.stop_reason)
    if len(tokens) > limit:
        return f"{len(tokens)} tokens for max_tokens {limit}"
    if any(token in stop_ids for token in tokens[:-1]):
        return "it went on after a stop token"
    ended = bool(tokens) and tokens[-1] in stop_ids
    if reason == "stop":
        return "" if ended else f"reason stop without a stop token, {len(tokens)} tokens"
    if reason != "length":
        return f"unknown reason {reason!r}"
    if ended:
        return "reason length, but it ends with a stop token"
    return "" if len(tokens) == limit else f"reason length after {len(tokens)} of {limit} tokens"


def _string_stop(probe: LiveProbe, prompts_P: Sequence[Sequence[int]]) -> tuple[int, str]:
    """Stop on a piece of each greedy text; return (defects, what was found)."""
    free = sample_each(probe.sampler, prompts_P, [probe.params(temperature=0.0)] * len(prompts_P))
    tried, defects = 0, 0
    for prompt_T, (whole,) in zip(prompts_P[:4], free[:4], strict=True):
        piece = probe.tokenizer.decode(whole.tokens[2:5]).strip()
        if not piece or len(whole.tokens) < 8:
            continue
        try:
            asked = probe.params(temperature=0.0, stop=[piece])
            cut = sample_each(probe.sampler, [prompt_T], [asked])[0][0]
        except (tinker.APIStatusError, tinker.RequestFailedError) as refusal:
            if not _declined(refusal):
                raise
            # What was wrong before stays wrong.
            found = f" after {tried} tried, {defects} wrong" if tried else ""
            return defects, f"not offered: {type(refusal).__name__}{found}"
        tried += 1
        text = probe.tokenizer.decode(cut.tokens)
        good = str(cut.stop_reason) == "stop" and piece in text
        defects += not (good and len(cut.tokens) < len(whole.tokens))
    return (defects, f"{tried} tried, {defects} wrong") if tried else (1, "no text to stop on")


def _declined(error: tinker.APIStatusError | tinker.RequestFailedError) -> bool:
    """Return whether the service does not serve what was asked; a fault of its says nothing."""
    if (fault := fault_of_error(error)) is None or fault.kind is not FaultKind.FAULTY:
        return False
    if isinstance(error, tinker.APIStatusError):
        return error.status_code in _DECLINED
    return error.category == RequestErrorCategory.User
