"""The steps of an arm as they stand now, finished, at work or cut off, over all its attempts."""

from __future__ import annotations

from pathlib import Path

from harness.attempts import RESUMED_NAME, STEPS_NAME, Row, lineage, read_attempts, whole_rows


def steps_so_far(arm: Path, finished_by: int | None = None) -> tuple[Row, ...]:
    """Return the step rows that the arm's newest training rests on, in the order of the steps.

    What an attempt did after the state that the next one continues is superseded and left out.

    Args:
        arm: the arm's folder.
        finished_by: the attempt that finished it; None: the newest that left a trace.

    Raises:
        ArmError: when attempts do not continue each other.
    """
    attempts = read_attempts(arm)
    rows = {found.number: whole_rows(found.folder(arm) / STEPS_NAME) for found in attempts}
    begun = [
        found.number
        for found in attempts
        if rows[found.number] or (found.folder(arm) / RESUMED_NAME).exists()
    ]
    if not begun:
        return ()
    line = lineage(attempts, finished_by or begun[-1])
    later = [*(found.first_step for found in line[1:]), None]
    return tuple(
        row
        for found, end in zip(line, later, strict=True)
        for row in rows[found.number]
        if end is None or row["step"] < end
    )
