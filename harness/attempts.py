"""The attempts at one arm, and its steps put together from them.

An arm that was cut off is continued by a new attempt, from the last state that the service kept:
``attempt-NN/resumed.json`` says from which step and of which attempt. Each attempt writes rows of
its own and none is ever changed. A step counts once, in the attempt that was taken last; what an
earlier attempt did after the state it was continued from is superseded and stays on disk.
Everything that would leave open which row counts is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.digest import parse_json
from harness.errors import ArmError, StoreError
from harness.reading import read_regular
from harness.store import TornLineError, read_jsonl

RESUMED_NAME = "resumed.json"
RESTORED_NAME = "restored.json"
STEPS_NAME = "steps.jsonl"
ROLLOUTS_NAME = "rollouts.jsonl"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Attempt:
    """One attempt at an arm.

    Attributes:
        number: from 1, in the order of their starts.
        first_step: the step it starts with.
        continues: attempt whose saved state it continues; None: the run's initial state.
    """

    number: int
    first_step: int = 0
    continues: int | None = None

    def folder(self, arm: Path) -> Path:
        """Return its folder inside the arm's."""
        return arm / f"attempt-{self.number:02d}"


def read_attempts(arm: Path) -> tuple[Attempt, ...]:
    """Return the attempts in an arm's folder, in the order of their starts.

    Raises:
        StoreError: for a ``resumed.json`` that is not of its attempt.
    """
    found = [_read_attempt(path) for path in arm.glob("attempt-*")]
    return tuple(sorted(found, key=lambda attempt: attempt.number))


def _read_attempt(folder: Path) -> Attempt:
    number = int(folder.name.removeprefix("attempt-"))
    path = folder / RESUMED_NAME
    if not path.exists():
        return Attempt(number)
    where = f"{folder.name}/{RESUMED_NAME}"
    document = parse_json(read_regular(path), where=where)
    found = (document.get("attempt"), document.get("step"), document.get("continues"))
    if found[0] != number or any(type(value) is not int or value < 1 for value in found):
        raise StoreError(
            "an attempt does not say where it continues",
            expected=f"attempt {number}, a step and an earlier attempt, each from 1",
            found=str(found),
            where=where,
            fix="start a new run with --fresh",
        )
    return Attempt(number, document["step"], document["continues"])


def lineage(attempts: Sequence[Attempt], last: int) -> tuple[Attempt, ...]:
    """Return the attempts whose training the last one rests on, the first one first.

    Raises:
        ArmError: when an attempt is missing, continues no earlier one, or goes back before its
            start.
    """
    known = {attempt.number: attempt for attempt in attempts}
    if last not in known:
        raise _ambiguous(f"attempt {last}", f"attempts {sorted(known)}")
    line = [known[last]]
    while (before := line[0].continues) is not None:
        if before not in known or before >= line[0].number:
            raise _ambiguous(
                f"attempt {line[0].number} to continue an earlier attempt", f"attempt {before}"
            )
        if known[before].first_step > line[0].first_step:
            raise _ambiguous(
                f"attempt {line[0].number} to start in or after attempt {before}",
                f"step {line[0].first_step}, before its step {known[before].first_step}",
            )
        line.insert(0, known[before])
    if line[0].first_step != 0:
        raise _ambiguous("a first attempt that starts with step 0", f"step {line[0].first_step}")
    return tuple(line)


def counted_steps(
    attempts: Sequence[Attempt], last: int, rows: Mapping[int, Sequence[Row]], steps: int
) -> tuple[Row, ...]:
    """Return one row a step, each from the attempt that was taken last.

    Args:
        attempts: every attempt of the arm.
        last: number of the attempt that finished it.
        rows: attempt → its lines of ``steps.jsonl``; for one that was cut off, its whole lines.
        steps: how many steps the arm has.

    Raises:
        ArmError: for a step twice in one attempt, a gap, a row of another attempt, a step more
            than planned, or a later attempt's row of a step that the last one does not rest on.
    """
    for attempt in attempts:
        _refuse_disorder(attempt, rows.get(attempt.number, ()))
    line = lineage(attempts, last)
    counted: list[Row] = []
    for attempt, end in zip(line, _ends(line, steps), strict=True):
        own = [row for row in rows.get(attempt.number, ()) if row["step"] < end]
        found = [row["step"] for row in own]
        if found != list(range(attempt.first_step, end)):
            raise _ambiguous(
                f"steps {attempt.first_step} to {end - 1} of attempt {attempt.number}",
                f"{len(found)} of them",
            )
        _refuse_newer(attempt, end, attempts, rows)
        counted += own
    if extra := [row["step"] for row in rows.get(last, ()) if row["step"] >= steps]:
        raise _ambiguous(f"{steps} steps", f"step {extra[0]} in attempt {last}")
    return tuple(counted)


def counted_rollouts(
    attempts: Sequence[Attempt], last: int, rows: Mapping[int, Sequence[Row]], steps: int
) -> tuple[Row, ...]:
    """Return the rollouts of every counted step, from the attempt that the step counts in.

    Args:
        attempts, last, steps: as for :func:`counted_steps`, which must accept them first.
        rows: attempt → its lines of ``rollouts.jsonl``.
    """
    line = lineage(attempts, last)
    return tuple(
        row
        for attempt, end in zip(line, _ends(line, steps), strict=True)
        for row in rows.get(attempt.number, ())
        if attempt.first_step <= row["step"] < end
    )


def _ends(line: Sequence[Attempt], steps: int) -> list[int]:
    return [*(attempt.first_step for attempt in line[1:]), steps]


def _refuse_disorder(attempt: Attempt, rows: Sequence[Row]) -> None:
    """Refuse an attempt with a step twice, a gap, or a row that says it is another's."""
    found = [row["step"] for row in rows]
    expected = list(range(attempt.first_step, attempt.first_step + len(rows)))
    if found != expected:
        at = next(
            i for i, (step, due) in enumerate(zip(found, expected, strict=True)) if step != due
        )
        raise _ambiguous(
            f"step {expected[at]} in line {at + 1} of attempt {attempt.number}",
            f"step {found[at]}",
        )
    foreign = [row for row in rows if row.get("attempt") != attempt.number]
    if foreign:
        raise _ambiguous(
            f"rows of attempt {attempt.number} only",
            f"step {foreign[0]['step']} of attempt {foreign[0].get('attempt')}",
        )


def _refuse_newer(
    counted: Attempt, end: int, attempts: Iterable[Attempt], rows: Mapping[int, Sequence[Row]]
) -> None:
    for other in attempts:
        if other.number > counted.number:
            found = [row["step"] for row in rows.get(other.number, ()) if row["step"] < end]
            if found:
                raise _ambiguous(
                    f"step {found[0]} in no attempt after {counted.number}",
                    f"it is in attempt {other.number}, which the arm does not rest on",
                )


def _ambiguous(expected: str, found: str) -> ArmError:
    return ArmError(
        "the attempts at an arm do not make one training run",
        expected=expected,
        found=found,
        where=STEPS_NAME,
        fix="start a new run with --fresh; this one stays as it is",
    )


def whole_rows(path: Path) -> tuple[dict[str, Any], ...]:
    """Return the complete rows of a file whose writer may have been cut off; none without it.

    Raises:
        DocumentError: for a whole line that is no row.
    """
    if not path.exists():
        return ()
    try:
        return read_jsonl(path)
    except TornLineError as torn:
        return torn.rows


def arm_steps(arm: Path, done: Row) -> tuple[Row, ...]:
    """Return the counted lines of ``steps.jsonl`` of an arm that has finished.

    Args:
        arm: the arm's folder.
        done: its ``done.json``.

    Raises:
        ArmError: as :func:`counted_steps`.
    """
    attempts = read_attempts(arm)
    return counted_steps(attempts, done["attempt"], _rows(arm, attempts, STEPS_NAME), done["steps"])


def arm_rollouts(arm: Path, done: Row) -> tuple[Row, ...]:
    """Return the rollouts of the counted steps of an arm that has finished."""
    attempts = read_attempts(arm)
    rows = _rows(arm, attempts, ROLLOUTS_NAME)
    return counted_rollouts(attempts, done["attempt"], rows, done["steps"])


def _rows(arm: Path, attempts: Sequence[Attempt], name: str) -> dict[int, Sequence[Row]]:
    return {attempt.number: whole_rows(attempt.folder(arm) / name) for attempt in attempts}


def arm_lineage(arm: Path, done: Row) -> tuple[Attempt, ...]:
    """Return the attempts that a finished arm rests on, the first one first."""
    return lineage(read_attempts(arm), done["attempt"])


def arm_restores(arm: Path, first: int) -> list[dict[str, Any]]:
    """Return every ``restored.json`` of the attempts after number ``first``, in order.

    A restore counts although its attempt was cut off before it trained (contract §3).
    """
    paths = [
        attempt.folder(arm) / RESTORED_NAME
        for attempt in read_attempts(arm)
        if attempt.number > first
    ]
    return [parse_json(read_regular(path), where=path.name) for path in paths if path.exists()]
