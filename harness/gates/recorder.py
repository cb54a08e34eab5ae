"""What a gate measures: a value, the range it must lie in, and what a miss would have done.

A measurement is stored with its rule, so that the verdict can be recomputed from the record
alone (contract §4: a self-declared pass flag is ignored).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import GateError

Scalar = float | int | str | bool
_DIGEST = re.compile(r"[0-9a-f]{64}")


def within(value: Scalar, rule: Mapping[str, Any]) -> bool:
    """Recompute whether ``value`` obeys ``rule``.

    Rules: ``{"at_most": x}``, ``{"at_least": x}``, both together (a closed range),
    ``{"equals": v}``, ``{"one_of": [...]}``, ``{"above": x}`` (strict), ``{"below": x}`` (strict).
    A non-finite number is never inside anything; an empty rule allows nothing, and so does a
    bound that is not finite: it could never be missed.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return bool(rule) and all(_obeys(value, key, bound) for key, bound in rule.items())


def _obeys(value: Scalar, key: str, bound: Any) -> bool:
    if key == "equals":
        return type(value) is type(bound) and value == bound
    if key == "one_of":
        same = [item for item in bound if type(item) is type(value) and item == value]
        return isinstance(bound, list | tuple) and bool(same)
    if isinstance(value, str | bool) or isinstance(bound, str | bool) or not math.isfinite(bound):
        return False
    comparisons = {
        "at_most": value <= bound,
        "at_least": value >= bound,
        "above": value > bound,
        "below": value < bound,
    }
    return comparisons.get(key, False)


def render_rule(rule: Mapping[str, Any]) -> str:
    """Say a rule in a few characters, for the one-line summary of a gate."""
    symbols = {"at_most": "≤", "at_least": "≥", "above": ">", "below": "<", "equals": "="}
    parts = [
        f"in {list(bound)}" if key == "one_of" else f"{symbols.get(key, key)} {short(bound)}"
        for key, bound in rule.items()
    ]
    return " and ".join(parts)


def short(value: Any) -> str:
    """Return a value for one line: numbers to four digits, digests by their first twelve."""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return f"{text[:12]}…" if _DIGEST.fullmatch(text) else text


def _strict(value: Any) -> Any:
    """Return the value as strict JSON can hold it: a number that is not finite by its name."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Miss:
    """A measurement outside its rule, and what it would have done to a run."""

    name: str
    value: Any
    rule: Mapping[str, Any]
    where: str
    effect: str


class GateRecorder:
    """Collects the measurements of one gate while its test runs.

    Args:
        gate_id: the id in ``harness.gates.catalog``.
        clause: the contract clause the gate stands for.
        spec_option: the option that names the spec, where it is not the default one.
    """

    def __init__(self, gate_id: str, clause: str, spec_option: str = "") -> None:
        self.gate_id = gate_id
        self.clause = clause
        self.reproduce = f"pytest -m preflight -k {gate_id} {spec_option}".strip()
        self.measures: list[dict[str, Any]] = []
        self.notes: dict[str, Any] = {}
        self.miss: Miss | None = None

    def check(self, name: str, value: Scalar, *, effect: str, where: str = "", **rule: Any) -> None:
        """Record a measurement and stop the gate if it is outside its rule.

        Args:
            name: the quantity, with its unit where it has one.
            value: what was measured.
            effect: what a run with such a value would have shown or hidden.
            where: place of the worst case (batch, arm, item).
            rule: see :func:`within`.

        Raises:
            GateError: naming clause, measured, allowed and effect.
        """
        __tracebackhide__ = True  # pytest shows the gate's own line, not this one
        stored, kept = _strict(value), {key: _strict(bound) for key, bound in rule.items()}
        inside = within(value, rule)
        self.measures.append({"name": name, "value": stored, "rule": kept, "where": where})
        if not inside:
            self.miss = Miss(name, stored, kept, where, effect)
            raise GateError(
                f"gate {self.gate_id} ({self.clause}): {name} is outside what is allowed; {effect}",
                expected=f"{name} {render_rule(rule)}",
                found=short(value),
                where=where,
                fix=self.reproduce,
            )

    def note(self, name: str, value: Any) -> None:
        """Keep a diagnostic that decides nothing (a table, a digest, an example)."""
        self.notes[name] = value


def measures_ok(measures: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Recompute every stored measurement against its own stored rule."""
    return [within(measure["value"], measure["rule"]) for measure in measures]
