"""What a report is made from: the files of one run, finished or not, and nothing else.

Everything is read once. What is absent stays ``None``; what is there but damaged raises, because a
report must not show less than the run holds without saying so.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.arm import arm_folder, next_attempt, read_done
from harness.completeness import values_by_key
from harness.conclusion import DECISION_NAME, decision_plan
from harness.decision import item_effects
from harness.decision_rule import Rule
from harness.digest import parse_json
from harness.errors import HarnessError
from harness.evaluation_record import BASE_ARM
from harness.observations import read_observations
from harness.plan import PlannedRun, read_plan
from harness.reading import read_regular
from harness.redact import Redactor
from harness.result import ResultDocument, read_result
from harness.spec_rules import ArmRoles, resolve_roles
from harness.steps_so_far import steps_so_far
from harness.store import read_jsonl

RESULT_NAME = "result.json"
MUTANTS_NAME = "mutants.json"
TIMINGS_NAME = "timings.jsonl"
_PATH = re.compile(r"(?<![\w:/.])(?:/[\w.@+-]+)+/([\w.@+-]+)")
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """One run read back from disk.

    Attributes:
        run: the plan and the run's own copy of the spec.
        result: the result document as it stands.
        decision: ``decision.json``, or None before the verdict.
        predictions: arm or ``base`` → its rows, for what was scored.
        redactor: takes secrets out of texts.
    """

    run: PlannedRun
    result: ResultDocument
    decision: Mapping[str, Any] | None
    predictions: Mapping[str, Sequence[Row]]
    redactor: Redactor

    @property
    def roles(self) -> ArmRoles:
        """Which arm is the treatment and which the baseline."""
        return resolve_roles(self.run.spec)

    @cached_property
    def rule(self) -> Rule:
        """The preregistered rule, from the run's own spec."""
        return Rule.from_spec(self.run.loaded.raw["decision_rule"])

    @cached_property
    def questions(self) -> tuple[dict[str, str], str | None]:
        """The test questions by item, or nothing and why they cannot be had here."""
        try:
            problems = self.run.test_problems()
        except HarnessError as error:
            return {}, error.problem
        return {problem.item_id: problem.question for problem in problems}, None

    def effects(self) -> dict[str, tuple[float, ...]]:
        """Return each criterion's effects, one an item, from the rows that decided.

        Empty before a decision, and for rows that were incomplete.
        """
        section = self.result.decision
        if section is None or self.decision is None or not self.decision["criteria"]:
            return {}
        plan = decision_plan(self.run)
        rows = read_observations(section, self.run.folder)
        values = values_by_key(rows)
        return {
            criterion.id: item_effects(criterion, values, plan) for criterion in self.rule.criteria
        }

    def steps(self, arm_name: str) -> tuple[Row, ...]:
        """Return the steps of an arm that count and were completely written."""
        done = read_done(self.run.folder, arm_name)
        folder = arm_folder(self.run.folder, arm_name)
        return steps_so_far(folder, None if done is None else int(done["attempt"]))

    def attempts(self, arm_name: str) -> int:
        """Return the number of the attempt that finished the arm, or of its last one, or 0."""
        done = read_done(self.run.folder, arm_name)
        if done is not None:
            return int(done["attempt"])
        return next_attempt(arm_folder(self.run.folder, arm_name)) - 1

    def document(self, name: str) -> Any:
        """Return a JSON document of the run, or None where it has none."""
        path = self.run.folder / name
        return parse_json(read_regular(path), where=name) if path.exists() else None

    def timings(self) -> tuple[Row, ...] | None:
        """Return the measured wall seconds by stage, or None where none were kept."""
        path = self.run.folder / TIMINGS_NAME
        return read_jsonl(path) if path.exists() else None

    def shown(self, text: str) -> str:
        """Return a text of the run fit to be shown: no secret, nothing that moves other text."""
        return visible(self.redactor.redact(well_formed(text)))


def read_source(folder: Path, gsm8k_dir: Path | None, redactor: Redactor) -> Source:
    """Read a run.

    Raises:
        HarnessError: when the plan, the spec's copy or a record of the run is damaged.
        OSError: when the run has no result document.
    """
    run = read_plan(folder, gsm8k_dir)
    path = folder / DECISION_NAME
    decision = parse_json(read_regular(path), where=DECISION_NAME) if path.exists() else None
    result = read_result(folder / RESULT_NAME)
    return Source(run, result, decision, _predictions(run), redactor)


def _predictions(run: PlannedRun) -> dict[str, list[Row]]:
    """Return the rows by arm: a row says itself whose it is, whatever file it is in."""
    names = (BASE_ARM, *(arm.name for arm in run.spec.arms))
    found: dict[str, list[Row]] = {name: [] for name in names}
    for path in sorted((run.folder / "predictions").glob("*.jsonl")):
        for row in read_jsonl(path):
            found.setdefault(row["arm"], []).append(row)
    return {arm: rows for arm, rows in found.items() if rows}


def well_formed(text: str) -> str:
    """Return a text that UTF-8 can hold: a lone surrogate becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def visible(text: str) -> str:
    """Spell out control characters and those that turn the direction of writing."""
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    is_control = unicodedata.category(character) == "Cc" and character not in "\n\t"
    return f"\\u{ord(character):04x}" if is_control or character in _BIDI else character


def without_paths(text: str) -> str:
    """Replace a path on the machine that ran by its last part."""
    return _PATH.sub(r"…/\1", text)


def rounded(value: float) -> float:
    """Return a computed number to 12 digits, so that another machine's libm gives the same."""
    return float(f"{value:.12g}")
