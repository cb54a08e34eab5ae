"""The preregistered decision rule as ``harness.decision`` computes with it (contract §1, §8).

Built from the spec's ``decision_rule`` mapping, once, and frozen: nothing may relax a margin, a
bound or the seed list after the spec is hashed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from harness.errors import DecisionError
from harness.record_version import refuse_other_version

METHOD = "paired_hoeffding"
UNIT = "fixed_checkpoint_items"
_LARGEST = 1e300  # keeps sums and products of the rule's numbers finite


@dataclass(frozen=True, slots=True)
class Arms:
    """The names of the two compared arms."""

    treatment: str
    baseline: str


@dataclass(frozen=True, slots=True)
class Criterion:
    """One requirement on the mean paired effect of one metric.

    The effect of an item is ``weight_treatment * value + weight_baseline * value``, in the
    metric's units; every value lies in [low, high].
    """

    id: str
    metric: str
    weight_treatment: float
    weight_baseline: float
    margin: float
    low: float
    high: float

    @property
    def effect_range(self) -> tuple[float, float]:
        """The smallest and largest effect that the weights and bounds allow."""
        ends = [
            sorted((weight * self.low, weight * self.high))
            for weight in (self.weight_treatment, self.weight_baseline)
        ]
        return ends[0][0] + ends[1][0], ends[0][1] + ends[1][1]

    @classmethod
    def from_spec(cls, fields: Mapping[str, Any], where: str) -> Self:
        """Build a criterion from its spec entry.

        Raises:
            DecisionError: for a missing or non-finite number, empty bounds, weights that are
                both 0, or a margin that no effect could miss or reach.
        """
        weights, bounds = _field(fields, "weights", where), _field(fields, "bounds", where)
        if not isinstance(bounds, list | tuple) or len(bounds) != 2:
            raise _refused("bounds are no pair", "[low, high]", bounds, f"{where}.bounds")
        criterion = cls(
            id=_text(_field(fields, "id", where), f"{where}.id"),
            metric=_text(_field(fields, "metric", where), f"{where}.metric"),
            weight_treatment=_weight(weights, "treatment", where),
            weight_baseline=_weight(weights, "baseline", where),
            margin=_number(_field(fields, "margin", where), f"{where}.margin"),
            low=_number(bounds[0], f"{where}.bounds[0]"),
            high=_number(bounds[1], f"{where}.bounds[1]"),
        )
        return criterion._checked(where)

    def _checked(self, where: str) -> Self:
        lowest, highest = self.effect_range
        varies = math.isfinite(lowest) and math.isfinite(highest) and lowest < highest
        if not self.low < self.high or not varies:
            found = f"bounds [{self.low}, {self.high}], effects [{lowest}, {highest}]"
            raise _refused("no effect can vary", "low < high, a weight that is not 0", found, where)
        if not lowest < self.margin < highest:
            allowed = f"between {lowest} and {highest}, the range of effects"
            raise _refused("a margin decides nothing", allowed, self.margin, f"{where}.margin")
        return self


@dataclass(frozen=True, slots=True)
class Rule:
    """The whole rule. ``alpha`` is used as it is for each criterion, never split among them."""

    estimand: str
    seeds: tuple[int, ...]
    alpha: float
    criteria: tuple[Criterion, ...]
    tie_band: tuple[float, float] | None = None

    @classmethod
    def from_spec(cls, fields: Mapping[str, Any]) -> Self:
        """Build the rule from a spec's ``decision_rule``.

        Raises:
            DecisionError: naming the field, what it holds and what is allowed.
        """
        _fixed(fields)
        seeds = _field(fields, "seeds", "decision_rule")
        if not _is_list_of_distinct(seeds) or any(type(seed) is not int for seed in seeds):
            raise _refused("bad seeds", "distinct integers, at least one", seeds, "seeds")
        alpha = _number(_field(fields, "alpha", "decision_rule"), "decision_rule.alpha")
        if not 0 < alpha < 1:
            raise _refused("alpha is no error probability", "0 < alpha < 1", alpha, "alpha")
        return cls(
            estimand=_text(_field(fields, "estimand", "decision_rule"), "decision_rule.estimand"),
            seeds=tuple(seeds),
            alpha=alpha,
            criteria=_criteria(_field(fields, "criteria", "decision_rule")),
            tie_band=_band(fields.get("tie_band")),
        )


def _fixed(fields: Mapping[str, Any]) -> None:
    refuse_other_version(fields, "decision rule", where="decision_rule", error=DecisionError)
    for name, allowed in (("method", METHOD), ("unit", UNIT)):
        found = _field(fields, name, "decision_rule")
        if found != allowed:
            raise _refused(f"unknown {name}", repr(allowed), found, f"decision_rule.{name}")


def _criteria(entries: object) -> tuple[Criterion, ...]:
    where = "decision_rule.criteria"
    if not isinstance(entries, list | tuple) or not entries:
        raise _refused("no criteria", "an array of at least one", entries, where)
    criteria = tuple(Criterion.from_spec(e, f"{where}[{at}]") for at, e in enumerate(entries))
    if not _is_list_of_distinct([criterion.id for criterion in criteria]):
        raise _refused("criteria share an id", "each id once", [c.id for c in criteria], where)
    return criteria


def _band(band: object) -> tuple[float, float] | None:
    where = "decision_rule.tie_band"
    if band is None:
        return None
    if not isinstance(band, list | tuple) or len(band) != 2:
        raise _refused("a tie band is no pair", "[low, high]", band, where)
    low, high = _number(band[0], where), _number(band[1], where)
    if low > high:
        raise _refused("a tie band is empty", "low <= high", band, where)
    return low, high


def _is_list_of_distinct(values: object) -> bool:
    if not isinstance(values, list | tuple) or not values:
        return False
    return len({repr(value) for value in values}) == len(values)


def _field(fields: object, name: str, where: str) -> Any:
    if not isinstance(fields, Mapping) or name not in fields:
        raise _refused("the rule lacks a field", name, "nothing", where)
    return fields[name]


def _weight(weights: object, role: str, where: str) -> float:
    if not isinstance(weights, Mapping) or set(weights) != {"treatment", "baseline"}:
        raise _refused("bad weights", "{treatment, baseline}", weights, f"{where}.weights")
    return _number(weights[role], f"{where}.weights.{role}")


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused("not a number", "a finite number", value, where)
    if not abs(value) <= _LARGEST:
        raise _refused("not a finite number", "a finite number", value, where)
    return float(value)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise _refused("not a text", "a non-empty string", value, where)
    return value


def _refused(problem: str, expected: str, found: object, where: str) -> DecisionError:
    return DecisionError(problem, expected=expected, found=repr(found)[:200], where=where)
