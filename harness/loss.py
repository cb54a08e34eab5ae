"""The importance-sampling loss and its gradient, in float64, from what a datum carries.

Shape suffixes: ``_T`` target tokens of one datum, ``_D`` datums.

Definition (the service's public one): ``-(exp(logp - q) * A).sum()`` over the tokens of all datums;
a sum, no mean, no clipping. The wire has no mask: prompt tokens are excluded by advantage 0. A mask
given here is applied, so an advantage that leaks onto a prompt token shows up as a difference from
the service's number instead of being part of both.

Sums are ``math.fsum``: correctly rounded, so packing or reordering datums cannot change the loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from harness.errors import HarnessError

FloatArray = npt.NDArray[np.float64]


class LossError(HarnessError, ValueError):
    """A loss is undefined for the datum it was given."""


@dataclass(frozen=True, eq=False)
class DatumArrays:
    """One datum, every array of shape (T,).

    Attributes:
        logprobs_T: log-probabilities of the target tokens under the weights being trained.
        sampling_logprobs_T: the same under the weights that sampled the rollout.
        advantages_T: advantage of each token.
        mask_T: 1 on action tokens, 0 on every other.
    """

    logprobs_T: FloatArray  # noqa: N815 - the shape suffix is part of the name
    sampling_logprobs_T: FloatArray  # noqa: N815
    advantages_T: FloatArray  # noqa: N815
    mask_T: FloatArray  # noqa: N815

    @classmethod
    def of(
        cls,
        logprobs: Sequence[float],
        sampling_logprobs: Sequence[float],
        advantages: Sequence[float],
        mask: Sequence[float] | None = None,
    ) -> DatumArrays:
        """Build a datum from plain numbers; without a mask every token is an action token."""
        kept = np.ones(len(logprobs)) if mask is None else _vector(mask)
        return cls(_vector(logprobs), _vector(sampling_logprobs), _vector(advantages), kept)


def importance_sampling_loss(datums_D: Sequence[DatumArrays]) -> float:
    """Return the loss summed over the action tokens of all datums.

    Raises:
        LossError: for no datum, unequal lengths, a mask that is not 0 or 1, or a number that is
            not finite.
    """
    terms_D = importance_sampling_gradient(datums_D)
    return _finite_sum([float(term) for terms_T in terms_D for term in terms_T])


def importance_sampling_gradient(datums_D: Sequence[DatumArrays]) -> list[FloatArray]:
    """Return d loss / d logp, one (T,) array per datum: ``-exp(logp - q) * A``, 0 off the mask.

    exp is its own derivative, so each entry is at once the token's term of the loss.

    Raises:
        LossError: as :func:`importance_sampling_loss`.
    """
    if not datums_D:
        raise LossError(
            "a loss over no datum proves nothing", expected="at least 1 datum", found="none"
        )
    return [_token_terms(index, datum) for index, datum in enumerate(datums_D)]


def importance_ratios(datum: DatumArrays) -> FloatArray:
    """Return ``exp(logp - q)`` of shape (T,), 0 off the mask: all 1 when nothing is stale."""
    log_ratio_T = datum.logprobs_T - datum.sampling_logprobs_T
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(np.where(datum.mask_T == 1, log_ratio_T, -np.inf))


def _vector(numbers: Sequence[float]) -> FloatArray:
    return np.asarray(numbers, dtype=np.float64)


def _token_terms(index: int, datum: DatumArrays) -> FloatArray:
    _check(index, datum)
    with np.errstate(over="ignore", invalid="ignore"):
        terms_T = np.where(datum.mask_T == 1, -importance_ratios(datum) * datum.advantages_T, 0.0)
    if not np.isfinite(terms_T).all():
        raise LossError(
            "a token's loss overflows float64",
            expected="finite exp(logp - q) * advantage",
            found=f"a log-ratio of {(datum.logprobs_T - datum.sampling_logprobs_T).max()!r}",
            where=f"datum {index}",
            fix="check that both log-probabilities belong to the same tokens",
        )
    return terms_T


def _check(index: int, datum: DatumArrays) -> None:
    shape = datum.logprobs_T.shape
    for field in fields(datum):
        values = getattr(datum, field.name)
        if len(shape) != 1 or values.shape != shape or not np.isfinite(values).all():
            raise LossError(
                "a datum's arrays are not finite vectors of one length",
                expected=f"shape {shape} and finite entries",
                found=f"{field.name}: shape {values.shape}, {values.tolist()!r:.80}",
                where=f"datum {index}",
            )
    if not np.isin(datum.mask_T, (0.0, 1.0)).all():
        raise LossError(
            "a mask selects tokens; it does not weigh them",
            expected="entries 0 or 1",
            found=f"{datum.mask_T.tolist()!r:.80}",
            where=f"datum {index}",
        )


def _finite_sum(terms: Sequence[float]) -> float:
    try:
        return math.fsum(terms)
    except OverflowError as error:
        raise LossError(
            "the loss overflows float64", expected="a finite sum", found=str(error)
        ) from error
