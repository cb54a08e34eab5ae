"""Parity of a numerical path, as numbers, and the command that judges a preflight record.

``python -m harness.correctness spec.json preflight.json`` prints one line a check and then the
status; it exits 0 for passed or not_applicable, 1 for failed, missing or unresolved, and 2 where a
document cannot be read (contract §4). The judgement is in :mod:`harness.correctness_report`.

Every number here is float64, and norms are taken of values scaled by their largest, so that entries
near the ends of float64's range neither overflow nor vanish.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.errors import HarnessError

FloatArray = npt.NDArray[np.float64]
_READABLE_KINDS = "iuf"


class ParityError(HarnessError, ValueError):
    """Two results cannot be compared, so nothing may be concluded from them."""


def parity_errors(actual: Any, reference: Any) -> dict[str, float]:
    """Compare a result with its reference, entry by entry (contract §4).

    Args:
        actual: a number, an array or a tensor; integers and floats of any precision.
        reference: the same shape.

    Returns:
        ``max_abs_error`` max|a − r|, ``reference_max_abs`` max|r|, ``relative_l2_error``
        ‖a − r‖/‖r‖ and ``cosine_similarity``. Both all zero: errors 0, cosine 1. Only one all
        zero: cosine 0. Where r alone is zero the ratio has no value; the smallest normal float64
        then stands for ‖r‖, and the largest float64 bounds the result, so that a record stays JSON.

    Raises:
        ParityError: for nothing to compare, unequal shapes, entries that are not real numbers or
            not finite, or a difference beyond float64.
    """
    a, r = _vector(actual, "actual"), _vector(reference, "reference")
    if np.shape(actual) != np.shape(reference):
        raise ParityError(
            "actual and reference do not have one shape",
            expected=f"shape {np.shape(reference)}",
            found=f"shape {np.shape(actual)}",
            fix="compare the same quantity, without broadcasting",
        )
    with np.errstate(over="ignore"):
        difference = a - r
    if not np.isfinite(difference).all():
        raise ParityError("the difference overflows float64", found="entries near the largest")
    return {
        "max_abs_error": float(np.abs(difference).max()),
        "reference_max_abs": float(np.abs(r).max()),
        "relative_l2_error": _norm_ratio(difference, r),
        "cosine_similarity": _cosine(a, r),
    }


def lr_scaling_error(probes: Sequence[Mapping[str, float]]) -> float:
    """Return the largest relative change of update_norm/learning_rate against the first probe.

    Args:
        probes: rows ``{learning_rate, update_norm}``, the optimizer's state reset for each.

    Raises:
        ParityError: for fewer than two different learning rates, a number that is missing or not
            finite, a learning rate that is not above 0, a negative norm, or a first norm of 0.
    """
    rates = [_probe_number(probe, "learning_rate", i) for i, probe in enumerate(probes)]
    norms = [_probe_number(probe, "update_norm", i) for i, probe in enumerate(probes)]
    if len(set(rates)) < 2 or min(rates) <= 0 or min(norms) < 0 or norms[0] == 0:
        raise ParityError(
            "the probes cannot show how an update scales with the learning rate",
            expected="two different learning rates above 0, norms >= 0 and the first above 0",
            found=f"learning rates {rates}, update norms {norms}",
            fix="probe fresh clients at different learning rates",
        )
    first = norms[0] / rates[0]
    changes = [abs(norm / rate / first - 1.0) for norm, rate in zip(norms, rates, strict=True)]
    if not all(math.isfinite(change) for change in changes):
        raise ParityError("a probe's ratio overflows float64", found=f"{rates}, {norms}")
    return max(changes)


def _vector(values: Any, name: str) -> FloatArray:
    array = np.asarray(_widened(values))
    if array.dtype.kind not in _READABLE_KINDS or array.size == 0:
        raise ParityError(
            f"{name} holds nothing that can be compared",
            expected="at least one real number",
            found=f"dtype {array.dtype}, shape {array.shape}",
        )
    vector = array.astype(np.float64).reshape(-1)
    if not np.isfinite(vector).all():
        raise ParityError(
            f"{name} holds entries that are not finite",
            expected="finite numbers",
            found=f"{int((~np.isfinite(vector)).sum())} of {vector.size} not finite",
        )
    return vector


def _widened(values: Any) -> Any:
    """Take a torch tensor off its graph in float64; numpy has no bfloat16."""
    return values.detach().cpu().double().numpy() if hasattr(values, "detach") else values


def _norm_ratio(difference: FloatArray, reference: FloatArray) -> float:
    if not difference.any():
        return 0.0
    largest_d, largest_r = float(np.abs(difference).max()), float(np.abs(reference).max())
    shape_d = _norm(difference / largest_d)
    shape_r = _norm(reference / largest_r) if largest_r else 1.0
    ratio = largest_d / (largest_r or sys.float_info.min) * (shape_d / shape_r)
    return min(ratio, sys.float_info.max)


def _cosine(a: FloatArray, r: FloatArray) -> float:
    if not a.any() or not r.any():
        return float(a.any() == r.any())
    if np.array_equal(a, r):
        return 1.0
    unit_a, unit_r = a / np.abs(a).max(), r / np.abs(r).max()
    dot = float((unit_a * unit_r).sum()) / _norm(unit_a) / _norm(unit_r)
    return max(-1.0, min(1.0, dot))


def _norm(vector: FloatArray) -> float:
    return math.sqrt(float((vector * vector).sum()))


def _probe_number(probe: Mapping[str, float], key: str, index: int) -> float:
    value = probe.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParityError(
            "a probe lacks a finite number",
            expected=f"{key}: a finite number",
            found=repr(value),
            where=f"probe {index}",
        )
    return float(value)


def main(argv: Sequence[str]) -> int:
    """Run ``python -m harness.correctness SPEC PREFLIGHT`` and return its exit code."""
    # The report judges with the mathematics above, so it can only be imported after it.
    from harness.correctness_report import ACCEPTED, judge, read_planned, read_record

    if len(argv) != 2:
        sys.stderr.write("usage: python -m harness.correctness spec.json preflight.json\n")
        return 2
    try:
        planned = read_planned(Path(argv[0]))
        verdict = judge(planned, read_record(Path(argv[1])))
    except HarnessError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 2
    for check in verdict.checks:
        sys.stdout.write(f"{check}\n")
    sys.stdout.write(f"correctness: {verdict.status}\n")
    return 0 if verdict.status in ACCEPTED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
