"""Defects in grades, evaluations, observations and the decision."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import tinker

from harness import answers, decision, evaluate
from harness.exact_number import ExactNumber
from harness.observations import Observation
from tests.mutants import client_guards, decision_rows
from tests.mutants.client_registry import planted
from tests.unit import scored_rows

REQUESTS, RECORD, ROWS = "evaluation_requests", "evaluation_record", "decision_rows"
DECISION, ANSWERS = "tests/unit/test_decision.py", "tests/unit/test_answers.py"
Rows = list[Observation]

# --- evaluation -------------------------------------------------------------------------------


@planted(REQUESTS, "accuracy is that of sampling, not of greedy decoding")
def temperature_1_evaluation(patch: pytest.MonkeyPatch) -> None:
    honest = tinker.SamplingParams

    def sampled(**asked: Any) -> tinker.SamplingParams:
        return honest(**{**asked, "temperature": 1.0})

    patch.setattr(evaluate.tinker, "SamplingParams", sampled)


@planted(REQUESTS, "the score belongs to a checkpoint before the last step")
def wrong_checkpoint_evaluated(patch: pytest.MonkeyPatch) -> None:
    honest = evaluate.read_done

    def earlier(*arguments: Any) -> dict[str, Any] | None:
        done = honest(*arguments)
        return None if done is None else {**done, "sampler_uri": "tinker://run/sampler_weights/20"}

    patch.setattr(evaluate, "read_done", earlier)


@planted(REQUESTS, "cut-off answers leave the denominator: accuracy rises")
def truncated_items_dropped(patch: pytest.MonkeyPatch) -> None:
    honest = evaluate.score

    async def finished_only(*arguments: Any) -> list[dict[str, Any]]:
        return [row for row in await honest(*arguments) if row["finished"]]

    patch.setattr(evaluate, "score", finished_only)


def change_record(
    patch: pytest.MonkeyPatch, change: Callable[[dict[str, Any], list[dict[str, Any]]], None]
) -> None:
    """Change an evaluation's record and rows in place before they are judged."""
    record, rows = copy.deepcopy(client_guards.evaluated())
    change(record, rows)
    patch.setattr(client_guards, "evaluated", lambda: (record, rows))


@planted(RECORD, "the arms are scored by different parsers")
def evaluator_changed_between_arms(patch: pytest.MonkeyPatch) -> None:
    files = scored_rows.scored(scored_rows.OLD, "base", "grpo")
    files |= scored_rows.scored(scored_rows.NEW, "gs1")
    record = scored_rows.record_of(files, scored_rows.OLD, scored_rows.NEW)
    patch.setattr(client_guards, "evaluated", lambda: (record, scored_rows.all_rows(files)))


@planted(RECORD, "half of an arm's rows come from another checkpoint")
def rows_of_two_checkpoints(patch: pytest.MonkeyPatch) -> None:
    change_record(patch, lambda _record, rows: rows[-1].update(checkpoint="ckpt-earlier"))


@planted(RECORD, "the posted score is rounded: a difference of items disappears")
def posted_score_rounded(patch: pytest.MonkeyPatch) -> None:
    def rounded(record: dict[str, Any], _rows: list[dict[str, Any]]) -> None:
        for score in record["scores"]:
            score["value"] = round(score["value"], 1)

    change_record(patch, rounded)


@planted(RECORD, "an arm's score is over fewer items than the others'")
def scored_item_removed(patch: pytest.MonkeyPatch) -> None:
    def shorter(_record: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        del rows[-1]

    change_record(patch, shorter)


# --- grading ----------------------------------------------------------------------------------


@planted(ANSWERS, "17.6 is right where 18 is asked for")
def grader_rounds(patch: pytest.MonkeyPatch) -> None:
    honest = answers.final_number

    def rounded(text: str, *, finished: bool) -> ExactNumber | None:
        found = honest(text, finished=finished)
        return found and ExactNumber(Fraction(round(found.value)), found.text)

    patch.setattr(answers, "final_number", rounded)


@planted(ANSWERS, "a number after the box is taken for the answer")
def last_number_instead_of_box(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(answers, "_BOX", answers.re.compile("(?!)"))


@planted(ANSWERS, "a first attempt counts although the answer was corrected")
def first_box_instead_of_last(patch: pytest.MonkeyPatch) -> None:
    honest = answers._box_content
    patch.setattr(
        answers,
        "_box_content",
        lambda text, _start: honest(text, next(answers._BOX.finditer(text)).end()),
    )


# --- observations -----------------------------------------------------------------------------


def change_rows(patch: pytest.MonkeyPatch, change: Callable[[Rows], Rows]) -> None:
    rows = change(decision_rows.stored())
    patch.setattr(decision_rows, "stored", lambda: rows)


@planted(ROWS, "a score of 2 lifts the mean beyond what a test of bounded values allows")
def observation_value_out_of_bounds(patch: pytest.MonkeyPatch) -> None:
    change_rows(patch, lambda rows: [rows[0]._replace(value=2.0), *rows[1:]])


@planted(ROWS, "a score that is no number makes every comparison false")
def observation_value_nan(patch: pytest.MonkeyPatch) -> None:
    change_rows(patch, lambda rows: [rows[0]._replace(value=math.nan), *rows[1:]])


@planted(ROWS, "an item counts twice")
def observation_duplicated(patch: pytest.MonkeyPatch) -> None:
    change_rows(patch, lambda rows: [*rows, rows[0]])


@planted(ROWS, "an item on which the treatment failed is left out")
def observation_missing(patch: pytest.MonkeyPatch) -> None:
    change_rows(patch, lambda rows: rows[1:])


@planted(ROWS, "an item that was never planned joins in")
def observation_extra(patch: pytest.MonkeyPatch) -> None:
    change_rows(patch, lambda rows: [*rows, rows[0]._replace(item_id="item-99")])


@planted(ROWS, "a row was scored by another grader")
def observation_of_another_evaluator(patch: pytest.MonkeyPatch) -> None:
    change_rows(patch, lambda rows: [rows[0]._replace(evaluator_id="e2"), *rows[1:]])


@planted(ROWS, "a lucky seed that was not preregistered is added")
def observation_of_an_unscheduled_seed(patch: pytest.MonkeyPatch) -> None:
    change_rows(patch, lambda rows: [*rows, *(row._replace(seed=7) for row in rows)])


@planted("frozen_observations", "a value inside the bounds is changed after it was frozen")
def observation_value_edited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        decision_rows, "edited", lambda text: text.replace('"value": 0.0', '"value": 1.0', 1)
    )


# --- the decision -----------------------------------------------------------------------------


def change_half_width(patch: pytest.MonkeyPatch, width: float, alpha: float) -> None:
    honest = decision.hoeffding_half_width
    patch.setattr(decision, "hoeffding_half_width", lambda w, n, a: honest(w * width, n, a * alpha))


@planted(DECISION, "a loss of five points counts as a gain of five to be beaten")
def margin_sign_flipped(patch: pytest.MonkeyPatch) -> None:
    honest = decision._state
    patch.setattr(decision, "_state", lambda lower, upper, margin: honest(lower, upper, -margin))


@planted(DECISION, "supported is said at an error probability twice the stated one")
def alpha_one_sided(patch: pytest.MonkeyPatch) -> None:
    change_half_width(patch, 1.0, 2.0)


@planted(DECISION, "effects from −1 to 1 are treated as values from 0 to 1: half the width")
def half_width_of_width_1(patch: pytest.MonkeyPatch) -> None:
    change_half_width(patch, 0.5, 1.0)


@planted(DECISION, "a bound that only equals the margin decides")
def inequality_not_strict(patch: pytest.MonkeyPatch) -> None:
    def state(lower: float, upper: float, margin: float) -> str:
        return "pass" if lower >= margin else "fail" if upper <= margin else "open"

    patch.setattr(decision, "_state", state)


@planted(DECISION, "seeds count as items: the interval shrinks without new items")
def seeds_pooled_as_items(patch: pytest.MonkeyPatch) -> None:
    honest = decision.item_effects
    patch.setattr(
        decision,
        "item_effects",
        lambda criterion, values, plan: tuple(
            effect
            for seed in plan.seeds
            for effect in honest(criterion, values, replace(plan, seeds=(seed,)))
        ),
    )


@planted(DECISION, "the verdict is about the baseline's gain over the treatment")
def arms_swapped_in_decision(patch: pytest.MonkeyPatch) -> None:
    honest = decision.item_effects
    patch.setattr(
        decision, "item_effects", lambda *given: tuple(-effect for effect in honest(*given))
    )


@planted(DECISION, "one criterion out of two is enough")
def any_criterion_suffices(patch: pytest.MonkeyPatch) -> None:
    honest = decision.outcome
    patch.setattr(decision, "outcome", lambda results, band: honest(results[:1], band))
