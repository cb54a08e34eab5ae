"""Two runs' arms and results, whatever the attempts that each of them took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.attempts import arm_lineage, arm_rollouts, arm_steps
from harness.compared_files import Comparer, document
from harness.comparison import Difference, compare_rows, compare_values
from harness.digest import canonical_json
from harness.run_files import RESULT_NAME


def of_attempt(arm: str, name: str, *, first_one: bool = False) -> Comparer:
    """Compare a file of the attempts that began, or finished, the arm, whatever their numbers."""

    def compare(first: Path, second: Path) -> Iterator[Difference]:
        ours, theirs = (
            _lineage(folder, arm)[0 if first_one else -1] / name for folder in (first, second)
        )
        yield from compare_values(document(ours), document(theirs))

    return compare


def counted_steps_of(arm: str) -> Comparer:
    """Compare the steps that count, from whichever attempt each of them is."""

    def compare(first: Path, second: Path) -> Iterator[Difference]:
        ours, theirs = (arm_steps(*_finished(folder, arm)) for folder in (first, second))
        yield from compare_rows(ours, theirs, ("step",))

    return compare


def counted_rollouts_of(arm: str) -> Comparer:
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
    return folder / "arms" / arm, document(folder / "arms" / arm / "done.json")


def _lineage(folder: Path, arm: str) -> list[Path]:
    """Return the folders of the attempts that a finished arm rests on, the first one first."""
    parent, done = _finished(folder, arm)
    return [attempt.folder(parent) for attempt in arm_lineage(parent, done)]


def result_of(first: Path, second: Path) -> Iterator[Difference]:
    """Compare the result documents."""
    ours, theirs = (_without_attempts(document(folder / RESULT_NAME)) for folder in (first, second))
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
        # A patch is of the commit, which decides nothing: the content of the code is compared.
        result["evidence"]["files"] = sorted(
            f"{file['kind']} {file['name']}" for file in files if file["kind"] != "code_patch"
        )
    return result
