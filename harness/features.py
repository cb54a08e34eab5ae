"""Which checks an experiment needs, from what its spec says the experiment does (contract §1, §9).

A spec states a check twice: by its features and by the check's own switch. An explicit true
feature wins over a stale ``required: false``; a feature that is missing, null or not a boolean is
unknown, never false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from harness.errors import UsageError
from harness.spec_model import ExperimentFeatures, ExperimentSpec

Applicability = Literal["required", "not_applicable", "unknown"]

FEATURES = tuple(ExperimentFeatures.model_fields)
"""Every feature of contract §1; each is also a name that can be asked for."""


@dataclass(frozen=True, slots=True)
class CheckSource:
    """Where a spec says whether a check is needed.

    Attributes:
        features: any one of them being true makes the check required.
        switch: path of the check's own boolean; empty for a check without one.
    """

    features: tuple[str, ...] = ()
    switch: tuple[str, ...] = ()


CHECKS: Mapping[str, CheckSource] = {
    "correctness_preflight": CheckSource(
        ("custom_loss", "custom_optimizer"), ("correctness_preflight", "required")
    ),
    "restoration_preflight": CheckSource(
        ("paired_training_arms", "checkpoint_restore"), ("restoration_preflight", "applicable")
    ),
    "activation_gate": CheckSource((), ("activation_gate", "applicable")),
    "generation_audit": CheckSource(
        ("generated_training_data", "learned_generator"), ("generation_audit", "required")
    ),
    "feasibility": CheckSource((), ("feasibility_required",)),
    "decision": CheckSource(("paired_comparison",)),
    "selection": CheckSource(("adaptive_selection",)),
    **{feature: CheckSource((feature,)) for feature in FEATURES},
}
"""Names that :func:`check_applicability` answers for."""


def check_applicability(spec: Mapping[str, Any] | ExperimentSpec, name: str) -> Applicability:
    """Return whether a spec needs a check.

    Args:
        spec: a spec as parsed JSON, however incomplete, or the typed document.
        name: one of :data:`CHECKS`: a check such as "generation_audit", or a feature.

    Returns:
        "required" when a feature of the check or its own switch is true; else "unknown" when one
        of its features does not say, or when it has none and the switch does not say; else
        "not_applicable".

    Raises:
        UsageError: for a name that is not in :data:`CHECKS`.
    """
    source = CHECKS.get(name)
    if source is None:
        raise UsageError(
            "no check or feature has this name",
            expected=f"one of {', '.join(sorted(CHECKS))}",
            found=repr(name),
            where="check_applicability",
        )
    document = spec.model_dump() if isinstance(spec, BaseModel) else spec
    return _joined(_feature_values(document, source), _switch_value(document, source))


def _joined(features: Mapping[str, bool | None], switch: bool | None) -> Applicability:
    if switch is True or True in features.values():
        return "required"
    if None in features.values() or (not features and switch is None):
        return "unknown"
    return "not_applicable"


def _feature_values(document: Mapping[str, Any], source: CheckSource) -> dict[str, bool | None]:
    stated = document.get("experiment_features")
    known: Mapping[str, Any] = stated if isinstance(stated, Mapping) else {}
    return {feature: _explicit(known.get(feature)) for feature in source.features}


def _switch_value(document: Mapping[str, Any], source: CheckSource) -> bool | None:
    value: Any = document if source.switch else None
    for key in source.switch:
        value = value.get(key) if isinstance(value, Mapping) else None
    return _explicit(value)


def _explicit(value: Any) -> bool | None:
    """Return a boolean as it is; "false", 0 and null do not say anything."""
    return value if isinstance(value, bool) else None
