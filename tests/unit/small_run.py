"""A comparison small enough to work out by hand: four rollouts a step, two steps, forty items."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mini_project import ROOT

from harness.arm_dataset import ArmDataset, renderer_for
from harness.gates.binding import Binding
from harness.gates.standing import Standing
from harness.gates.verdict import Outcome
from harness.plan import PLAN_NAME, PlannedRun, make_plan, read_plan
from harness.problems import Problem, load_problems
from harness.service import register_model_tokenizer
from harness.spec import LoadedSpec, load_spec
from harness.spec_model import Arm
from harness.store import write_json_atomic

LOCAL_SPEC = load_spec(ROOT / "specs" / "local.json").spec
TRAIN_ROWS, TEST_ITEMS = 12, 40
GRPO, GS1 = "grpo_small", "gs1_small"
BINDING = Binding({"harness/a.py": "0" * 64}, {"python": "3.11"}, {"service": "embedded"})


def small_arm(mode: str = "grpo", *, groups: int = 2, group_size: int = 2, steps: int = 2) -> Arm:
    """Return an arm of the given shape."""
    similar = {"tau": 0.2, "similarity": "tfidf_prompt_cosine"} if mode == "gs1" else {}
    return Arm(
        name=f"{mode}_small",
        advantage_mode=mode,
        group_size=group_size,
        groups_per_batch=groups,
        seed=0,
        lr=3e-4,
        steps=steps,
        **similar,
    )


def problems(count: int) -> list[Problem]:
    """Return problems with different questions and answers."""
    names = ["Tom", "Ann", "Sam", "Eva"]
    questions = [f"{names[i % 4]} has {i} red apples and buys {i + 2} more" for i in range(count)]
    return [
        Problem(f"small-train-{i:05d}", question, f"#### {2 * i + 2}", str(2 * i + 2))
        for i, question in enumerate(questions)
    ]


def arm_dataset(arm: Arm, questions: Sequence[Problem] | None = None) -> ArmDataset:
    """Return the arm's data set over made-up problems, in order."""
    register_model_tokenizer(LOCAL_SPEC)
    groups = arm.groups_per_batch
    order = list(questions or problems(groups * arm.steps))
    batches = [order[step * groups : (step + 1) * groups] for step in range(arm.steps)]
    return ArmDataset(batches, arm.group_size, renderer_for(LOCAL_SPEC), None)


def small_spec_json() -> dict[str, Any]:
    """Return the local spec cut down to offline rows, 4 rollouts, 2 steps and 40 items."""
    raw = json.loads((ROOT / "specs" / "local.json").read_text())
    raw["dataset"] |= {"name": "small", "hf_path": "offline/small", "n_examples": TRAIN_ROWS}
    raw["eval"]["n_examples"] = TEST_ITEMS
    raw |= {"steps": 2, "batch_size": 4}
    grpo, gs1 = raw["arms"]
    grpo |= {"name": GRPO, "group_size": 2, "groups_per_batch": 2, "steps": 2}
    gs1 |= {"name": GS1, "group_size": 1, "groups_per_batch": 4, "steps": 2}
    raw["decision_rule"]["arms"] = {"treatment": GS1, "baseline": GRPO}
    for arm, name in zip(
        raw["restoration_preflight"]["groups"][0]["arms"], (GRPO, GS1), strict=True
    ):
        arm["name"] = name
    return raw


def write_rows(folder: Path) -> Path:
    """Write the offline data set and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", TRAIN_ROWS), ("test", TEST_ITEMS)):
        rows = [
            {"question": f"{split}: what is {i} plus {i}", "answer": f"add\n#### {2 * i}"}
            for i in range(count)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def write_spec(folder: Path, raw: Mapping[str, Any]) -> LoadedSpec:
    """Write a spec file and load it."""
    path = folder / "spec.json"
    path.write_text(json.dumps(raw))
    return load_spec(path)


NO_CODE: Mapping[str, Any] = {"head": None, "dirty": None}


def plan_run(
    folder: Path,
    raw: Mapping[str, Any] | None = None,
    binding: Binding = BINDING,
    code: Mapping[str, Any] = NO_CODE,
) -> PlannedRun:
    """Plan a run in ``folder / "run"`` as the experiment does, and read the plan back."""
    rows = write_rows(folder / "rows")
    run = folder / "run"
    run.mkdir()
    loaded = write_spec(run, raw or small_spec_json())
    train, test = (load_problems(loaded.spec, split, rows) for split in ("train", "test"))
    plan = make_plan(loaded, run.name, train, test, binding, code)
    write_json_atomic(run / PLAN_NAME, plan)
    return read_plan(run, rows)


def all_standing(*gates: str, outcome: Outcome = Outcome.PASS) -> dict[str, Standing]:
    """Return standings with one outcome for every gate named."""
    return {gate: Standing(gate, outcome, "as the test says") for gate in gates}
