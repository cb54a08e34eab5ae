"""Examples of a report: one item, every model's answer beside the others, worst first.

"Worst" is where the treatment does worse than the baseline by most; ties last. Within a kind the
order is that of the effect and then of the item ids, so the same run always shows the same items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.report_model import Answer, Example, ExampleKind, Examples
from harness.report_source import Row, Source, rounded
from harness.training_grader import FIELD as TRAINING_FIELD

WORSE, BETTER = "treatment worse", "treatment better"
EQUAL_WRONG, EQUAL_RIGHT = "equal, no credit", "equal, with credit"
UNCOMPARED = "not compared yet"
SHOWN = {WORSE: 25, BETTER: 25, EQUAL_WRONG: 10, EQUAL_RIGHT: 10, UNCOMPARED: 20}
"""Most items shown of each kind, in the order of the page; the others are in predictions/."""
LONGEST_TEXT = 1600
"""Characters of a text that is shown whole; of a longer one both ends are."""


def examples(source: Source) -> Examples:
    """Return the items to show; none before anything was scored."""
    by_item = _by_item(source)
    questions, why_not = source.questions if by_item else ({}, None)
    judged = [(*_kind(source, answers), item_id) for item_id, answers in by_item.items()]
    kinds: list[ExampleKind] = []
    shown: list[Example] = []
    for kind, limit in SHOWN.items():
        found = [(effect, item_id) for its_kind, effect, item_id in judged if its_kind == kind]
        found.sort(key=lambda pair: (-abs(pair[0] or 0.0), str(pair[1])))
        if found:
            kinds.append(ExampleKind(kind=kind, items=len(found), shown=min(limit, len(found))))
        shown += [
            _example(source, kind, effect, by_item[item_id], questions)
            for effect, item_id in found[:limit]
        ]
    graders = (source.decision or {}).get("grader_disagreements")
    return Examples(
        kinds=tuple(kinds),
        items=tuple(shown),
        questions_unknown=why_not,
        grader_compared=None if graders is None else graders["compared"],
        grader_disagreements=None if graders is None else sum(map(len, graders["items"].values())),
    )


def _by_item(source: Source) -> dict[Any, dict[str, Row]]:
    """Return arm → row for each item; of several seeds the first one is shown."""
    found: dict[Any, dict[str, Row]] = {}
    for arm, rows in source.predictions.items():
        for row in rows:
            found.setdefault(row["item_id"], {}).setdefault(arm, row)
    return found


def _kind(source: Source, answers: Mapping[str, Row]) -> tuple[str, float | None]:
    """Return an item's kind and its effect under the first criterion's weights."""
    criterion, roles = source.rule.criteria[0], source.roles
    treatment, baseline = answers.get(roles.treatment), answers.get(roles.baseline)
    if treatment is None or baseline is None:
        return UNCOMPARED, None
    effect = rounded(
        criterion.weight_treatment * treatment["value"]
        + criterion.weight_baseline * baseline["value"]
    )
    if effect:
        return (WORSE if effect < 0 else BETTER), effect
    return (EQUAL_RIGHT if treatment["value"] > criterion.low else EQUAL_WRONG), effect


def _example(
    source: Source,
    kind: str,
    effect: float | None,
    answers: Mapping[str, Row],
    questions: Mapping[str, str],
) -> Example:
    first = next(iter(answers.values()))
    question = questions.get(first["item_id"])
    return Example(
        item_id=source.shown(str(first["item_id"])),
        kind=kind,
        effect=effect,
        question=None if question is None else _shortened(source.shown(question)),
        reference=source.shown(str(first["reference"])),
        answers=tuple(_answer(source, arm, row) for arm, row in answers.items()),
    )


def _answer(source: Source, arm: str, row: Row) -> Answer:
    prediction = row["prediction"]
    text = source.shown(str(row.get("text", "")))
    return Answer(
        arm=arm,
        prediction=None if prediction is None else source.shown(str(prediction)),
        value=row["value"],
        finished=row.get("finished"),
        training_grader_correct=row.get(TRAINING_FIELD),
        text=_shortened(text),
        characters=len(text),
    )


def _shortened(text: str) -> str:
    """Keep both ends of a long text: an answer stands at its end."""
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[… {left_out} characters left out …]\n{text[-half:]}"
