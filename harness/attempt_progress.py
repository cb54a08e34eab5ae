"""What a person sees of an arm in training: where an attempt goes on, then each step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.attempts import RESUMED_NAME, STEPS_NAME
from harness.digest import parse_json
from harness.reading import read_regular
from harness.stage import Report
from harness.step_line import ShowStep, StepProgress


class AttemptProgress:
    """Reports an attempt's start when it continues another, and every step it finishes.

    Args:
        arm_name: the arm.
        folder: the attempt's folder, there or not yet.
        steps: how many steps the arm has.
        report: shows one line.
        shows: who is told of each step.
    """

    def __init__(
        self, arm_name: str, folder: Path, steps: int, report: Report, shows: Iterable[ShowStep]
    ) -> None:
        self.arm_name = arm_name
        self.resumed = folder / RESUMED_NAME
        self.steps = steps
        self.report = report
        self.progress = StepProgress(folder / STEPS_NAME, steps, shows)
        self._told = False

    def __call__(self) -> None:
        """Report what is new since the last call."""
        if not self._told and self.resumed.exists():
            found = parse_json(read_regular(self.resumed), where=RESUMED_NAME)
            self.report(
                f"{self.arm_name} continues after step {found['step']}/{self.steps}, from the state"
                f" that attempt {found['continues']} saved; this is attempt {found['attempt']}"
            )
            self._told = True
        self.progress()
