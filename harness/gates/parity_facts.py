"""The record of the offline correctness measurement, and what it must show (contract §4).

Tolerances are the spec's own, for all cases together and for every case alone, so that a large case
cannot lend its allowance to a small one. What was exercised is a fact too: parity on tokens with
advantage 0, or with every ratio 1, would prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.correctness_record import CorrectnessRecord, plan
from harness.correctness_report import Status, judge
from harness.digest import canonical_json
from harness.errors import GateError
from harness.gates.fact import Fact, Measured
from harness.gates.parity_measure import CaseParity, Parity
from harness.pins import current_pins
from harness.spec import LoadedSpec
from harness.spec_model import ExperimentSpec
from harness.spec_preflight import CorrectnessPath, Tolerance

PRECISION = (
    "float64 losses and gradients; advantages and sampling log-probabilities rounded once to"
    " float32, as the wire carries them"
)
NORMALIZATION = "sum over tokens and datums: no mean, no length, no division by a deviation"

DIFFERENCE_TOLERANCE = 1e-5
"""A central difference with step 1e-5 is good to about 1e-7 of the gradient's norm here."""

LEAST_GRADIENT = 0.1
"""Every parameter tensor's gradient must reach this, a hundred times the loosest allowed error."""

STALE_RATIOS = (0.8, 1.25)
"""A stale case must have ratios below the first and above the second."""

_DATUMS_A_ROLLOUT = {"single": 1, "merged": 1, "split": 2, "masked": 1}
_WRONG = "the arm would train on another loss or gradient than the one preregistered"
_EMPTY = "parity would have been shown on inputs that cannot tell right from wrong"


def preflight_record(
    spec: ExperimentSpec,
    measured: Parity,
    root: Path,
    lr_scaling: Sequence[Mapping[str, float]] | None = None,
) -> dict[str, Any]:
    """Return ``correctness_preflight`` of contract §4 for the loss paths of a spec.

    Revisions are those of the tree that was measured, never copied from the pins.

    Args:
        spec: its loss paths; a path of another kind gets no row, and is then missing.
        measured: the offline measurement.
        root: the project's root.
        lr_scaling: the live probes, where they were made.
    """
    return {
        "required": spec.correctness_preflight.required,
        "paths": [
            {
                "id": path.id,
                "fixed_input": dict(measured.fixed_input),
                **current_pins(root).model_dump(),
                "precision": PRECISION,
                "normalization": NORMALIZATION,
                "errors": {
                    name: dict(row)
                    for name, row in measured.errors.items()
                    if not name.startswith("stock")
                },
                "lr_scaling": None if lr_scaling is None else [dict(row) for row in lr_scaling],
            }
            for path in spec.correctness_preflight.paths
            if path.kind == "loss"
        ],
    }


def parity_facts(loaded: LoadedSpec, measured: Parity, root: Path) -> Measured:
    """Return everything the offline gate checks, and the record as a note.

    Args:
        loaded: the spec with its pins.
        measured: what was measured.
        root: the project's root, whose revisions the record names.

    Raises:
        GateError: when the spec plans no loss path, so that no tolerance is known.
    """
    paths = [path for path in loaded.spec.correctness_preflight.paths if path.kind == "loss"]
    if not paths:
        raise GateError(
            "the spec plans no loss path, so no tolerance is known",
            expected="a path of kind loss",
            found="none",
            where="correctness_preflight.paths",
        )
    record = preflight_record(loaded.spec, measured, root)
    facts = [
        *(fact for path in paths for fact in _within_tolerances(path, measured)),
        Fact(
            "gap between slope and central difference over the gradient's norm",
            measured.difference_gap,
            {"at_most": DIFFERENCE_TOLERANCE},
            _WRONG,
        ),
        *(fact for case in measured.cases for fact in _coverage(case)),
        *_judged(loaded, record),
    ]
    notes = {
        "correctness_preflight": record,
        "stock in float32": dict(measured.float32_errors),
        "cases": [
            {"name": case.name, "arm": case.arm, **vars(case.coverage)} for case in measured.cases
        ],
    }
    return Measured(tuple(facts), notes)


def _coverage(case: CaseParity) -> Iterator[Fact]:
    layout, staleness = case.name.split(", ")
    found, where = case.coverage, f"{case.arm}, {case.name}"
    low, high = STALE_RATIOS
    stale = staleness == "stale"
    rules: dict[str, tuple[float, Mapping[str, Any]]] = {
        "datums": (found.datums, {"equals": found.rollouts * _DATUMS_A_ROLLOUT[layout]}),
        "tokens with an advantage": (found.trained_tokens, {"at_least": found.rollouts}),
        "masked action tokens": (
            found.masked_tokens,
            {"at_least": found.rollouts} if layout == "masked" else {"equals": 0},
        ),
        "least ratio": (found.least_ratio, {"at_most": low} if stale else {"at_least": 1 - 1e-5}),
        "largest ratio": (
            found.largest_ratio,
            {"at_least": high} if stale else {"at_most": 1 + 1e-5},
        ),
        "different datum lengths": (found.lengths, {"at_least": 5}),
        "weakest tensor's largest gradient": (found.weakest_tensor, {"at_least": LEAST_GRADIENT}),
    }
    for name, (value, rule) in rules.items():
        yield Fact(name, value, rule, _EMPTY, where)


def _within_tolerances(path: CorrectnessPath, measured: Parity) -> Iterator[Fact]:
    for case in measured.cases:
        for name, row in case.errors.items():
            tolerance: Tolerance | None = getattr(path.tolerances, name.removeprefix("stock_"))
            if tolerance is not None:
                yield from _row_facts(name, row, tolerance, f"{path.id}: {case.arm}, {case.name}")


def _row_facts(
    name: str, row: Mapping[str, float], tolerance: Tolerance, where: str
) -> Iterator[Fact]:
    allowed = tolerance.atol + tolerance.rtol * row["reference_max_abs"]
    yield Fact(f"{name} max_abs_error", row["max_abs_error"], {"at_most": allowed}, _WRONG, where)
    if tolerance.min_cosine is not None:
        rule = {"at_least": tolerance.min_cosine}
        yield Fact(f"{name} cosine_similarity", row["cosine_similarity"], rule, _WRONG, where)


def _judged(loaded: LoadedSpec, record: Mapping[str, Any]) -> Iterator[Fact]:
    """Judge the record as a stranger would; learning-rate probes are a live gate's."""
    features = loaded.spec.experiment_features.model_dump()
    planned = plan(loaded.spec.correctness_preflight, features, loaded.pins)
    parsed = CorrectnessRecord.model_validate_json(canonical_json(dict(record)))
    for check in judge(planned, parsed).checks:
        if check.name != "lr_scaling":
            yield Fact(
                f"{check.name} of the record",
                check.status.value,
                {"equals": Status.PASSED.value},
                "no arm may train on revisions or errors that are not settled",
                f"{check.path_id}: {check.detail}",
            )
