"""How many training steps a run has done, counted from its files."""

from __future__ import annotations

from pathlib import Path

from harness.digest import parse_json
from harness.reading import MAX_ROWS_BYTES, read_regular


class StepCounter:
    """Counts the steps of all arms; a step that several attempts trained counts once.

    Args:
        run_folder: the run's folder.
        arm_name: count this training's steps only.
    """

    def __init__(self, run_folder: Path, arm_name: str | None = None) -> None:
        self.arms = run_folder / "arms"
        self.arm_name = arm_name
        self._sizes: dict[Path, int] = {}
        self._steps: dict[Path, set[int]] = {}

    def __call__(self) -> int:
        """Return the number now; lines that are still being written do not count."""
        attempts = "attempt-*/steps.jsonl"
        arms, below = (
            (self.arms, f"*/{attempts}")
            if self.arm_name is None
            else (self.arms / self.arm_name, attempts)
        )
        for path in arms.glob(below):
            size = path.stat().st_size
            if self._sizes.get(path) != size:
                self._sizes[path] = size
                lines = read_regular(path, max_bytes=MAX_ROWS_BYTES).split(b"\n")[:-1]
                self._steps[path] = {
                    int(parse_json(line, where=path.name)["step"]) for line in lines
                }
        by_arm: dict[Path, set[int]] = {}
        for path, steps in self._steps.items():
            by_arm.setdefault(path.parent.parent, set()).update(steps)
        return sum(map(len, by_arm.values()))
