"""A row of the table: what was measured, what it may be, and why it misses where it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["met", "missed", "not measured", "figure"]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: what.
        against: what it is compared with.
        value: the measured figure; None where nothing was measured.
        unit: of the figure; ``x`` for a ratio.
        most, least: what the figure may be at most, or must be at least; neither: just a figure.
        why: why it misses, or is not measured; shown then only.
        note: what belongs beside the figure whatever it is.
        facts: everything behind the figure, for the JSON file.
    """

    name: str
    against: str
    value: float | None
    unit: str
    most: float | None = None
    least: float | None = None
    why: str = ""
    note: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """Whether the figure is within reach."""
        if self.value is None:
            return "not measured"
        if self.most is None and self.least is None:
            return "figure"
        above = self.most is not None and self.value > self.most
        below = self.least is not None and self.value < self.least
        return "missed" if above or below else "met"

    def reach(self) -> str:
        """Return what is allowed, in words."""
        if self.most is not None:
            return f"≤ {self.most:g} {self.unit}"
        return f"≥ {self.least:g} {self.unit}" if self.least is not None else ""

    def by_how_much(self) -> str:
        """Return how far a missed figure is from its reach."""
        limit = self.most if self.most is not None else self.least
        if self.outcome != "missed" or self.value is None or not limit:
            return ""
        return f"{abs(self.value / limit - 1):.0%}"

    def to_json(self) -> dict[str, Any]:
        """Return the row with its outcome."""
        return {**asdict(self), "outcome": self.outcome, "by_how_much": self.by_how_much()}


def figure(value: float | None, unit: str) -> str:
    """Return a figure with three digits that count."""
    return "–" if value is None else f"{value:.3g} {unit}"


def table(rows: Sequence[Row]) -> list[str]:
    """Return the table, a line a row, and under a row that misses by how much and why."""
    width = max(len(row.name) for row in rows)
    lines = []
    for row in rows:
        lines.append(
            f"{row.outcome:12}  {row.name:{width}}  {figure(row.value, row.unit):>12}"
            f"  {row.reach():>10}  against: {row.against}"
        )
        if row.outcome == "missed":
            lines.append(f"{'':14}missed by {row.by_how_much()}, because {row.why}")
        elif row.outcome == "not measured":
            lines.append(f"{'':14}not measured: {row.why}")
        if row.note:
            lines.append(f"{'':14}{row.note}")
    counts = {name: sum(row.outcome == name for row in rows) for name in Outcome.__args__}
    return [*lines, ", ".join(f"{count} {name}" for name, count in counts.items())]
