"""Does the service optimise the loss it names, and does an update scale with the learning rate?

Losses are recomputed in float64 from the log-probabilities that the service itself returned, so
nothing but the loss is under test: its sign, its sum, its ratio, its use of every input. Live gates
of contract §4; recipes 1 and 2 of the notes are in :mod:`harness.gates.service_gradient`.

Shape suffixes: ``_D`` datums, ``_T`` tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import tinker

from harness.correctness import lr_scaling_error
from harness.gates.fact import Fact, Measured
from harness.gates.live_probe import EXACT, PROBE_LEARNING_RATE, LiveProbe
from harness.gates.not_offered import metric_of
from harness.gates.service_batch import (
    FloatArray,
    ParityBench,
    cross_entropy_datum,
    trained_ratios,
)
from harness.loss import importance_sampling_gradient

LOSS_TOLERANCE = 1e-5
"""Allowed gap as a share of the sum of the terms' magnitudes.

Log-probabilities cross the wire in float32: at 20 nats that is 1e-6 in the log, so 1e-6 of a term.
A service that also sums in float32 adds about 1e-7 times the square root of the number of tokens. A
mean, a clip, a dropped input or a changed sign moves the loss by a share of order 1.
"""

SCALING_TOLERANCE = {True: 1e-3, False: 5e-2}
"""Relative change where the spec gives none: embedded (True), shared (False).

The first Adam step is the learning rate times a sign, whatever the gradient, so only the rounding
of the exported weights is left. In float32, weights near 0.1 move by 4e-5 or more: 1e-4 of a move,
and less in the norm. In bfloat16 a move of 5e-3 keeps a few percent.
"""

SCALING_FACTORS = (1.0, 3.0, 10.0)
LEAST_TOKENS = 64
RATIOS = (0.7, 1.4)
"""A stale batch must have ratios below the first and above the second."""

_OTHER_LOSS = "the service would train on another loss than the one the arms are compared under"


def measure_loss_parity(probe: LiveProbe) -> Measured:
    """Compare ``loss:sum`` of two losses with float64 recomputations, without a gradient."""
    bench = ParityBench(probe, "loss")
    weights_D = _signed_weights(bench)
    scored_D = [
        cross_entropy_datum(one, weights_T)
        for one, weights_T in zip(bench.sequences_D, weights_D, strict=True)
    ]
    client = bench.fresh()
    sampled = client.forward(bench.data_D, "importance_sampling").result()
    entropy = client.forward(scored_D, "cross_entropy").result()
    logprobs_D = bench.returned(entropy)
    arrays_D = bench.arrays_D(bench.data_D, bench.returned(sampled))
    entropy_terms_D = [
        -logprobs_T * weights_T for logprobs_T, weights_T in zip(logprobs_D, weights_D, strict=True)
    ]
    facts = [
        _loss_fact("importance_sampling", sampled, importance_sampling_gradient(arrays_D)),
        _loss_fact("cross_entropy", entropy, entropy_terms_D),
        Fact(
            "log-probabilities under the two losses, largest gap",
            float(
                max(
                    np.abs(one.logprobs_T - other).max()
                    for one, other in zip(arrays_D, logprobs_D, strict=True)
                )
            ),
            {"at_most": probe.tolerances.gap_max},
            "one loss would have been computed under other weights than the other",
        ),
        *batch_facts(bench, trained_ratios(arrays_D)),
    ]
    return Measured(tuple(facts), {"metrics": dict(sampled.metrics)})


def measure_lr_scaling(probe: LiveProbe) -> Measured:
    """Take one Adam step at three learning rates, a fresh client for each.

    Returns:
        the fact on contract §4's relative change; the note ``lr_scaling`` holds the probes.
    """
    bench = ParityBench(probe, "scaling")
    exact = probe.tolerances is EXACT
    first = probe.spec.optimizer.lr if exact else PROBE_LEARNING_RATE
    rates = [first * factor for factor in SCALING_FACTORS]
    probes = [{"learning_rate": rate, "update_norm": _update_norm(bench, rate)} for rate in rates]
    asked = [path.tolerances.lr_scaling for path in probe.spec.correctness_preflight.paths]
    stated = [tolerance for tolerance in asked if tolerance is not None]
    fact = Fact(
        "relative change of update norm over learning rate",
        lr_scaling_error(probes),
        {"at_most": min(stated) if stated else SCALING_TOLERANCE[exact]},
        "the learning rate that is planned would not be the one that acts",
        f"learning rates {', '.join(f'{rate:g}' for rate in rates)}",
    )
    return Measured((fact,), {"lr_scaling": probes})


def batch_facts(bench: ParityBench, ratios: FloatArray) -> Iterator[Fact]:
    """Say what the fixed batch exercises."""
    empty = "parity would have been shown on inputs that cannot tell right from wrong"
    masks = [one.mask for one in bench.sequences_D]
    inner = sum(int((mask[int(mask.argmax()) :] == 0).sum()) for mask in masks)
    low, high = RATIOS
    yield Fact("tokens with an advantage", len(ratios), {"at_least": LEAST_TOKENS}, empty)
    yield Fact("masked action tokens", inner, {"at_least": 8}, empty)
    yield Fact(
        "different datum lengths", len({len(mask) for mask in masks}), {"at_least": 5}, empty
    )
    yield Fact("least ratio", float(ratios.min()), {"at_most": low}, empty)
    yield Fact("largest ratio", float(ratios.max()), {"at_least": high}, empty)


def _signed_weights(bench: ParityBench) -> list[FloatArray]:
    """Return cross-entropy weights of both signs, exact in float32, 0 off the mask."""
    return [one.mask * (0.25 * (np.arange(len(one.mask)) % 5) - 0.375) for one in bench.sequences_D]


def _loss_fact(
    name: str, output: tinker.ForwardBackwardOutput, terms_D: Sequence[FloatArray]
) -> Fact:
    terms_T = np.concatenate(list(terms_D))
    reported = metric_of(output, "loss:sum")
    gap = abs(reported - float(terms_T.sum()))
    return Fact(
        f"{name}: |loss:sum - float64 recomputation| over the terms' magnitude",
        gap / float(np.abs(terms_T).sum()),
        {"at_most": LOSS_TOLERANCE},
        _OTHER_LOSS,
        f"loss:sum {reported}, recomputed {float(terms_T.sum())!r}",
    )


def _update_norm(bench: ParityBench, learning_rate: float) -> float:
    moments = bench.probe.spec.execution.optimizer
    client = bench.fresh()
    passed = client.forward_backward(bench.data_D, "importance_sampling")
    stepped = client.optim_step(
        tinker.AdamParams(
            learning_rate=learning_rate,
            beta1=moments.beta1,
            beta2=moments.beta2,
            eps=moments.eps,
        )
    )
    passed.result()
    stepped.result()
    return float(np.linalg.norm(bench.change(client)))
