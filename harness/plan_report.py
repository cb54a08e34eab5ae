"""``python -m harness plan SPEC``: what a run can show and what it uses, before money is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from harness.decision_rule import Criterion, Rule
from harness.errors import DecisionError
from harness.power import Contrast, Regions, chances, contrast_of, regions
from harness.power_secondary import BETTING_RUNS, EXACT_ITEMS, SIMULATED_RUNS, Counts
from harness.spec import LoadedSpec
from harness.spec_model import ExperimentSpec

DISCORDANCES = (0.05, 0.1, 0.2, 0.3)
"""True shares of items that exactly one arm has right, for which chances are given."""
STEPS_FROM_MARGIN = (-2.0, -1.0, 0.0, 1.0, 1.5, 2.0)
"""True differences, as half-widths from the margin; no difference at all is always among them."""
NEGLIGIBLE = 0.0005


def plan_document(loaded: LoadedSpec, seed: int) -> dict[str, Any]:
    """Return the plan's numbers as JSON values: rule, chances, prompts.

    Args:
        loaded: the spec.
        seed: of what is simulated.
    """
    spec = loaded.spec
    rule = Rule.from_spec(spec.decision_rule.model_dump(mode="json"))
    criteria = [
        _criterion(rule, criterion, spec.eval.n_examples, seed) for criterion in rule.criteria
    ]
    return {
        "version": 1,
        "spec": loaded.name,
        "spec_digest": loaded.digest,
        "items": spec.eval.n_examples,
        "alpha": rule.alpha,
        "seeds": list(rule.seeds),
        "simulation": {
            "seed": seed,
            "runs_of_counts_beyond_exact_items": SIMULATED_RUNS,
            "exact_items": EXACT_ITEMS,
            "runs_of_betting": BETTING_RUNS,
        },
        "criteria": criteria,
        "prompts": prompts_used(spec),
        "conclusion": conclusion(criteria),
    }


def prompts_used(spec: ExperimentSpec) -> list[dict[str, Any]]:
    """Return what each arm takes from the training set: one pass, no prompt twice."""
    return [
        {
            "arm": arm.name,
            "prompts_per_step": arm.groups_per_batch,
            "rollouts_per_prompt": arm.group_size,
            "steps": arm.steps,
            "prompts": arm.groups_per_batch * arm.steps,
            "rollouts": arm.groups_per_batch * arm.group_size * arm.steps,
            "share_of_train_rows": arm.groups_per_batch * arm.steps / spec.dataset.n_examples,
        }
        for arm in spec.arms
    ]


def _criterion(rule: Rule, criterion: Criterion, items: int, seed: int) -> dict[str, Any]:
    """Return one criterion's plan; what has no exact form says why instead of a number."""
    low, high = criterion.effect_range
    try:
        contrast = contrast_of(rule, criterion, items)
        found = regions(contrast, rule)
    except DecisionError as error:
        return {"id": criterion.id, "margin": criterion.margin, "not_computed": str(error)}
    half_width = contrast.judged(0, rule.alpha).half_width
    return {
        "id": criterion.id,
        "metric": criterion.metric,
        "margin": criterion.margin,
        "effect_range": [low, high],
        "half_width": half_width,
        "difference_needed": criterion.margin + half_width,
        "counted_over": _counted_over(contrast),
        "is_the_whole_rule": len(rule.criteria) == 1,
        "net_items_to_pass": found.passes_from if found.passes_from <= contrast.draws else None,
        "net_items_to_fail": found.fails_to if found.fails_to >= -contrast.draws else None,
        "net_items_of_a_tie": found.tie,
        "chances": _cells(contrast, found, rule, half_width, seed),
    }


def _counted_over(contrast: Contrast) -> str:
    """Return what a net count counts: with several seeds an item counts once a seed."""
    if contrast.seeds == 1:
        return "items"
    return f"of {contrast.items} items × {contrast.seeds} seeds"


def _cells(
    contrast: Contrast, found: Regions, rule: Rule, half_width: float, seed: int
) -> list[dict[str, Any]]:
    """Return the grid of true difference × discordance; impossible cells are left out."""
    secondary = Counts(contrast, rule.alpha, seed) if contrast.seeds == 1 else None
    margin = contrast.criterion.margin
    steps = {round((margin + step * half_width) / contrast.unit, 3) for step in STEPS_FROM_MARGIN}
    cells: list[dict[str, Any]] = []
    for difference in sorted({0.0, *steps}):
        for discordance in DISCORDANCES:
            if abs(difference) > discordance:
                continue
            rows = [] if secondary is None else secondary.chances(difference, discordance)
            cells.append(
                {
                    "true_difference": difference * contrast.unit,
                    "discordance": discordance,
                    **asdict(chances(contrast, found, difference, discordance)),
                    "secondary": [asdict(row) for row in rows],
                }
            )
    return cells


def conclusion(criteria: Sequence[dict[str, Any]]) -> str:
    """Say in one sentence what the plan can and cannot show."""
    if any("not_computed" in criterion for criterion in criteria):
        return (
            "What this plan can show was not computed for every criterion, so nothing is claimed."
        )
    parts = [_conclusion(criterion) for criterion in criteria]
    return "; ".join(parts) + "."


def _conclusion(criterion: dict[str, Any]) -> str:
    if criterion["net_items_to_pass"] is None:
        return f"{criterion['id']} can never pass with so few items, whatever the arms do"
    equal = [cell["passes"] for cell in criterion["chances"] if cell["true_difference"] == 0]
    best = f"at most {max(equal):.1%} for the discordances below" if equal else "not computed"
    return (
        f"{criterion['id']} can pass only from an observed difference above"
        f" {criterion['difference_needed']:+.4f} (net {criterion['net_items_to_pass']:+d}"
        f" {criterion['counted_over']})"
        f" and can fail only below {criterion['margin'] - criterion['half_width']:+.4f}; two arms"
        f" that are truly equal pass with a chance of {best}"
    )


def plan_lines(document: dict[str, Any]) -> list[str]:
    """Return the document as lines for a person."""
    lines = [
        f"plan of {document['spec']}  digest {document['spec_digest'][:12]}  "
        f"{document['items']} items, alpha {document['alpha']:g}, seeds {document['seeds']}",
        document["conclusion"],
    ]
    for criterion in document["criteria"]:
        lines += ["", *_criterion_lines(criterion)]
    lines += ["", f"prompts used{_each_seed(document['seeds'])}"]
    lines += [
        f"  {row['arm']}: {row['prompts']} prompts, {row['rollouts']} rollouts"
        f" ({row['prompts_per_step']} prompts × {row['rollouts_per_prompt']} rollouts"
        f" × {row['steps']} steps), {row['share_of_train_rows']:.1%} of the train rows"
        for row in document["prompts"]
    ]
    return lines


def _each_seed(seeds: Sequence[int]) -> str:
    return "" if len(seeds) == 1 else f", by each of {len(seeds)} seeds"


def _criterion_lines(criterion: dict[str, Any]) -> list[str]:
    if "not_computed" in criterion:
        return [f"criterion {criterion['id']}: not computed: {criterion['not_computed']}"]
    fails = criterion["net_items_to_fail"]
    lines = [
        f"criterion {criterion['id']}: {criterion['metric']}, margin {criterion['margin']:g},"
        f" half-width {criterion['half_width']:.7f},"
        f" difference needed {criterion['difference_needed']:+.4f}",
        f"  smallest net item count that passes: {criterion['net_items_to_pass']};"
        f" largest that fails: {fails if fails is not None else 'none'}",
    ]
    if criterion["net_items_of_a_tie"]:
        least, most = criterion["net_items_of_a_tie"]
        lines.append(f"  net item counts that are a tie: {least} to {most}")
    return [*lines, *_chance_lines(criterion), *_secondary_lines(criterion)]


def _chance_lines(criterion: dict[str, Any]) -> list[str]:
    names = {"passes": "passes", "fails": "fails", "tie": "tie", "open": "open"}
    if criterion["is_the_whole_rule"]:
        names = {"passes": "supported", "fails": "refuted", "tie": "tie", "open": "insufficient"}
    head = f"  {'true difference':>15}  {'discordance':>11}" + "".join(
        f"  {name:>12}" for name in names.values()
    )
    lines = ["  chance of each outcome, exact", head]
    for cell in criterion["chances"]:
        values = "".join(f"  {_percent(cell[name]):>12}" for name in names)
        lines.append(f"  {cell['true_difference']:>+15.3f}  {cell['discordance']:>11.2f}{values}")
    return lines


def _secondary_lines(criterion: dict[str, Any]) -> list[str]:
    cells = criterion["chances"]
    if not cells or not cells[0]["secondary"]:
        return ["  secondary methods: not computed for more than one seed"]
    methods = [
        f"{row['method']}{'' if row['runs'] is None else '*'}" for row in cells[0]["secondary"]
    ]
    lines = [
        "  chance that the lower bound is above the margin (secondary methods, never deciding;"
        f" * simulated, standard error at most {0.5 / BETTING_RUNS**0.5:.1%})",
        f"  {'true difference':>15}  {'discordance':>11}"
        + "".join(f"  {name:>15}" for name in methods),
    ]
    for cell in cells:
        values = "".join(f"  {_percent(row['above']):>15}" for row in cell["secondary"])
        lines.append(f"  {cell['true_difference']:>+15.3f}  {cell['discordance']:>11.2f}{values}")
    return lines


def _percent(value: float) -> str:
    """Return a probability in percent; a rare one is not shown as never."""
    if 0 < value < NEGLIGIBLE:
        return "<0.1%"
    return ">99.9%" if 1 - NEGLIGIBLE < value < 1 else f"{value:.1%}"
