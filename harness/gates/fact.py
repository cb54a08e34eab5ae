"""A measured fact: a value, the rule it must obey, and what a miss would have done.

Measuring functions return facts instead of raising, so that one function serves a gate's test
(:meth:`Measured.record`) and the planted defects that must break it (:meth:`Measured.failures`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import NotOfferedError
from harness.gates.recorder import GateRecorder, Scalar, within

VACUOUS = "too little was compared for the gate to mean anything"
"""Effect of a fact that only shows that the others had something to compare."""


@dataclass(frozen=True)
class Fact:
    """One measurement.

    Attributes:
        name: the quantity, with its unit where it has one.
        value: what was measured.
        rule: what is allowed, as in :func:`harness.gates.recorder.within`.
        effect: what a run with a value outside the rule would have shown or hidden.
        where: place of the worst case.
    """

    name: str
    value: Scalar
    rule: Mapping[str, Any]
    effect: str
    where: str = ""

    @property
    def holds(self) -> bool:
        """Whether the value obeys its rule."""
        return within(self.value, self.rule)


@dataclass(frozen=True)
class Measured:
    """What one measuring function found.

    Attributes:
        facts: what decides, in the order in which a gate checks it.
        notes: diagnostics that decide nothing, strict JSON.
        lacking: what the service does not report, each with its route; without it the gate is
            unknown at best.
    """

    facts: tuple[Fact, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()

    def failures(self) -> list[Fact]:
        """Return the facts that break their rules."""
        return [fact for fact in self.facts if not fact.holds]

    def record(self, gate: GateRecorder) -> None:
        """Hand notes and facts to a gate.

        Raises:
            GateError: at the first fact outside its rule.
            NotOfferedError: when every fact holds and something is lacking.
        """
        for name, value in self.notes.items():
            gate.note(name, value)
        for fact in self.facts:
            gate.check(fact.name, fact.value, effect=fact.effect, where=fact.where, **fact.rule)
        if self.lacking:
            raise NotOfferedError("; ".join(self.lacking))
