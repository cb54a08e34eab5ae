"""The experiment itself: base model, arms, verdict. Runs only on proven gates."""

from __future__ import annotations

import pytest

from harness.experiment import Experiment
from harness.session import HarnessSession


@pytest.mark.full
def test_base_model(experiment: Experiment) -> None:
    """Score the base model, so that the arms' accuracies have something to be compared with."""
    accuracy = experiment.evaluate("base")
    assert 0.0 <= accuracy <= 1.0, f"accuracy {accuracy} outside [0, 1]"


@pytest.mark.full
def test_arm(experiment: Experiment, arm_name: str) -> None:
    """Train one arm and score its final checkpoint."""
    done = experiment.train(arm_name)
    planned = experiment.run.spec.arm(arm_name).steps
    assert done["steps"] == planned, f"trained {done['steps']} steps, planned {planned}"
    accuracy = experiment.evaluate(arm_name)
    assert 0.0 <= accuracy <= 1.0, f"accuracy {accuracy} outside [0, 1]"


@pytest.mark.full
@pytest.mark.decision
def test_decision(experiment: Experiment, harness_session: HarnessSession) -> None:
    """Draw the verdict; a refuted or inconclusive hypothesis is a result, not a failure."""
    if missing := experiment.missing_scores():
        harness_session.undecided.extend(missing)
        # The base model is scored by every full session, so only arms need to be asked for.
        arms = " ".join(f"--arm {name}" for name in missing if name != "base")
        command = harness_session.command(f"-m full {arms}".strip())
        pytest.skip(f"no decision yet: {', '.join(missing)} not scored. Next: {command}")
    document = experiment.decide()
    assert document.verdict is not None, "the run ended without a verdict"
