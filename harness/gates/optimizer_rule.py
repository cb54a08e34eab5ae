"""Is the optimizer AdamW with the constants that are asked for? Two steps against the formula.

No service reports betas or epsilon, so their effect is measured. Gradients are made visible by a
step with learning rate and epsilon both E, far above any gradient: it moves a parameter by
``-E g / (|g| + E)``, which can be inverted (tinker-notes §3). The steps under test use constants of
their own, far from every default, so that a service which ignores a field is far from the formula
(Kingma & Ba, arXiv:1412.6980; decoupled decay as in Loshchilov & Hutter, arXiv:1711.05101).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import tinker

from harness.gates.fact import Fact, Measured
from harness.gates.live_probe import EXACT, PROBE_LEARNING_RATE, LiveProbe, Scored, update
from harness.gates.restoration import adapter_vector
from harness.sdk_generation import training_client

Vector = npt.NDArray[np.float64]

LINEAR = 1e4
"""E: gradients here are below 100, and parameters must not be rounded away beside it."""

LARGEST_MOVE = 0.1
"""Largest move of a parameter in the gradient probe, as a share of E: a service that ignores
epsilon moves by E itself."""

ROWS_A_STEP = 4

FIRST_STEP_REPEATS = 4
"""How often the first step takes its rows: its gradient is as many times larger where the loss is a
sum, so that a second moment which forgets at another rate is far from the plan, also beside the
tolerance of a shared service."""

BETA1, BETA2, EPS_SHARE, WEIGHT_DECAY = 0.3, 0.02, 0.1, 8.0
"""What the steps under test ask for; epsilon as a share of a typical gradient of the first step.
Decay is asked for, because what a run could add unasked is small beside a shared service's
tolerance; a service that uses its own decay whatever is asked for is far from this one."""

TOLERANCE = {True: 1e-3, False: 0.1}
"""Distance of a step from the formula, as a share of its norm. The embedded service (True) rounds
parameters of about 0.1 to float32: 1e-8 beside a step of 5e-3; others may export bfloat16."""

POWER = 3.0
"""Every wrong constant must move the expected step by this many tolerances, or nothing is shown."""


@dataclass(frozen=True)
class Constants:
    """AdamW's constants; ``learning_rate`` and ``weight_decay`` act as in torch.optim.AdamW."""

    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float = 0.0


def adamw_steps(
    gradients: Sequence[Vector], weights: Sequence[Vector], constants: Constants
) -> list[Vector]:
    """Return the change each step should make, from zero moments.

    Args:
        gradients: one (N,) a step, at the weights before that step.
        weights: those weights, one (N,) a step; only decay depends on them.
        constants: what was asked for.
    """
    first, second = np.zeros_like(gradients[0]), np.zeros_like(gradients[0])
    changes: list[Vector] = []
    for step, (gradient, before) in enumerate(zip(gradients, weights, strict=True), start=1):
        first = constants.beta1 * first + (1 - constants.beta1) * gradient
        second = constants.beta2 * second + (1 - constants.beta2) * gradient**2
        mean = first / (1 - constants.beta1**step)
        scale = np.sqrt(second / (1 - constants.beta2**step)) + constants.eps
        decay = constants.weight_decay * before
        changes.append(-constants.learning_rate * (mean / scale + decay))
    return changes


def wrong_constants(asked: Constants) -> dict[str, Constants]:
    """Return what a service might use instead of each constant, one at a time."""
    return {
        "beta1 ignored": replace(asked, beta1=0.9),
        "beta2 ignored (0.95)": replace(asked, beta2=0.95),
        "beta2 ignored (0.999)": replace(asked, beta2=0.999),
        "eps ignored": replace(asked, eps=1e-8),
        "weight decay ignored (0)": replace(asked, weight_decay=0.0),
        "weight decay ignored (0.1)": replace(asked, weight_decay=0.1),
        "learning rate halved": replace(asked, learning_rate=asked.learning_rate / 2),
    }


def measure_optimizer_rule(probe: LiveProbe) -> Measured:
    """Take two steps on the service and compare each with AdamW in float64."""
    uri = _warm_start(probe)
    rows = [
        [*probe.gold_rows(ROWS_A_STEP, ROWS_A_STEP)] * FIRST_STEP_REPEATS,
        [*probe.gold_rows(2 * ROWS_A_STEP, ROWS_A_STEP)],
    ]
    gradients = [_gradient(probe, uri, rows[0], "first")]
    eps = EPS_SHARE * _typical(gradients[0])
    asked = Constants(PROBE_LEARNING_RATE, BETA1, BETA2, eps, WEIGHT_DECAY)
    client = _load(probe, uri)
    path = [adapter_vector(probe, client, "rule-0")]
    for step, name in enumerate(("first", "second")):
        if step:
            between = client.save_state(f"{probe.label}-rule-between").result().path
            gradients.append(_gradient(probe, between, rows[1], name))
        update(client, rows[step], _params(asked))
        path.append(adapter_vector(probe, client, f"rule-{step + 1}"))
    changes = [after - before for before, after in pairwise(path)]
    return Measured(
        tuple(_facts(probe, asked, gradients, path[:-1], changes)),
        {"asked": vars(asked), "parameters": path[0].size},
    )


def _facts(
    probe: LiveProbe,
    asked: Constants,
    gradients: Sequence[Vector],
    weights: Sequence[Vector],
    changes: Sequence[Vector],
) -> list[Fact]:
    tolerance = TOLERANCE[probe.tolerances is EXACT]
    expected = adamw_steps(gradients, weights, asked)
    wrong = "the arms would be trained by another optimizer than the one that was planned"
    largest = max(float(np.abs(gradient).max()) for gradient in gradients) / LINEAR
    facts = [
        Fact("gradient probe: largest gradient / E", largest, {"at_most": LARGEST_MOVE}, wrong)
    ]
    facts += [
        Fact(
            f"step {step}: distance from AdamW / norm",
            _share(change, planned),
            {"at_most": tolerance},
            wrong,
        )
        for step, (change, planned) in enumerate(zip(changes, expected, strict=True), start=1)
    ]
    for name, constants in wrong_constants(asked).items():
        other = adamw_steps(gradients, weights, constants)
        power = max(_share(a, b) for a, b in zip(other, expected, strict=True))
        blind = "the measurement could not tell this from the plan"
        facts.append(Fact(f"power: {name}", power, {"at_least": POWER * tolerance}, blind))
    return facts


def _warm_start(probe: LiveProbe) -> str:
    """Return a saved adapter whose B is not zero, so that A has a gradient too."""
    client = probe.new_trainer()
    update(client, probe.gold_rows(0, ROWS_A_STEP), probe.adam())
    return client.save_state(f"{probe.label}-rule-start").result().path


def _load(probe: LiveProbe, uri: str) -> tinker.TrainingClient:
    return training_client(probe.client.create_training_client_from_state(uri))


def _gradient(probe: LiveProbe, uri: str, rows: Sequence[Scored], name: str) -> Vector:
    """Return the gradient of ``rows`` at a saved adapter, by one step with E."""
    client = _load(probe, uri)
    before = adapter_vector(probe, client, f"rule-{name}-before")
    update(client, rows, _params(Constants(LINEAR, 0.9, 0.95, LINEAR)))
    moved = before - adapter_vector(probe, client, f"rule-{name}-after")
    # The bound only keeps the division defined: a move that large fails the gate's first fact.
    return moved / np.maximum(1 - np.abs(moved) / LINEAR, 1 - LARGEST_MOVE)


def _params(constants: Constants) -> tinker.AdamParams:
    return tinker.AdamParams(
        learning_rate=constants.learning_rate,
        beta1=constants.beta1,
        beta2=constants.beta2,
        eps=constants.eps,
        weight_decay=constants.weight_decay,
    )


def _typical(gradient: Vector) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(gradient**2)))


def _share(actual: Vector, planned: Vector) -> float:
    return float(np.linalg.norm(actual - planned) / np.linalg.norm(planned))
