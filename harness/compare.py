"""``python -m harness compare A B``: two runs side by side, part by part and field by field.

It shows what a change of the spec did, and that a run that was interrupted equals one that was not.
Logs and the stock loop's own files are not compared. What cannot be read, or is missing, is unknown
and never equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.compare_arms import counted_rollouts_of, counted_steps_of, of_attempt, result_of
from harness.compare_gates import content_of_gates, gates_of
from harness.compared_files import Comparer, document, rows_of
from harness.comparison import Difference, compare_rows, compare_values
from harness.digest import sha256_file
from harness.errors import HarnessError
from harness.gates.verdict import Outcome, combine
from harness.run_files import INITIAL_NAME, PLAN_NAME, SPEC_COPY_NAME

EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNKNOWN: 3}
PINS_COPY_NAME = "spec.pins.json"
SHOWN = 12
EXPECTED_WORDS = "names, times, attempts, addresses, rounding"
_UNREADABLE = (HarnessError, OSError, LookupError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True)
class Part:
    """One part of two runs.

    Attributes:
        name: what was compared.
        differences: where they differ, expected ones included.
        unknown: why the part could not be compared; empty when it was.
    """

    name: str
    differences: tuple[Difference, ...] = ()
    unknown: str = ""

    @property
    def outcome(self) -> Outcome:
        """Equal but for what is expected, different, or unknown."""
        if self.unknown:
            return Outcome.UNKNOWN
        differs = any(found.kind == "different" for found in self.differences)
        return Outcome.FAIL if differs else Outcome.PASS


def compare_runs(first: Path, second: Path) -> list[Part]:
    """Compare two runs' folders part by part."""
    folders = first.resolve(), second.resolve()
    return [_part(name, compare, folders) for name, compare in _parts(folders)]


def _part(name: str, compare: Comparer, folders: tuple[Path, Path]) -> Part:
    try:
        return Part(name, tuple(compare(*folders)))
    except _UNREADABLE as error:
        return Part(name, unknown=_reason(error, folders))


def _reason(error: BaseException, folders: tuple[Path, Path]) -> str:
    """Say which run lacks what, by the file's place inside the run."""
    if isinstance(error, FileNotFoundError) and error.filename:
        path = Path(error.filename)
        for label, folder in zip(("first", "second"), folders, strict=True):
            if path.is_relative_to(folder):
                return f"the {label} run has no {path.relative_to(folder)}"
    return f"{type(error).__name__}: {error}"


def _parts(folders: tuple[Path, Path]) -> Iterator[tuple[str, Comparer]]:
    yield "spec", _json(SPEC_COPY_NAME)
    if any((folder / PINS_COPY_NAME).exists() for folder in folders):
        yield "pins", _json(PINS_COPY_NAME)
    yield "plan", _json(PLAN_NAME)
    yield "content", content_of_gates
    yield "gates", gates_of
    yield "initial state", _json(INITIAL_NAME)
    yield "initial adapter", _files("initial_adapter")
    for arm in _names(folders, "arms/*"):
        yield f"{arm}: end", _json(f"arms/{arm}/done.json")
        yield f"{arm}: start", of_attempt(arm, "start.json", first_one=True)
        yield f"{arm}: effective_config", of_attempt(arm, "effective_config.json")
        yield f"{arm}: steps", counted_steps_of(arm)
        yield f"{arm}: rollouts", counted_rollouts_of(arm)
    yield "evaluator", _json("evaluator.json")
    for name in _names(folders, "predictions/*.jsonl"):
        yield f"predictions {name.removesuffix('.jsonl')}", _rows(f"predictions/{name}", "item_id")
    yield "observations", _rows("observations.jsonl", "arm", "metric", "item_id", "seed")
    yield "decision", _json("decision.json")
    yield "result", result_of


def _names(folders: tuple[Path, Path], pattern: str) -> list[str]:
    return sorted({path.name for folder in folders for path in folder.glob(pattern)})


def _json(name: str) -> Comparer:
    def compare(first: Path, second: Path) -> Iterator[Difference]:
        yield from compare_values(document(first / name), document(second / name))

    return compare


def _rows(name: str, *keys: str) -> Comparer:
    def compare(first: Path, second: Path) -> Iterator[Difference]:
        yield from compare_rows(rows_of(first / name), rows_of(second / name), keys)

    return compare


def _files(name: str) -> Comparer:
    def compare(first: Path, second: Path) -> Iterator[Difference]:
        ours, theirs = (
            {path.name: sha256_file(path) for path in (folder / name).iterdir() if path.is_file()}
            for folder in (first, second)
        )
        yield from compare_values(ours, theirs)

    return compare


def report_lines(first: Path, second: Path, parts: list[Part]) -> list[str]:
    """Return one line a part, one a difference, what was expected to differ, and the sum of it."""
    lines = [f"first  {first.resolve().name}", f"second {second.resolve().name}"]
    for part in parts:
        lines += _part_lines(part)
    expected = [
        f"  {part.name}: {found.place}" + (f" in {found.rows} rows" if found.rows > 1 else "")
        for part in parts
        for found in part.differences
        if found.kind == "expected"
    ]
    lines.append(f"expected to differ ({EXPECTED_WORDS}): {len(expected)} fields")
    counts = {
        word: sum(part.outcome is outcome for part in parts)
        for word, outcome in (
            ("equal", Outcome.PASS),
            ("different", Outcome.FAIL),
            ("unknown", Outcome.UNKNOWN),
        )
    }
    said = ", ".join(f"{count} {word}" for word, count in counts.items())
    lines += [*expected, f"{len(parts)} parts compared: {said}"]
    # Equal runs may both be wrong, and of two different ones either may be.
    return [*lines, *(f"next: python -m harness verify {run}" for run in (first, second))]


def _part_lines(part: Part) -> list[str]:
    if part.unknown:
        return [f"unknown    {part.name}: {part.unknown}"]
    real = [found for found in part.differences if found.kind == "different"]
    if not real:
        return [f"equal      {part.name}"]
    lines = [f"different  {part.name}: {len(real)} fields"]
    lines += [f"  {_difference_line(found)}" for found in real[:SHOWN]]
    more = len(real) - SHOWN
    return [*lines, f"  and {more} more"] if more > 0 else lines


def _difference_line(found: Difference) -> str:
    rows = f" in {found.rows} rows" if found.rows > 1 else ""
    return f"{found.place}{rows}: {_short(found.first)} | {_short(found.second)}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def exit_code(parts: list[Part]) -> int:
    """Return 0: equal but for what is expected, 1: different, 3: something is unknown."""
    return EXIT_CODES[combine(part.outcome for part in parts)]
