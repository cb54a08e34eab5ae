"""Edits of a finished run, each with the check that must notice it after a new seal."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from complete_run import edit_json
from small_run import GRPO, GS1

from harness.digest import sha256_file, sha256_json
from harness.gates.evidence import read_session
from harness.store import read_jsonl

ATTEMPT = f"arms/{GS1}/attempt-01"
Forgery = Callable[[Path], None]


def rewrite(path: Path, edit: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    rows = edit([dict(row) for row in read_jsonl(path)])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def set_in_row(path: Path, number: int, **changes: Any) -> None:
    def edit(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[number] |= changes
        return rows

    rewrite(path, edit)


def delete_a_row(run: Path) -> str:
    rewrite(run / f"predictions/{GS1}.jsonl", lambda rows: rows[:5] + rows[6:])
    return f"predictions/{GS1}.jsonl"


def edit_value(run: Path) -> None:
    set_in_row(run / f"predictions/{GS1}.jsonl", 30, value=1.0)


def edit_text(run: Path) -> None:
    set_in_row(run / f"predictions/{GS1}.jsonl", 30, text="so \\boxed{60}")


def edit_reference(run: Path) -> None:
    set_in_row(run / f"predictions/{GS1}.jsonl", 30, reference="999")


def edit_training_grader(run: Path) -> None:
    set_in_row(run / f"predictions/{GS1}.jsonl", 30, training_grader_correct=True)


def edit_checkpoint(run: Path) -> None:
    def edit(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row | {"checkpoint": "tinker://another/final"} for row in rows]

    rewrite(run / f"predictions/{GS1}.jsonl", edit)


def drop_item(run: Path) -> None:
    delete_a_row(run)


def drop_base(run: Path) -> None:
    (run / "predictions" / "base.jsonl").unlink()


def edit_observation(run: Path) -> None:
    path = run / "observations.jsonl"
    set_in_row(path, 0, value=0.0)
    section = ("decision", "observations_file", "sha256")
    edit_json(run / "result.json", *section, value=sha256_file(path))


def edit_decision(run: Path) -> None:
    edit_json(run / "decision.json", "criteria", 0, "lower", value=0.01)


def edit_decision_and_verdict(run: Path) -> None:
    for name in ("verdict", "outcome_reason", "capped_verdict", "capped_reason"):
        edit_json(run / "decision.json", name, value="supported")
    for name in ("verdict", "outcome_reason"):
        edit_json(run / "result.json", name, value="supported")


def edit_verdict(run: Path) -> None:
    for name in ("verdict", "outcome_reason"):
        edit_json(run / "result.json", name, value="supported")


def edit_score(run: Path) -> None:
    score = json.loads((run / "result.json").read_text())["evaluation"]["scores"][2]["value"]
    edit_json(run / "result.json", "evaluation", "scores", 2, "value", value=score + 1e-9)


def edit_accuracy(run: Path) -> None:
    edit_json(run / "result.json", "metrics", "arms", GS1, "accuracy", value=0.55 + 1e-9)


def edit_posted_mean(run: Path) -> None:
    edit_json(run / "result.json", "metrics", "primary_noninferiority.mean", value=0.06)


def claim_an_arm(run: Path) -> None:
    edit_json(run / "result.json", "completed_arms", value=[GRPO])


def edit_advantage(run: Path) -> None:
    path = run / ATTEMPT / "rollouts.jsonl"
    set_in_row(path, 3, advantage=read_jsonl(path)[3]["advantage"] + 1e-9)


def edit_reward(run: Path) -> None:
    """Raise a reward, and the step's mean with it."""
    path = run / ATTEMPT / "rollouts.jsonl"
    set_in_row(path, 3, reward=0.95)
    rewards = [row["reward"] for row in read_jsonl(path) if row["step"] == 0]
    mean = math.fsum(rewards) / len(rewards)
    set_in_row(run / ATTEMPT / "steps.jsonl", 0, reward_mean=mean)


def edit_step_mean(run: Path) -> None:
    set_in_row(run / ATTEMPT / "steps.jsonl", 1, accuracy=0.75)


def drop_step(run: Path) -> None:
    rewrite(run / ATTEMPT / "steps.jsonl", lambda rows: rows[:1])


def edit_prompts(run: Path) -> None:
    set_in_row(run / ATTEMPT / "steps.jsonl", 1, prompt_ids_sha256="0" * 64)


def edit_config(run: Path) -> None:
    edit_json(run / ATTEMPT / "effective_config.json", "tau", value=0.3)


def edit_adapter(run: Path) -> None:
    path = run / ATTEMPT / "start_adapter" / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")


def edit_start(run: Path) -> None:
    edit_json(run / ATTEMPT / "start.json", "output_sha256", value="d" * 64)


def add_a_seed(run: Path) -> None:
    edit_json(run / "spec.json", "decision_rule", "seeds", value=[0, 1])


def edit_measure(run: Path) -> None:
    path = next((run / "gates").iterdir())
    path.write_text(path.read_text().replace('"value": 0.5', '"value": 0.4', 1))


def edit_measure_and_chain(run: Path) -> None:
    """Put a value outside its rule and forge every line's digest after it."""
    path = next((run / "gates").iterdir())
    previous, lines = "", []
    for event in read_session(path).events:
        if event.get("gate") == "dry_activation" and event["type"] == "gate":
            event["measures"][0]["value"] = 1.5
        body = {**event, "previous": previous}
        previous = sha256_json(body)
        lines.append(json.dumps({**body, "line_sha256": previous}) + "\n")
    path.write_text("".join(lines))


def edit_section(run: Path) -> None:
    edit_json(run / "result.json", "activation_calibration", "note", value="all in range")


def edit_evaluator(run: Path) -> None:
    edit_json(run / "evaluator.json", "decoding", "max_tokens", value=81)


def edit_usage(run: Path) -> None:
    edit_json(run / "result.json", "feasibility", "observed_usage", "wall_seconds", value=1.0)


def edit_posted_row(run: Path) -> None:
    """Make one posted prediction right, with the digest of what is posted then."""
    result = json.loads((run / "result.json").read_text())
    for file in result["evidence"]["files"]:
        if file["name"] == f"predictions.{GS1}.jsonl":
            file["content"] = file["content"].replace('"value":0.0', '"value":1.0', 1)
            file["content"] = file["content"].replace('"value": 0.0', '"value": 1.0', 1)
            file["sha256"] = hashlib.sha256(file["content"].encode()).hexdigest()
    (run / "result.json").write_text(json.dumps(result))


def fail_a_gate_of_the_decision(run: Path) -> None:
    edit_json(run / "decision.json", "gates", "dry_activation", "outcome", value="fail")
    edit_json(run / "decision.json", "capped_reason", value="tie")


def hide_a_deviation(run: Path) -> None:
    edit_json(run / ATTEMPT / "effective_config.json", "kl_penalty_coef", value=0.1)


FORGERIES: list[tuple[Forgery, str]] = [
    (edit_value, "grading"),
    (edit_text, "grading"),
    (edit_reference, "items"),
    (edit_training_grader, "grading"),
    (edit_checkpoint, "checkpoints"),
    (drop_item, "items"),
    (drop_base, "scores"),
    (edit_observation, "observations"),
    (edit_decision, "decision"),
    (edit_decision_and_verdict, "decision"),
    (edit_verdict, "decision"),
    (edit_score, "scores"),
    (edit_accuracy, "metrics"),
    (edit_posted_mean, "decision"),
    (claim_an_arm, "metrics"),
    (edit_advantage, f"advantages {GS1}"),
    (edit_reward, f"steps {GS1}"),
    (edit_step_mean, f"steps {GS1}"),
    (drop_step, f"steps {GS1}"),
    (edit_prompts, f"prompts {GS1}"),
    (edit_config, f"config {GS1}"),
    (edit_adapter, f"start {GS1}"),
    (edit_start, "provenance"),
    (add_a_seed, "readable"),
    (edit_measure, "gate evidence"),
    (edit_measure_and_chain, "gate dry_activation"),
    (edit_section, "activation_calibration"),
    (edit_usage, "feasibility"),
    (edit_posted_row, "evidence"),
    (fail_a_gate_of_the_decision, "decision"),
    (hide_a_deviation, "deviations"),
    (edit_evaluator, "evaluator"),
]
