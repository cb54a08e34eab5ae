"""Runs that benchmarks work on: the local spec as it is, or with fewer steps."""

from __future__ import annotations

import json
from pathlib import Path

from small_run import BINDING, NO_CODE, write_spec

from benchmarks import ROOT
from harness.plan import PLAN_NAME, PlannedRun, make_plan, read_plan
from harness.problems import load_problems
from harness.store import write_json_atomic


def planned_run(folder: Path, steps: int) -> PlannedRun:
    """Plan a run of the local spec with so many steps an arm, on its generated rows."""
    raw = json.loads((ROOT / "specs" / "local.json").read_text())
    raw["steps"] = steps
    for arm in raw["arms"]:
        arm["steps"] = steps
    folder.mkdir(parents=True)
    loaded = write_spec(folder, raw)
    train, test = (load_problems(loaded.spec, split, None) for split in ("train", "test"))
    plan = make_plan(loaded, folder.name, train, test, BINDING, NO_CODE)
    # An arm asks whether gates stood when its run was planned; here they are not the subject.
    plan["gates"] = {"none_measured": {"outcome": "pass", "session": ""}}
    write_json_atomic(folder / PLAN_NAME, plan)
    return read_plan(folder, None)
