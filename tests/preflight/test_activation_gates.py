"""Gates on the treatment's activity: on the prompts alone, and on a pilot of both arms."""

from __future__ import annotations

import pytest

from harness.experiment import Experiment
from harness.gates.pilot import pilot_values, run_pilot
from harness.gates.pilot_truncation import truncation_by_arm, truncation_warning
from harness.gates.prompt_activation import measure_prompts, table_text
from harness.gates.recorder import GateRecorder, within
from harness.problems import load_problems
from harness.session import HarnessSession


@pytest.mark.preflight
@pytest.mark.gate("dry_activation")
def test_dry_activation(gate: GateRecorder, harness_session: HarnessSession) -> None:
    spec = harness_session.loaded.spec
    train = load_problems(spec, "train", harness_session.options.gsm8k_dir)
    for found in measure_prompts(spec, train):
        measured, check = found.measured, found.check
        gate.note(f"medians of {found.arm.name}", list(measured.medians_B))
        if not all(within(median, check.rule) for median in measured.medians_B):
            table = table_text(spec, train, found.arm, check)
            gate.note("table", table.splitlines())
            harness_session.report(
                f"dry gate: {found.arm.name} (tau {found.arm.tau:g}) on {train.source}:"
                f" pooled median {measured.pooled_median:.1f} over {len(measured.medians_B)}"
                " batches. What each vectoriser and tau would give (a diagnostic, it changes"
                f" nothing; a revision is a new spec file):\n{table}"
            )
        effect = (
            "the similarity baseline would be nearly uniform (too many contributors) or one"
            " neighbour (too few), so the comparison would not test the treatment"
        )
        for name, value in (("smallest", measured.lowest), ("largest", measured.highest)):
            gate.check(
                f"{name} batch median of effective contributors",
                value,
                effect=effect,
                where=f"{found.arm.name}, {len(measured.medians_B)} batches",
                **check.rule,
            )


@pytest.mark.preflight
@pytest.mark.live
@pytest.mark.gate("pilot_activation")
def test_pilot_activation(
    gate: GateRecorder, harness_session: HarnessSession, experiment: Experiment
) -> None:
    spec = harness_session.loaded.spec
    pilot = run_pilot(experiment)
    values = pilot_values(spec, pilot)
    gate.note("activation_calibration", values.to_json())
    gate.note("effective_contributors", pilot.contributors)
    truncation = truncation_by_arm(pilot.steps)
    gate.note("truncation", truncation)
    if warning := truncation_warning(truncation, spec.execution.max_tokens):
        harness_session.report(warning)
    for check in spec.activation_gate.checks:
        for arm, value in values.of(check.metric):
            gate.check(
                check.metric,
                value,
                effect="the full run would not test the treatment it names",
                where=arm,
                **check.rule,
            )
