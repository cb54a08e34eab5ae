"""``python -m harness compare A B``: two runs side by side, part by part and field by field.

It shows what a change of the spec did, and that a run that was interrupted equals one that was not.
Logs and the stock loop's own files are not compared. What cannot be read, or is missing, is unknown
and never equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.attempts import arm_lineage, arm_rollouts, arm_steps
from harness.comparison import Difference, compare_rows, compare_values
from harness.digest import canonical_json, parse_json, sha256_file
from harness.errors import HarnessError
from harness.gates.evidence import SessionEvidence, read_history
from harness.gates.verdict import Outcome, combine
from harness.reading import read_regular
from harness.run_files import GATES_FOLDER, INITIAL_NAME, PLAN_NAME, RESULT_NAME, SPEC_COPY_NAME
from harness.store import read_jsonl

EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNKNOWN: 3}
PINS_COPY_NAME = "spec.pins.json"
SHOWN = 12
EXPECTED_WORDS = "names, times, attempts, addresses, rounding"
_UNREADABLE = (HarnessError, OSError, LookupError, TypeError, ValueError, AttributeError)
_TIMED = ("seconds", "GPU-hours")
"""Words of the quantities of a gate that are clocks."""


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


Comparer = Callable[[Path, Path], Iterator[Difference]]


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
    yield "content", _content
    yield "gates", _gates
    yield "initial state", _json(INITIAL_NAME)
    yield "initial adapter", _files("initial_adapter")
    for arm in _names(folders, "arms/*"):
        yield f"{arm}: end", _json(f"arms/{arm}/done.json")
        yield f"{arm}: start", _of_attempt(arm, "start.json", first_one=True)
        yield f"{arm}: effective_config", _of_attempt(arm, "effective_config.json")
        yield f"{arm}: steps", _steps(arm)
        yield f"{arm}: rollouts", _rollouts(arm)
    yield "evaluator", _json("evaluator.json")
    for name in _names(folders, "predictions/*.jsonl"):
        yield f"predictions {name.removesuffix('.jsonl')}", _rows(f"predictions/{name}", "item_id")
    yield "observations", _rows("observations.jsonl", "arm", "metric", "item_id", "seed")
    yield "decision", _json("decision.json")
    yield "result", _result


def _names(folders: tuple[Path, Path], pattern: str) -> list[str]:
    return sorted({path.name for folder in folders for path in folder.glob(pattern)})


def _json(name: str) -> Comparer:
    def compare(first: Path, second: Path) -> Iterator[Difference]:
        yield from compare_values(_document(first / name), _document(second / name))

    return compare


def _rows(name: str, *keys: str) -> Comparer:
    def compare(first: Path, second: Path) -> Iterator[Difference]:
        yield from compare_rows(_jsonl(first / name), _jsonl(second / name), keys)

    return compare


def _of_attempt(arm: str, name: str, *, first_one: bool = False) -> Comparer:
    """Compare a file of the attempts that began, or finished, the arm, whatever their numbers."""

    def compare(first: Path, second: Path) -> Iterator[Difference]:
        ours, theirs = (
            _lineage(folder, arm)[0 if first_one else -1] / name for folder in (first, second)
        )
        yield from compare_values(_document(ours), _document(theirs))

    return compare


def _steps(arm: str) -> Comparer:
    """Compare the steps that count, from whichever attempt each of them is."""

    def compare(first: Path, second: Path) -> Iterator[Difference]:
        ours, theirs = (arm_steps(*_finished(folder, arm)) for folder in (first, second))
        yield from compare_rows(ours, theirs, ("step",))

    return compare


def _rollouts(arm: str) -> Comparer:
    """Compare a step's rollouts of one prompt as a set: their order is that of their arrival."""

    def compare(first: Path, second: Path) -> Iterator[Difference]:
        ours, theirs = (
            _in_fixed_order(arm_rollouts(*_finished(folder, arm))) for folder in (first, second)
        )
        yield from compare_rows(ours, theirs, ("step", "item_id", "place"))

    return compare


def _in_fixed_order(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for row in rows:
        unplaced = {key: value for key, value in row.items() if key != "rollout"}
        groups.setdefault((row["step"], row["item_id"]), []).append(unplaced)
    return [
        {**row, "place": place}
        for group in groups.values()
        for place, row in enumerate(sorted(group, key=_content_key))
    ]


def _content_key(row: Mapping[str, Any]) -> tuple[str, bytes]:
    return str(row.get("completion_sha256", "")), canonical_json(dict(row))


def _finished(folder: Path, arm: str) -> tuple[Path, dict[str, Any]]:
    """Return the folder of an arm that has finished, and its ``done.json``."""
    return folder / "arms" / arm, _document(folder / "arms" / arm / "done.json")


def _lineage(folder: Path, arm: str) -> list[Path]:
    """Return the folders of the attempts that a finished arm rests on, the first one first."""
    parent, done = _finished(folder, arm)
    return [attempt.folder(parent) for attempt in arm_lineage(parent, done)]


def _result(first: Path, second: Path) -> Iterator[Difference]:
    ours, theirs = (
        _without_attempts(_document(folder / RESULT_NAME)) for folder in (first, second)
    )
    yield from compare_values(ours, theirs)


def _without_attempts(result: dict[str, Any]) -> dict[str, Any]:
    """Put what depends on interruptions under ``attempt``, and posted texts by their names.

    The rows that a text repeats are compared as a part of their own.
    """
    arms: dict[str, Any] = result.get("initialization_provenance", {}).get("arms", {})
    for record in arms.values():
        record["attempt"] = {
            "restore_count": record.pop("restore_count"),
            "later_checks": record["optimizer_checks"][1:],
        }
        record["optimizer_checks"] = record["optimizer_checks"][:1]
    if "evidence" in result:
        files = result["evidence"].pop("files")
        result["evidence"]["files"] = sorted(f"{file['kind']} {file['name']}" for file in files)
    return result


def _files(name: str) -> Comparer:
    def compare(first: Path, second: Path) -> Iterator[Difference]:
        ours, theirs = (
            {path.name: sha256_file(path) for path in (folder / name).iterdir() if path.is_file()}
            for folder in (first, second)
        )
        yield from compare_values(ours, theirs)

    return compare


def _document(path: Path) -> Any:
    if not path.exists():
        raise FileNotFoundError(2, "no such file", str(path))
    return parse_json(read_regular(path), where=path.name)


def _jsonl(path: Path) -> tuple[dict[str, Any], ...]:
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    return read_jsonl(path)


def _content(first: Path, second: Path) -> Iterator[Difference]:
    """Compare what the gates were bound to: files, versions, service."""
    ours, theirs = (
        [evidence.header["binding"] for evidence in _by_content(_relied_on(folder)).values()]
        for folder in (first, second)
    )
    yield from compare_values(ours, theirs)


def _by_content(relied: Mapping[str, SessionEvidence]) -> dict[str, SessionEvidence]:
    return {evidence.header["live_digest"]: evidence for evidence in relied.values()}


def _gates(first: Path, second: Path) -> Iterator[Difference]:
    ours, theirs = (
        {gate: _measured(gate, evidence) for gate, evidence in _relied_on(folder).items()}
        for folder in (first, second)
    )
    yield from compare_values(ours, theirs)


def _relied_on(folder: Path) -> dict[str, SessionEvidence]:
    """Return the session that each gate of the plan rested on, by gate."""
    sessions = {
        evidence.name.removesuffix(".jsonl"): evidence
        for evidence in read_history(folder / GATES_FOLDER)
    }
    planned: Mapping[str, Any] = _document(folder / PLAN_NAME)["gates"]
    absent = [gate for gate, entry in planned.items() if entry["session"] not in sessions]
    if absent:
        raise ValueError(f"{folder.name} keeps no evidence of {', '.join(absent)}")
    relied = {gate: sessions[entry["session"]] for gate, entry in planned.items()}
    broken = [evidence.broken for evidence in relied.values() if evidence.broken]
    if broken:
        raise ValueError(f"gate evidence refused: {broken[0]}")
    return relied


def _measured(gate: str, evidence: SessionEvidence) -> dict[str, Any]:
    """Return a gate's outcome and measurements; a quantity that is a clock goes under seconds."""
    record = [
        event for event in evidence.events if event["type"] == "gate" and event["gate"] == gate
    ][-1]
    measures = {
        item["name"]: {
            "rule": item["rule"],
            "seconds" if any(word in item["name"] for word in _TIMED) else "value": item["value"],
        }
        for item in record["measures"]
    }
    return {"outcome": record["outcome"], "measures": measures}


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
