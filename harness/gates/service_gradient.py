"""Does the service follow the gradient of the loss it reports? (contract §4; tinker-notes §3)

No service returns a parameter gradient, so one is made visible: a first Adam step with learning
rate and epsilon both E, far above any gradient, moves every parameter by ``-E g / (|g| + E)``,
which is ``-g`` to a relative |g|/E. Then, always from one state:

1. the weights that a client-side loss hands to the service, by the surrogate loss they give;
2. the built-in loss against the same loss written on the client: same gradient, same Adam step;
3. the gradient against a central difference of ``loss:sum`` along itself;
4. gradients add up over passes, a forward pass adds none, and a step clears them.

Shape suffixes: ``_D`` datums, ``_T`` tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import tinker
import torch

from harness.correctness import parity_errors
from harness.gates.fact import Fact, Measured
from harness.gates.live_probe import EXACT, LiveProbe
from harness.gates.not_offered import metric_of
from harness.gates.service_batch import (
    FloatArray,
    ParityBench,
    negated,
    trained_ratios,
)
from harness.gates.service_parity import LOSS_TOLERANCE, batch_facts
from harness.loss import importance_sampling_gradient

LINEAR = 1e6
"""E: ten thousand times the largest gradient entry measured here (about 90), so that the step is
linear to 1e-4; float32 rounds each move by 1e-7 of itself whatever E is."""

DIFFERENCE_STEP = 0.005
"""Length of the central difference in parameter space: the loss then changes by percents, far above
float32 rounding, and what the difference leaves out is below a thousandth of the slope."""


@dataclass(frozen=True)
class GradientTolerances:
    """Bounds of one kind of service.

    Attributes:
        twin: relative L2 distance of two gradients, or Adam steps, that should be equal.
        cosine: least cosine similarity of the same.
        difference: relative gap between slope and central difference.
        zeros: share of adapter entries that may have a gradient of exactly 0.
    """

    twin: float
    cosine: float
    difference: float
    zeros: float


EXACT_GRADIENT = GradientTolerances(twin=1e-4, cosine=0.99999, difference=0.005, zeros=1e-3)
"""Embedded, float32: weights of a client-side loss are rounded once more (6e-8 a token), exported
parameters hold 6e-8 of themselves; the central difference keeps its third-order term. No entry of
the shipped model's adapter is exactly 0 here, so a part that is never trained stands out."""

SHARED_GRADIENT = GradientTolerances(twin=0.05, cosine=0.995, difference=0.15, zeros=0.5)
"""Shared services export bfloat16 and may pack twins differently: a few percent of a gradient. A
wrong sign, a clip, a mean or a dropped term is far outside. Rounding hides small entries."""

_WRONG = "the arms would follow another gradient than that of the preregistered loss"


def measure_gradient_parity(probe: LiveProbe) -> Measured:
    """Measure all four; about a dozen clients, one or two passes each."""
    bench = ParityBench(probe, "gradient")
    allowed = EXACT_GRADIENT if probe.tolerances is EXACT else SHARED_GRADIENT
    built_in = bench.fresh()
    output = built_in.forward_backward(bench.data_D, "importance_sampling").result()
    _step(built_in, _linear(probe))
    gradient = -bench.change(built_in)
    arrays_D = bench.arrays_D(bench.data_D, bench.returned(output))
    facts = [
        *_twin_facts(bench, gradient, allowed),
        _difference_fact(bench, gradient, allowed),
        *_accumulation_facts(bench, built_in, gradient, allowed),
        *_nonzero_facts(bench, gradient, allowed),
        *batch_facts(bench, trained_ratios(arrays_D)),
    ]
    norms = {"gradient norm": float(np.linalg.norm(gradient)), "parameters": gradient.size}
    return Measured(tuple(facts), norms)


def importance_sampling_on_client(
    data_D: list[tinker.Datum], logprobs_D: list[torch.Tensor]
) -> tuple[torch.Tensor, dict[str, float]]:
    """Return the importance-sampling loss as a client-side loss of the SDK."""
    terms = [
        -(
            torch.exp(logprobs_T.double() - datum.loss_fn_inputs["logprobs"].to_torch().double())
            * datum.loss_fn_inputs["advantages"].to_torch().double()
        ).sum()
        for datum, logprobs_T in zip(data_D, logprobs_D, strict=True)
    ]
    return torch.stack(terms).sum(), {}


def _nonzero_facts(
    bench: ParityBench, gradient: FloatArray, allowed: GradientTolerances
) -> Iterator[Fact]:
    empty = "a tensor without gradient is never trained, and parity of zeros proves nothing"
    sizes = [tensor.size for tensor in bench.start_adapter.values()]
    parts = np.split(gradient, np.cumsum(sizes)[:-1])
    still = sum(1 for part in parts if not part.any())
    yield Fact("adapter tensors", len(parts), {"at_least": 2}, empty)
    yield Fact("adapter tensors without any gradient", still, {"equals": 0}, empty)
    zeros = float((gradient == 0).mean())
    yield Fact(
        "share of adapter entries without gradient", zeros, {"at_most": allowed.zeros}, empty
    )
    bend = float(np.abs(gradient).max()) / LINEAR
    yield Fact("largest gradient entry over E", bend, {"at_most": 1e-3}, _WRONG)


def _twin_facts(
    bench: ParityBench, gradient: FloatArray, allowed: GradientTolerances
) -> Iterator[Fact]:
    custom = bench.fresh()
    result = custom.forward_backward_custom(bench.data_D, importance_sampling_on_client).result()
    _step(custom, _linear(bench.probe))
    yield from _surrogate_facts(bench, result)
    yield from _close(
        "gradient of the loss on the client", -bench.change(custom), gradient, allowed
    )
    adam_custom, adam_built_in = bench.fresh(), bench.fresh()
    adam_custom.forward_backward_custom(bench.data_D, importance_sampling_on_client).result()
    adam_built_in.forward_backward(bench.data_D, "importance_sampling").result()
    steps = []
    for client in (adam_custom, adam_built_in):
        _step(client, bench.probe.adam())
        steps.append(bench.change(client))
    yield from _close("Adam step of the loss on the client", steps[0], steps[1], allowed)


def _surrogate_facts(bench: ParityBench, result: tinker.ForwardBackwardOutput) -> Iterator[Fact]:
    """Compare the loss and the weights that the SDK sent with float64 ``A * ratio``."""
    logprobs_D = bench.returned(result)
    terms_D = importance_sampling_gradient(bench.arrays_D(bench.data_D, logprobs_D))
    surrogate_D = [terms_T * logp_T for terms_T, logp_T in zip(terms_D, logprobs_D, strict=True)]
    for key, parts_D in (("loss:sum", terms_D), ("surrogate_loss:sum", surrogate_D)):
        terms_T = np.concatenate(parts_D)
        gap = abs(metric_of(result, key) - float(terms_T.sum())) / float(np.abs(terms_T).sum())
        yield Fact(
            f"client-side loss: |{key} - float64| over the terms' magnitude",
            gap,
            {"at_most": LOSS_TOLERANCE},
            _WRONG,
        )


def _difference_fact(bench: ParityBench, gradient: FloatArray, allowed: GradientTolerances) -> Fact:
    """Compare |g|^2 with the loss at theta - s g and theta + s g, reached by two updates."""
    norm = float(np.linalg.norm(gradient))
    shrink = DIFFERENCE_STEP / norm
    losses: list[float] = []
    for data_D in (bench.data_D, [negated(datum) for datum in bench.data_D]):
        client = bench.fresh()
        client.forward_backward(data_D, "importance_sampling").result()
        _step(client, _linear(bench.probe, shrink))
        moved = client.forward(bench.data_D, "importance_sampling").result()
        losses.append(metric_of(moved, "loss:sum"))
    slope = (losses[1] - losses[0]) / (2 * DIFFERENCE_STEP)
    return Fact(
        "relative gap between gradient and central difference of loss:sum",
        abs(slope / norm - 1.0),
        {"at_most": allowed.difference},
        _WRONG,
        f"slope {slope:.6g}, gradient norm {norm:.6g}",
    )


def _accumulation_facts(
    bench: ParityBench,
    stepped: tinker.TrainingClient,
    gradient: FloatArray,
    allowed: GradientTolerances,
) -> Iterator[Fact]:
    """Check that passes add, that forward adds nothing, and that a step clears.

    ``stepped`` has taken one step with ``gradient``. One more step without a pass moves it by the
    decaying first moment alone, ``b1 / (1 + b1)`` of the gradient after bias correction; a gradient
    that was not cleared would move it by all of it.
    """
    probe, data_D = bench.probe, bench.data_D
    halves = bench.fresh()
    for half_D in (data_D[::2], data_D[1::2]):
        halves.forward_backward(half_D, "importance_sampling").result()
    _step(halves, _linear(probe))
    yield from _close("gradient of two half passes", -bench.change(halves), gradient, allowed)

    idle = bench.fresh()
    idle.forward(data_D, "importance_sampling").result()
    _step(idle, _linear(probe))
    largest = float(np.abs(bench.change(idle)).max())
    added = "evaluation passes would train the arm"
    yield Fact("largest change by a step after forward only", largest, {"equals": 0.0}, added)

    before = bench.change(stepped)
    _step(stepped, _linear(probe))
    beta1 = probe.spec.execution.optimizer.beta1
    moved, expected = before - bench.change(stepped), gradient * beta1 / (1 + beta1)
    yield from _close("second step without a pass", moved, expected, allowed)


def _close(
    name: str, actual: FloatArray, expected: FloatArray, allowed: GradientTolerances
) -> Iterator[Fact]:
    errors = parity_errors(actual, expected)
    for key, rule in (
        ("relative_l2_error", {"at_most": allowed.twin}),
        ("cosine_similarity", {"at_least": allowed.cosine}),
    ):
        yield Fact(f"{name}: {key}", errors[key], rule, _WRONG)


def _linear(probe: LiveProbe, shrink: float = 1.0) -> tinker.AdamParams:
    moments = probe.spec.execution.optimizer
    return tinker.AdamParams(
        learning_rate=LINEAR * shrink, beta1=moments.beta1, beta2=moments.beta2, eps=LINEAR
    )


def _step(client: tinker.TrainingClient, params: tinker.AdamParams) -> None:
    client.optim_step(params).result()
