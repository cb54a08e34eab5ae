"""The answer styles of the warm start: what each writes, and how often each is drawn."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from harness.local_service import styles
from harness.local_service.task import generate_problems
from harness.local_service.task_templates import PROBLEM_KINDS

TEST = generate_problems("test", 0)


def test_each_style_writes_what_its_name_says() -> None:
    rng = random.Random(0)
    for problem in TEST[:300]:
        gold, work = str(problem.gold), [step.equation for step in problem.steps]
        *right_work, right = styles.write_answer(rng, problem, styles.RIGHT).split("\n")
        assert (right_work, right) == (work, f"The answer is \\boxed{{{gold}}}.")
        *unboxed_work, unboxed = styles.write_answer(rng, problem, styles.UNBOXED).split("\n")
        assert (unboxed_work, unboxed) == (work, f"The answer is {gold}.")
        *short_work, short = styles.write_answer(rng, problem, styles.SHORT).split("\n")
        assert short_work == work[:-1]
        reached = work[-2].split("=")[1] if len(work) > 1 else str(problem.steps[0].left)
        assert short == f"The answer is \\boxed{{{reached}}}."
        assert styles.write_answer(rng, problem, styles.GUESS).startswith("I guess \\boxed{")


def test_a_guess_is_seldom_right() -> None:
    rng = random.Random(1)
    right = sum(f"{{{p.gold}}}" in styles.write_answer(rng, p, styles.GUESS) for p in TEST) / len(
        TEST
    )
    assert right < 0.1, f"{right:.3f} of guesses are right, allowed 0.1"


def test_styles_are_drawn_with_their_kinds_probabilities() -> None:
    assert set(styles.KIND_STYLES) == {kind.name for kind in PROBLEM_KINDS}
    rng = random.Random(2)
    for kind, weights in styles.KIND_STYLES.items():
        assert sum(weights) == pytest.approx(1.0, abs=1e-12), kind
        drawn = Counter(styles.draw_style(rng, kind) for _ in range(4000))
        for style, weight in zip(styles.STYLES, weights, strict=True):
            share = drawn[style] / 4000
            # Four standard errors at most.
            assert abs(share - weight) < 0.032, f"{kind} {style}: {share} for {weight}"
