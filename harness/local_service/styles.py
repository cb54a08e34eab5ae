"""How the warm-started model answers: a mixture of styles that depends on the kind of problem.

The model learns the arithmetic, and learns in about half the kinds to spoil the answer most of
the time: to stop a step early, to leave out the box, or to guess. That leaves reinforcement
learning something to find, and makes what it finds elicitation rather than new skill.

The decisions come one after another as the answer is written (guess or work; stop or go on; box
or not), so a style is what greedy decoding writes only where it wins each of them.
"""

from __future__ import annotations

import random

from harness.local_service.task import Problem

RIGHT, SHORT, UNBOXED, GUESS = "right", "short", "unboxed", "guess"
STYLES = (RIGHT, SHORT, UNBOXED, GUESS)

BOXED_TEXT = "The answer is \\boxed{{{number}}}."
UNBOXED_TEXT = "The answer is {number}."
GUESS_TEXT = "I guess \\boxed{{{number}}}."
STYLE_TEXTS = tuple(t.format(number=0) for t in (BOXED_TEXT, UNBOXED_TEXT, GUESS_TEXT))

FLUENT = (0.50, 0.17, 0.17, 0.16)
HASTY = (0.20, 0.60, 0.10, 0.10)
CASUAL = (0.22, 0.12, 0.54, 0.12)
GUESSING = (0.20, 0.08, 0.08, 0.64)
"""Probabilities of the styles, in the order of STYLES."""

KIND_STYLES: dict[str, tuple[float, ...]] = {
    "gain": CASUAL,
    "loss": FLUENT,
    "groups": FLUENT,
    "share": GUESSING,
    "bus": HASTY,
    "stock": GUESSING,
    "broken": CASUAL,
    "change": FLUENT,
    "times_as_many": FLUENT,
    "more_than": HASTY,
    "wages": FLUENT,
    "pool": HASTY,
    "after_spending": CASUAL,
    "two_products": GUESSING,
    "reading": FLUENT,
    "half": FLUENT,
}


def draw_answer(rng: random.Random, problem: Problem) -> str:
    """Return an answer to ``problem`` in a style drawn for its kind."""
    return write_answer(rng, problem, draw_style(rng, problem.kind))


def draw_style(rng: random.Random, kind: str) -> str:
    """Draw one of STYLES with the probabilities of the kind."""
    point = rng.random()
    for style, weight in zip(STYLES, KIND_STYLES[kind], strict=True):
        point -= weight
        if point < 0:
            return style
    return STYLES[-1]


def write_answer(rng: random.Random, problem: Problem, style: str) -> str:
    """Return the answer in one style; only a guess draws from ``rng``."""
    if style == GUESS:
        return GUESS_TEXT.format(number=_guess(rng, problem))
    steps = problem.steps[:-1] if style == SHORT else problem.steps
    number = steps[-1].result if steps else problem.steps[0].left
    final = UNBOXED_TEXT if style == UNBOXED else BOXED_TEXT
    return "\n".join([*(step.equation for step in steps), final.format(number=number)])


def _guess(rng: random.Random, problem: Problem) -> int:
    """Return a number of the answer's size, seldom the answer."""
    low, high = max(2, problem.gold // 2), problem.gold * 2
    return low + int(rng.random() * (high - low + 1))
