"""The correctness preflight's measurement (contract §4), offline.

Every layout of fixed rollouts is compared for every arm: with the treatment off against stock code,
with it on against the pinned reference, and stock code against the reference as well, so that a
fault which both sides of the first comparison share cannot hide.

Shape suffix: ``_D`` datums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.correctness import parity_errors
from harness.digest import sha256_json
from harness.gates.parity import (
    LossAndGradient,
    compared,
    directional_gap,
    new_path_result,
    reference_result,
    stock_result,
)
from harness.gates.parity_cases import LAYOUTS, ParityCase, parity_case
from harness.gates.parity_policy import Policy
from harness.gates.treatment_off import STOCK_MODE, treatment_off_arms
from harness.reference import ReferenceDatum
from harness.spec_model import Arm, ExperimentSpec

SEED = 20260802
STALENESS = 0.02
"""Standard deviation by which the sampling policy's parameters differ from the trained one's."""

Rows = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Coverage:
    """What one case really exercised, as counted on the reference's side and on the wire.

    Attributes:
        rollouts, datums: rollouts of the batch, and datums sent for them.
        trained_tokens: tokens with an advantage that is not 0.
        masked_tokens: action tokens that carry no training signal.
        least_ratio, largest_ratio: extremes of exp(logp - q) over the trained tokens.
        lengths: different datum lengths.
        weakest_tensor: least over parameter tensors of the largest gradient entry.
    """

    rollouts: int
    datums: int
    trained_tokens: int
    masked_tokens: int
    least_ratio: float
    largest_ratio: float
    lengths: int
    weakest_tensor: float


@dataclass(frozen=True)
class CaseParity:
    """One case of one arm: error rows by name (``reference_loss`` …) and its coverage."""

    name: str
    arm: str
    errors: Rows
    coverage: Coverage


@dataclass(frozen=True)
class Parity:
    """Everything the offline gate measured.

    Attributes:
        cases: one row a case and arm.
        errors: contract §4's four rows over all cases together, and two more that compare stock
            code with the reference.
        float32_errors: stock code in its usual float32 against itself in float64; a diagnostic.
        fixed_input: ``{sha256, description}`` of what every comparison was given.
        difference_gap: worst gap between slope and central difference over the gradient's norm.
    """

    cases: tuple[CaseParity, ...]
    errors: Rows
    float32_errors: Rows
    fixed_input: Mapping[str, str]
    difference_gap: float


def measure_parity(spec: ExperimentSpec, folder: Path, seed: int = SEED) -> Parity:
    """Compare all layouts of all arms.

    Args:
        spec: its arms, with their group sizes, tau and similarity.
        folder: handed to the training record, which writes nothing here.
        seed: of the policy, the rollouts and the directions.

    Raises:
        GateError: when the batch size admits no arm to compare stock code with.
    """
    policy = Policy.seeded(seed)
    sampler = policy.moved(_direction(policy, seed + 1), STALENESS)
    pairs: dict[str, list[tuple[LossAndGradient, LossAndGradient]]] = defaultdict(list)
    cases: list[CaseParity] = []
    gaps: list[float] = []
    inputs: list[dict[str, Any]] = []
    for case in _cases(spec, policy, sampler, seed):
        found = _case_pairs(case, policy, folder)
        for name, pair in found.items():
            pairs[name].append(pair)
        new_path = next(iter(found.values()))[0]
        gaps.append(directional_gap(policy, new_path, seed=seed + 2))
        cases.append(_case_parity(case, found, policy))
        if "baseline" in found:
            _, stock = found["baseline"]
            pairs["stock_float32"].append((stock_result(case, policy, torch.float32), stock))
        inputs.append(case.to_json())
    float32 = {"stock": pairs.pop("stock_float32")}
    return Parity(
        cases=tuple(cases),
        errors=_together(pairs),
        float32_errors=_together(float32),
        fixed_input={
            "sha256": sha256_json({"policy": policy.sha256(), "cases": inputs}),
            "description": f"{len(cases)} batches of fixed rollouts ({', '.join(LAYOUTS)}; sampled"
            f" by the trained and by an older policy) on a seeded float64 transformer of"
            f" {policy.size()} parameters",
        },
        difference_gap=max(gaps),
    )


def _cases(
    spec: ExperimentSpec, policy: Policy, sampler: Policy, seed: int
) -> Iterator[ParityCase]:
    baselines = treatment_off_arms(spec)
    treatments = [arm for arm in spec.arms if arm.advantage_mode != STOCK_MODE]
    for number, arm in enumerate([*baselines, *treatments]):
        for index, layout in enumerate(LAYOUTS):
            yield parity_case(arm, layout, sampler, "stale", seed + 100 * number + index)
        yield parity_case(arm, "single", policy, "fresh", seed + 100 * number + 50)


def _case_pairs(
    case: ParityCase, policy: Policy, folder: Path
) -> dict[str, tuple[LossAndGradient, LossAndGradient]]:
    """Return what is to be compared, (actual, reference) by name; the first actual is new path."""
    new_path = new_path_result(case, policy, folder)
    by_reference = reference_result(case, policy)
    if case.arm.advantage_mode != STOCK_MODE:
        return {"reference": (new_path, by_reference)}
    stock = stock_result(case, policy)
    return {"baseline": (new_path, stock), "stock_reference": (stock, by_reference)}


def _case_parity(
    case: ParityCase, found: Mapping[str, tuple[LossAndGradient, LossAndGradient]], policy: Policy
) -> CaseParity:
    errors = {
        f"{name}_{part}": row
        for name, (actual, expected) in found.items()
        for part, row in compared(actual, expected).items()
    }
    (new_path, _), *_ = found.values()
    _, by_reference = list(found.values())[-1]
    return CaseParity(
        case.name, case.arm.name, errors, _coverage(case.arm, new_path, by_reference, policy)
    )


def _coverage(
    arm: Arm, new_path: LossAndGradient, by_reference: LossAndGradient, policy: Policy
) -> Coverage:
    turns: Sequence[ReferenceDatum] = by_reference.datums
    trained = [
        logprob - sampled
        for turn in turns
        for logprob, sampled, advantage, keep in zip(
            turn.logprobs, turn.sampling_logprobs, turn.advantages, turn.mask, strict=True
        )
        if keep and advantage
    ]
    log_ratios = torch.tensor(trained, dtype=torch.float64)
    return Coverage(
        rollouts=arm.group_size * arm.groups_per_batch,
        datums=len(new_path.datums),
        trained_tokens=len(trained),
        masked_tokens=sum(turn.mask.count(0.0) for turn in turns if isinstance(turn.mask, list)),
        least_ratio=float(log_ratios.min().exp()) if trained else 1.0,
        largest_ratio=float(log_ratios.max().exp()) if trained else 1.0,
        lengths=len({datum.model_input.length for datum in new_path.datums}),
        weakest_tensor=_weakest_tensor(policy, by_reference.gradient),
    )


def _weakest_tensor(policy: Policy, gradient: torch.Tensor) -> float:
    sizes = [tensor.numel() for tensor in policy.parameters.values()]
    return min(float(part.abs().max()) for part in gradient.split(sizes))


def _together(
    pairs: Mapping[str, Sequence[tuple[LossAndGradient, LossAndGradient]]],
) -> dict[str, dict[str, float]]:
    """Return one row a comparison over all its cases: losses as a vector, gradients end to end."""
    rows: dict[str, dict[str, float]] = {}
    for name, found in pairs.items():
        losses = [[side.loss for side in sides] for sides in zip(*found, strict=True)]
        gradients = [
            torch.cat([side.gradient for side in sides]) for sides in zip(*found, strict=True)
        ]
        rows[f"{name}_loss"] = parity_errors(losses[0], losses[1])
        rows[f"{name}_gradient"] = parity_errors(gradients[0], gradients[1])
    return rows


def _direction(policy: Policy, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(policy.size(), generator=generator, dtype=torch.float64)
