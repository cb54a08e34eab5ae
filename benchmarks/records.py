"""Records: a decision from 100 000 rows, and verifying a run, against merely reading the files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.measure import in_turns, peak_bytes
from benchmarks.rows import Row
from harness.completeness import Plan
from harness.decision import decide
from harness.decision_rule import Arms, Rule
from harness.digest import sha256_file
from harness.observations import read_observations
from harness.spec import load_spec
from harness.verify import verify_run

SEEDS = 4
EVALUATOR = "e"
MIB = 2**20


def write_observations(folder: Path, rows: int) -> dict[str, Any]:
    """Write rows of two arms and four seeds; return the decision document that names the file.

    Ids are short: with evaluator ids of 64 digits a file of 10 MiB, the most that a decision may
    name, ends at about 59 000 rows.
    """
    items = rows // (2 * SEEDS)
    lines = [
        json.dumps(
            {
                "item_id": item,
                "arm": arm,
                "seed": seed,
                "metric": "accuracy",
                "value": float((item * 7 + seed + (arm == "t")) % 3 == 0),
                "evaluator_id": EVALUATOR,
            }
        )
        for item in range(items)
        for arm in ("t", "b")
        for seed in range(SEEDS)
    ]
    path = folder / "observations.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return {"version": 1, "observations_file": {"name": path.name, "sha256": sha256_file(path)}}


def rule_and_plan(rows: int) -> tuple[Rule, Plan]:
    """Return the local spec's rule over four seeds, and the plan of as many items."""
    spec = load_spec(ROOT / "specs" / "local.json").spec
    fields = spec.decision_rule.model_dump(mode="json", exclude_unset=True)
    rule = Rule.from_spec(fields | {"seeds": list(range(SEEDS))})
    items = range(rows // (2 * SEEDS))
    return rule, Plan.of(rule, Arms("t", "b"), items, {"accuracy": EVALUATOR})


def decision(folder: Path, quick: bool) -> list[Row]:
    """Measure the decision from the file to the verdict."""
    count = 8_000 if quick else 100_000
    document = write_observations(folder, count)
    rule, plan = rule_and_plan(count)
    path = folder / "observations.jsonl"

    def ours() -> None:
        found = decide(rule, read_observations(document, folder), plan)
        if found.defects:
            raise ValueError(f"the benchmark's own rows are incomplete: {found.defects[:2]}")

    def bare() -> list[Any]:
        with path.open("rb") as stream:
            return [json.loads(line) for line in stream]

    pairs = in_turns(ours, bare, 3 if quick else 7)
    facts: dict[str, Any] = pairs.facts() | {"rows": count}
    name = f"decision from {count} rows"
    against = "the standard library's json on the same file (CPU time)"
    return [
        Row(
            f"{name}: time",
            against,
            facts["cpu_s"]["ratio"],
            "x",
            most=3.0,
            why="rows that are unusual (escapes, other than ASCII, colons, long lines) go one"
            " by one through the strict parser",
            facts=facts,
        ),
        Row(f"{name}: memory", "–", peak_bytes(ours) / MIB, "MiB", facts={"rows": count}),
    ]


def read_whole(run: Path) -> None:
    """Hash every file of a run and read every row: the least that verifying needs."""
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        data = path.read_bytes()
        hashlib.sha256(data).digest()
        if path.suffix == ".jsonl":
            for line in data.splitlines():
                json.loads(line)


def verification(run: Path, quick: bool) -> Row:
    """Measure ``verify`` of a run."""
    pairs = in_turns(lambda: verify_run(run), lambda: read_whole(run), 2 if quick else 5)
    facts: dict[str, Any] = pairs.facts() | {"run": run.name}
    return Row(
        "verify of a run",
        "hashing its bytes and reading its rows with json (CPU time)",
        facts["cpu_s"]["ratio"],
        "x",
        most=3.0,
        why="verify makes the data set's rows again, computes every advantage again with the"
        " plain-Python reference, grades every text again and renders the report again",
        facts=facts,
    )
