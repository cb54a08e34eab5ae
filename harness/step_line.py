"""What a person sees of one training step: a plain line, or one with a bar and colour on a TTY."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from harness.stage import LineFollower

BAR_COLUMNS = 16
NARROWEST_BAR = 100
"""Columns below which the bar is left out: the numbers matter more."""


@dataclass(frozen=True, slots=True)
class SeenStep:
    """One step as it appeared in ``steps.jsonl``.

    Attributes:
        arm: the training's name.
        done: steps done, this one included.
        steps: steps planned.
        left_s: seconds left at the mean rate of the steps seen.
        row: the step's row.
    """

    arm: str
    done: int
    steps: int
    left_s: float
    row: Mapping[str, Any]


ShowStep = Callable[[SeenStep], None]


class StepProgress:
    """Hands on every new line of ``steps.jsonl``, with the time left.

    Args:
        path: the attempt's ``steps.jsonl``, there or not yet.
        steps: steps planned.
        shows: who is told of each step, in this order.
    """

    def __init__(self, path: Path, steps: int, shows: Iterable[ShowStep]) -> None:
        self.follower = LineFollower(path)
        self.steps = steps
        self.shows = tuple(shows)
        self._spent_s = 0.0
        self._seen = 0

    def __call__(self) -> None:
        """Tell every step that was finished since the last call."""
        for row in self.follower.new_rows():
            done = row["step"] + 1
            self._spent_s += row["step_s"]
            self._seen += 1
            left_s = self._spent_s / self._seen * (self.steps - done)
            step = SeenStep(row["arm"], done, self.steps, left_s, row)
            for show in self.shows:
                show(step)


def plain_line(step: SeenStep) -> str:
    """Return one step as a line for logs and pipes."""
    return f"{step.arm} step {step.done}/{step.steps}  {'  '.join(_parts(step))}"


def _parts(step: SeenStep) -> list[str]:
    row = step.row
    return [
        f"reward {row['reward_mean']:.3f}",
        f"accuracy {row['accuracy']:.3f}",
        f"format {row['format']:.3f}",
        f"truncated {row['truncation']:.3f}",
        f"loss {row['loss_sum']:.2f}",
        f"gap {row['sampler_trainer_gap']['max_abs']:.1e}",
        f"{row['step_s']:.2f} s a step",
        f"{duration(step.left_s)} left",
    ]


def duration(seconds: float) -> str:
    """Return a time in the unit a person would use."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def coloured_line(step: SeenStep, columns: int) -> str:
    """Return one step as a line of exactly one terminal row, with control codes.

    Args:
        step: the step.
        columns: the terminal's width; what does not fit is cut, never wrapped.
    """
    *middle, rate, left = _parts(step)
    full = BAR_COLUMNS * step.done // step.steps
    line = Text.assemble(
        (step.arm, "green"), (f" {step.done:{len(str(step.steps))}}/{step.steps} ", "bold")
    )
    if columns >= NARROWEST_BAR:
        line.append("━" * full, "green").append("━" * (BAR_COLUMNS - full), "bright_black")
        line.append(" ")
    line.append(left, "cyan").append(f"  {rate}  ", "bright_black").append("  ".join(middle))
    line.truncate(columns, overflow="ellipsis")
    page = io.StringIO()
    screen = Console(file=page, force_terminal=True, color_system="standard", width=columns)
    screen.print(line, no_wrap=True, end="", highlight=False)
    return page.getvalue()
