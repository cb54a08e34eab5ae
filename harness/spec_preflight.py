"""The preflight sections of an experiment spec as models (contract §1, §3, §4, §5, §9)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from harness.spec_part import (
    Beta,
    Count,
    NonNegative,
    PlainName,
    Positive,
    Revision,
    Seed,
    SpecPart,
)


class ActivationCheck(SpecPart):
    """One range that a pilot must land in; both ends are inside."""

    metric: str
    measures: str | None = None
    min: float | None = None
    max: float | None = None
    one_of: tuple[str | float, ...] | None = None

    @property
    def rule(self) -> dict[str, Any]:
        """The range as a gate's rule (:func:`harness.gates.recorder.within`)."""
        one_of = None if self.one_of is None else list(self.one_of)
        bounds = {"at_least": self.min, "at_most": self.max, "one_of": one_of}
        return {key: bound for key, bound in bounds.items() if bound is not None}


class ActivationGate(SpecPart):
    """Proof that the treatment does something before the full run (contract §5)."""

    applicable: bool
    reason: str | None = None
    checks: tuple[ActivationCheck, ...] = ()


class OptimizerConfig(SpecPart):
    """The optimizer and adapter that a restored arm must come back with (contract §3)."""

    learning_rate: Positive
    beta1: Beta
    beta2: Beta
    eps: Positive
    lora_rank: Count
    init_seed: Seed | None = None


class RestorationArm(SpecPart):
    """One arm of a group that must start from the same adapter."""

    name: str
    optimizer: str
    optimizer_config: OptimizerConfig


class RestorationGroup(SpecPart):
    """Arms that share one initial state."""

    arms: Annotated[tuple[RestorationArm, ...], Field(min_length=1)]


class RestorationPreflight(SpecPart):
    """Which arms must prove a common start (contract §3)."""

    applicable: bool
    reason: str | None = None
    fixed_batch_required: bool | None = None
    groups: tuple[RestorationGroup, ...] = ()


class Tolerance(SpecPart):
    """Accepted error: max|a - r| <= atol + rtol * max|r|; a part not given is 0, the strictest."""

    atol: NonNegative = 0.0
    rtol: NonNegative = 0.0
    min_cosine: Annotated[float, Field(ge=-1, le=1)] | None = None


class Tolerances(SpecPart):
    """Tolerances of one path, by error name; ``lr_scaling`` is a relative change (contract §4)."""

    baseline_loss: Tolerance | None = None
    baseline_gradient: Tolerance | None = None
    reference_loss: Tolerance | None = None
    reference_gradient: Tolerance | None = None
    baseline_update: Tolerance | None = None
    reference_update: Tolerance | None = None
    lr_scaling: NonNegative | None = None


class CorrectnessPath(SpecPart):
    """One numerical path; a revision that begins with UNRESOLVED is not pinned."""

    id: PlainName
    kind: Literal["loss", "optimizer"]
    baseline_revision: Revision
    reference_revision: Revision
    tolerances: Tolerances


class CorrectnessPreflight(SpecPart):
    """Which numerical paths need parity before training (contract §4)."""

    required: bool
    status: str | None = None
    paths: tuple[CorrectnessPath, ...] = ()


class GenerationAudit(SpecPart):
    """Audit of generated tasks; a strategy other than the two of contract §9 is unverified."""

    required: bool
    answer_comparison: Any = None
    min_sample_size: Annotated[int, Field(ge=0)] | None = None
    max_label_errors: Annotated[int, Field(ge=0)] | None = None
    max_eval_overlaps: Annotated[int, Field(ge=0)] | None = None
