"""The last act of a run: scores and verdict from the rows on disk, and the end of ``result.json``.

Nothing here trusts a number that was posted earlier: accuracies and the decision are computed from
``predictions/*.jsonl`` (contract §7, §8), and gates that do not stand cap the verdict (§2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.arm import arm_folder, read_done
from harness.arm_start import read_start, run_provenance
from harness.attempts import arm_lineage, arm_restores
from harness.completeness import Plan, values_by_key
from harness.decision import Decision, decide, item_effects
from harness.decision_rule import Arms, Rule
from harness.digest import sha256_file, sha256_json
from harness.errors import DecisionError
from harness.evaluate import METRIC, predictions_path
from harness.gates.standing import Standing
from harness.gates.verdict import Outcome
from harness.intervals import secondary_intervals
from harness.observations import ROW_FIELDS, Observation, read_observations
from harness.plan import PlannedRun
from harness.result import ResultDocument
from harness.result_rules import cap_verdict
from harness.run_scores import evaluation_section, frozen_evaluator, is_whole, scored_rows
from harness.selection import selection_defects
from harness.spec_model import Arm, ExperimentSpec
from harness.spec_rules import resolve_roles
from harness.store import read_jsonl, write_json_atomic, write_jsonl_new
from harness.timings import with_observed_usage
from harness.training_grader import grader_disagreements

OBSERVATIONS_NAME = "observations.jsonl"
DECISION_NAME = "decision.json"
SECTION_OF_GATE = {
    "loss_gradient_parity": "correctness_preflight",
    "pilot_activation": "activation_calibration",
    "feasibility": "feasibility",
}
"""Gates whose note is a section of the result document."""


def decide_run(
    run: PlannedRun, document: ResultDocument, standings: Mapping[str, Standing]
) -> ResultDocument:
    """Decide a run whose arms are all scored and return its finished result document.

    Args:
        run: the plan.
        document: the current result.
        standings: every required gate as it stands now.

    Raises:
        DecisionError: for rows from which no decision may be drawn, or a run that has ended.
    """
    if document.status != "running":
        raise DecisionError(
            "the run has its verdict: it is not drawn twice",
            expected="status running",
            found=document.status,
            where=run.folder.name,
            fix="start a new run (--fresh)",
        )
    decision_section = freeze_observations(run)
    decision, secondary = decision_of(run, decision_section)
    verdict, reason = cap_verdict(
        decision.verdict,
        decision.outcome_reason,
        required=standings,
        outcomes={gate_id: found.outcome.value for gate_id, found in standings.items()},
    )
    rows = scored_rows(run)
    evaluation = evaluation_section(run)
    if decision.criteria and not is_whole(run, evaluation, rows):
        verdict, reason = "inconclusive", "incomplete_execution"
    report = {
        **decision.report(),
        "capped_verdict": verdict,
        "capped_reason": reason,
        "gates": {
            gate_id: {"outcome": found.outcome.value, "session": found.session}
            for gate_id, found in standings.items()
        },
        "secondary": secondary,
        "grader_disagreements": grader_disagreements(rows),
    }
    write_json_atomic(run.folder / DECISION_NAME, report)
    sections = {
        "evaluation": evaluation,
        "decision": decision_section,
        **preflight_sections(run, standings),
    }
    for name, section in sections.items():
        document = document.with_section(name, section)
    document = document.with_metrics(decision_numbers(decision))
    capped_by = [] if verdict == decision.verdict else _not_passed(standings)
    summary = _summary(run, decision, verdict, capped_by)
    return document.finish("succeeded", verdict, reason, summary)


def preflight_sections(
    run: PlannedRun, standings: Mapping[str, Standing]
) -> dict[str, dict[str, Any]]:
    """Return the records of contract §§3–5: what the gates measured and how the arms started."""
    sections: dict[str, dict[str, Any]] = {}
    for gate_id, name in SECTION_OF_GATE.items():
        notes = standings[gate_id].record.get("notes", {}) if gate_id in standings else {}
        if name in notes:
            sections[name] = notes[name]
    if "feasibility" in sections:
        sections["feasibility"] = with_observed_usage(sections["feasibility"], run.folder)
    starts = arm_starts(run)
    if starts:
        sections["initialization_provenance"] = run_provenance(run, starts, restores_of_arms(run))
    return sections


def arm_starts(run: PlannedRun, seed: int | None = None) -> dict[str, dict[str, Any]]:
    """Return the ``start.json`` of every arm that has finished with a seed; None is the first.

    It is the one of the attempt that started from the run's initial state.
    """
    return {
        arm: {**read_start(folder), "arm": arm} for arm, folder, _ in _first_attempts(run, seed)
    }


def restores_of_arms(run: PlannedRun, seed: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return every ``restored.json`` of every arm that has finished with a seed."""
    return {
        arm: arm_restores(folder.parent, first) for arm, folder, first in _first_attempts(run, seed)
    }


def _first_attempts(run: PlannedRun, seed: int | None) -> Iterator[tuple[str, Path, int]]:
    """Yield arm, folder and number of the attempt that each finished arm began with."""
    trainings = run.spec.at(run.spec.decision_rule.seeds[0] if seed is None else seed)
    for arm, trained in zip(run.spec.arms, trainings, strict=True):
        done, parent = read_done(run.folder, trained.name), arm_folder(run.folder, trained.name)
        if done is not None:
            first = arm_lineage(parent, done)[0]
            yield arm.name, first.folder(parent), first.number


def decision_of(
    run: PlannedRun, section: Mapping[str, Any]
) -> tuple[Decision, dict[str, list[dict[str, Any]]]]:
    """Draw the decision from the rows that a decision section names.

    Returns:
        The decision by the preregistered rule, and secondary intervals by criterion.

    Raises:
        DecisionError: for rows from which no decision may be drawn.
    """
    rows = read_observations(section, run.folder)
    rule, plan = Rule.from_spec(run.loaded.raw["decision_rule"]), decision_plan(run)
    adaptive = run.spec.experiment_features.adaptive_selection
    unproven = selection_defects(section, adaptive_selection=adaptive, arms=plan.arms)
    decision = decide(rule, rows, plan, selection_defects=unproven)
    return decision, _secondary(rule, rows, plan) if decision.criteria else {}


def score_numbers(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the numbers posted for one arm, or the base model, from its prediction rows.

    With several seeds the accuracy is the mean over all of them, and rows are counted over all.
    """
    return {
        METRIC: math.fsum(row["value"] for row in rows) / len(rows),
        "items": len({row["item_id"] for row in rows}),
        "unfinished": sum(not row["finished"] for row in rows),
        "unanswered": sum(row["prediction"] is None for row in rows),
    }


def _not_passed(standings: Mapping[str, Standing]) -> list[str]:
    return [gate for gate, found in standings.items() if found.outcome is not Outcome.PASS]


def _secondary(
    rule: Rule, rows: Sequence[Observation], plan: Plan
) -> dict[str, list[dict[str, Any]]]:
    """Return the intervals that are shown beside the rule's own and never decide."""
    values = values_by_key(rows)
    return {
        criterion.id: [
            asdict(interval)
            for interval in secondary_intervals(
                item_effects(criterion, values, plan), criterion.effect_range, rule.alpha
            )
        ]
        for criterion in rule.criteria
    }


def freeze_observations(run: PlannedRun) -> dict[str, Any]:
    """Write the rows the decision rests on, once, and return the decision section.

    Raises:
        DecisionError: when they were written before and the predictions say otherwise now.
    """
    path = run.folder / OBSERVATIONS_NAME
    rows = tuple(
        {name: row[name] for name in ROW_FIELDS}
        for training in decided_trainings(run.spec)
        for row in read_jsonl(predictions_path(run.folder, training.name))
    )
    if not path.exists():
        write_jsonl_new(path, rows)
    elif read_jsonl(path) != rows:
        raise DecisionError(
            "the predictions changed after their rows were frozen for the decision",
            expected=f"the rows of {OBSERVATIONS_NAME}",
            found="other rows in predictions/",
            where=run.folder.name,
            fix="start a new run (--fresh)",
        )
    return {
        "version": 1,
        "observations_file": {"name": OBSERVATIONS_NAME, "sha256": sha256_file(path)},
    }


def decided_trainings(spec: ExperimentSpec) -> tuple[Arm, ...]:
    """Return the trainings whose rows the decision rests on: those of treatment and baseline.

    Further arms are trained, scored and reported, and no row of theirs decides anything.
    """
    roles = resolve_roles(spec)
    deciding = {roles.treatment, roles.baseline}
    return tuple(found for found in spec.trainings if spec.arm_of(found.name) in deciding)


def decision_plan(run: PlannedRun) -> Plan:
    """Return which rows the decision needs, from the frozen evaluator and the spec."""
    evaluator = frozen_evaluator(run)
    roles = resolve_roles(run.spec)
    rule = Rule.from_spec(run.loaded.raw["decision_rule"])
    metrics = {criterion.metric for criterion in rule.criteria}
    return Plan.of(
        rule,
        Arms(roles.treatment, roles.baseline),
        evaluator["items"]["ids"],
        dict.fromkeys(metrics, sha256_json(evaluator)),
    )


def decision_numbers(decision: Decision) -> dict[str, float]:
    """Return the numbers posted for a decision, by criterion."""
    numbers: dict[str, float] = {}
    for criterion in decision.criteria:
        found = asdict(criterion)
        for key in ("n", "mean", "half_width", "lower", "upper", "margin"):
            numbers[f"{criterion.id}.{key}"] = found[key]
    return numbers


def _summary(run: PlannedRun, decision: Decision, verdict: str, capped_by: Sequence[str]) -> str:
    treatment, baseline = decision.arms.treatment, decision.arms.baseline
    seeds = run.spec.decision_rule.seeds
    each = f" with each of seeds {list(seeds)}" if len(seeds) > 1 else ""
    steps = f"{run.spec.steps} steps{each}"
    first = f"{treatment} and {baseline} were trained for {steps} and compared"
    if not decision.criteria:
        kinds = ", ".join(defect.kind for defect in decision.defects)
        return f"{first}. The rows are incomplete ({kinds}), so the comparison is {verdict}."
    parts = "; ".join(_criterion_words(criterion) for criterion in decision.criteria)
    cap = f", as gates are not proven ({', '.join(capped_by)})" if capped_by else ""
    return f"{first} on {decision.criteria[0].n} items. Verdict {verdict}{cap}: {parts}."


def _criterion_words(criterion: Any) -> str:
    return (
        f"{criterion.id} mean {criterion.mean:+.4f}, interval [{criterion.lower:+.4f},"
        f" {criterion.upper:+.4f}] (half-width {criterion.half_width:.4f}) against margin"
        f" {criterion.margin:+g} is {criterion.state}"
    )
