"""A whole finished run on disk, made without a service: every file that ``verify`` reads.

Real code writes every record that pure code can write (plan, gate evidence, advantages, grades,
decision, manifest); only the model and the service are made up. Shape suffixes: ``_P`` problems,
``_G`` rollouts of a group.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tinker
from mini_project import ROOT
from safetensors.numpy import save_file
from small_run import BINDING, GRPO, GS1, TEST_ITEMS, plan_run

from harness.advantage_seam import arm_params
from harness.advantages import RolloutBatch, compute
from harness.arm import arm_folder
from harness.arm_dataset import prompt_ids_sha256
from harness.bundle import SCRIPTS
from harness.conclusion import SECTION_OF_GATE, decide_run, score_numbers
from harness.digest import sha256_file
from harness.evaluate import BASE_ARM, freeze_evaluator, prediction_row, predictions_path
from harness.gates.binding import Binding
from harness.gates.catalog import required_gate_ids
from harness.gates.evidence import EvidenceWriter
from harness.gates.standing import Standing
from harness.gates.verdict import Outcome
from harness.manifest import enter_all, seal
from harness.plan import GATES_FOLDER, PLAN_NAME, PlannedRun, effective_config, read_plan
from harness.problems import Problem
from harness.redact import Redactor
from harness.report import REPORT_NAMES
from harness.report_files import draw_into
from harness.result import ResultDocument, publish
from harness.run_result import with_evidence
from harness.run_scores import scored_rows
from harness.service import adapter_digest, register_model_tokenizer
from harness.spec_model import Arm
from harness.step_record import advantage_moments
from harness.store import append_jsonl, write_json_atomic, write_jsonl_new
from harness.timings import record_timing

NO_REPOSITORY = {"head": None, "dirty": None}
REPORTED = {"model_name": "embedded/gradeschool", "lora_rank": 8}
INITIAL_URI = "tinker://session:train:0/weights/initial"
RLOO = "rloo_small"
ACCURATE = {BASE_ARM: 10, GRPO: 20, GS1: 22, RLOO: 21}
"""How many of the forty items each model answers with seed 0; with seed n, n fewer."""
REWARDS = (1.0, 0.0, -0.1, 0.9)
"""Reward of a finished answer: 0.1·(format − 1) + correct."""
NOTES = {
    gate_id: {section: {"note": f"what {gate_id} measured"}}
    for gate_id, section in SECTION_OF_GATE.items()
}
"""Sections of the result that gates measured."""


RAN = Binding(
    {f"harness/{stem}.py": sha256_file(ROOT / "harness" / f"{stem}.py") for stem in SCRIPTS},
    BINDING.versions,
    BINDING.service,
)
"""This tree's own scripts are what ran."""
CLEAN = {"head": "0" * 40, "dirty": False}


def complete_run(folder: Path, raw: Mapping[str, Any] | None = None) -> PlannedRun:
    """Plan, prove, train, score, decide and seal a run in ``folder / "run"``.

    Args:
        folder: where the run and its offline rows go.
        raw: the spec; default the small one of two arms and one seed.
    """
    planned = plan_run(folder, raw, binding=RAN, code=CLEAN)
    spec = planned.spec
    standings = prove_gates(planned)
    for seed in spec.decision_rule.seeds:
        write_initial_state(planned, seed)
    for training in spec.trainings:
        write_training(planned, training)
    register_model_tokenizer(spec)
    document = ResultDocument.start("small: planned, nothing trained yet.")
    write_predictions(planned, BASE_ARM)
    for training in spec.trainings:
        write_predictions(planned, training.name)
    for name, rows in scored_rows(planned).items():
        numbers = score_numbers(rows)
        if name == BASE_ARM:
            document = document.with_metrics(numbers)
        else:
            document = document.with_metrics(numbers, arm=name).arm_completed(name)
    for number, name in enumerate(ACCURATE):
        record_timing(planned.folder, "evaluate", name, 1.0 + number)
    document = decide_run(planned, document, standings)
    document = with_evidence(document, planned, ROOT, Redactor.from_environment({}), ended=True)
    publish(planned.folder / "result.json", document)
    draw_into(planned.folder, planned.gsm8k_dir, folder)
    reseal(planned.folder)
    return planned


def reseal(folder: Path) -> None:
    """Write the manifest anew over whatever is there now, as a forger would."""
    (folder / "manifest.jsonl").unlink(missing_ok=True)
    enter_all(folder)
    seal(folder)


def redraw(folder: Path) -> None:
    """Draw a copy's report anew after its records were changed."""
    for name in REPORT_NAMES:
        (folder / name).unlink()
    draw_into(folder, folder.parent / "rows", folder.parent)


def prove_gates(planned: PlannedRun) -> dict[str, Standing]:
    """Write a session in which every required gate passed, and name it in the plan."""
    writer = EvidenceWriter(planned.folder / GATES_FOLDER, "spec", RAN, NO_REPOSITORY)
    standings: dict[str, Standing] = {}
    for gate_id in required_gate_ids(planned.spec):
        record = {
            "clause": "as the catalogue says",
            "outcome": "pass",
            "reason": "every measurement inside what is allowed",
            "measures": [
                {"name": "largest error", "value": 0.5, "rule": {"at_most": 1.0}, "where": ""}
            ],
            "notes": NOTES.get(gate_id, {}),
            "duration_s": 0.25,
        }
        writer.gate_started(gate_id)
        writer.gate_finished(gate_id, record)
        standings[gate_id] = Standing(gate_id, Outcome.PASS, "proven", (), record, writer.session)
    writer.closing(RAN)
    writer.close()
    gates = {gate: {"outcome": "pass", "session": writer.session} for gate in standings}
    write_json_atomic(planned.folder / PLAN_NAME, {**planned.plan, "gates": gates})
    return standings


def write_adapter(folder: Path, seed: int) -> str:
    """Write a tiny adapter that depends on the seed and return its digest."""
    folder.mkdir(parents=True)
    weights = np.arange(4, dtype=np.float32) + seed
    save_file({"lora_A": weights}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text('{"r": 8}')
    return adapter_digest(folder)


def write_initial_state(planned: PlannedRun, seed: int) -> None:
    """Write the adapter that all arms of a seed start from."""
    initial = {
        "adapter_sha256": write_adapter(planned.initial_adapter(seed), seed),
        "checkpoint_uri": initial_uri(seed),
        "lora_rank": 8,
        "reported": REPORTED,
        "seed": seed,
    }
    write_json_atomic(planned.initial_path(seed), initial)


def initial_uri(seed: int) -> str:
    """Return the address of a seed's initial state."""
    return f"{INITIAL_URI}-{seed}"


def write_training(planned: PlannedRun, arm: Arm) -> None:
    """Write one arm's start, rollouts, steps and end."""
    attempt = arm_folder(planned.folder, arm.name) / "attempt-01"
    start = {
        "arm": arm.name,
        "adapter_sha256": write_adapter(attempt / "start_adapter", arm.seed),
        "batch_sha256": "b" * 64,
        "output_sha256": "c" * 64,
        "reported": REPORTED,
    }
    write_json_atomic(attempt / "start.json", start)
    write_json_atomic(attempt / "effective_config.json", effective_config(planned.spec, arm))
    for step, batch_P in enumerate(planned.train_batches(arm)):
        rollouts = rollout_rows(arm, step, batch_P)
        append_jsonl(attempt / "rollouts.jsonl", *rollouts)
        append_jsonl(attempt / "steps.jsonl", step_row(arm, step, batch_P, rollouts))
    done = {
        "arm": arm.name,
        "attempt": 1,
        "steps": arm.steps,
        "initial_checkpoint_uri": initial_uri(arm.seed),
        "state_uri": f"tinker://{arm.name}/weights/final",
        "sampler_uri": sampler_uri(arm.name),
    }
    write_json_atomic(attempt.parent / "done.json", done)


def sampler_uri(arm_name: str) -> str:
    """Return the address of an arm's final weights."""
    return f"tinker://{arm_name}/sampler_weights/final"


def rollout_rows(arm: Arm, step: int, batch_P: Sequence[Problem]) -> list[dict[str, Any]]:
    """Return a step's rollouts with the arm's own advantages."""
    size = arm.group_size
    count = size * len(batch_P)
    rewards = [REWARDS[(at + step) % len(REWARDS)] for at in range(count)]
    groups = [rewards[at : at + size] for at in range(0, count, size)]
    batch = RolloutBatch.of(groups, [problem.question for problem in batch_P])
    advantages = np.concatenate(compute(arm.advantage_mode, batch, arm_params(arm)))
    return [
        {
            "arm": arm.name,
            "step": step,
            "item_id": batch_P[at // size].item_id,
            "rollout": at % size,
            "reward": reward,
            "correct": float(reward > 0.5),
            "format": float(reward in (1.0, 0.0)),
            "advantage": float(advantages[at]),
            "stop_reason": "stop",
            "completion_tokens": 5,
            "completion_sha256": "d" * 64,
        }
        for at, reward in enumerate(rewards)
    ]


def step_row(
    arm: Arm, step: int, batch_P: Sequence[Problem], rollouts: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return the step's line."""
    count = len(rollouts)
    means = {"reward_mean": "reward", "accuracy": "correct", "format": "format"}
    active = {"effective_contributors_median": 2.5, "mean_abs_baseline_minus_uniform_loo": 0.05}
    return {
        "arm": arm.name,
        "step": step,
        "attempt": 1,
        "rollouts": count,
        "datums": count,
        "prompt_ids_sha256": prompt_ids_sha256(batch_P),
        **{name: math.fsum(row[key] for row in rollouts) / count for name, key in means.items()},
        "groups": len(batch_P),
        "group_size": arm.group_size,
        "truncation": 0.0,
        "completion_tokens_mean": 5.0,
        "advantage": advantage_moments(np.asarray([row["advantage"] for row in rollouts])),
        "activation": active if arm.advantage_mode == "gs1" else None,
        "sampler_version": step,
        "sampling_session": f"session:sample:{step}",
        "loss_sum": -1.5,
        "sampler_trainer_gap": {"mean": 0.0, "max_abs": 0.0, "tokens": 5 * count},
        "training_s": 0.25,
        "step_s": 0.5,
    }


def write_predictions(planned: PlannedRun, name: str) -> list[dict[str, Any]]:
    """Write and return one graded row an item of a training; the last item is truncated."""
    evaluator_id = freeze_evaluator(planned)
    base = name == BASE_ARM
    arm = BASE_ARM if base else planned.spec.arm_of(name)
    seed = planned.spec.decision_rule.seeds[0] if base else planned.spec.arm(name).seed
    right = ACCURATE[arm] - seed
    about = {
        "arm": arm,
        "seed": seed,
        "checkpoint": planned.spec.base_model if name == BASE_ARM else sampler_uri(name),
        "metric": "accuracy",
        "evaluator_id": evaluator_id,
    }
    rows = [
        prediction_row(problem, [1, 2], completion(number), text, about)
        for number, problem in enumerate(planned.test_problems())
        for text in [f"so \\boxed{{{problem.gold if number < right else 999}}}"]
    ]
    path = predictions_path(planned.folder, name)
    path.parent.mkdir(exist_ok=True)
    write_jsonl_new(path, rows)
    return rows


def completion(number: int) -> tinker.SampledSequence:
    """Return a made-up completion of three tokens."""
    return tinker.SampledSequence(
        stop_reason="length" if number == TEST_ITEMS - 1 else "stop",
        sequence_id="s",
        tokens_np=np.asarray([number, 7, 8], dtype=np.int64),
        logprobs_np=np.zeros(3, dtype=np.float32),
    )


def read_back(folder: Path) -> PlannedRun:
    """Return a copy's plan, read against the rows beside it."""
    return read_plan(folder, folder.parent / "rows")


def edit_json(path: Path, *keys: str | int, value: Any) -> None:
    """Set one value inside a JSON file."""
    document = json.loads(path.read_text())
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(document))
