"""The gates that exist and the ones a spec requires.

The list of required ids is computed from the spec, so deselecting or renaming a test can make a
gate unproven but can never shrink what is required (design §3.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.spec import ExperimentSpec


@dataclass(frozen=True)
class GateEntry:
    """One gate.

    Attributes:
        gate_id: stable name, also the argument of the ``gate`` marker.
        clause: contract clause or design section it stands for.
        proves: one sentence for tables and the README.
        live: it needs the training service.
        required: whether a spec requires it.
    """

    gate_id: str
    clause: str
    proves: str
    live: bool
    required: Callable[[ExperimentSpec], bool]


def _always(spec: ExperimentSpec) -> bool:  # noqa: ARG001 - the catalogue's common signature
    """Every spec."""
    return True


def _activation(spec: ExperimentSpec) -> bool:
    """Specs whose activation_gate is applicable."""
    return spec.activation_gate.applicable


def _has_gs1(spec: ExperimentSpec) -> bool:
    return any(arm.advantage_mode == "gs1" for arm in spec.arms)


def _dry_activation(spec: ExperimentSpec) -> bool:
    """Specs whose activation_gate is applicable and that have a gs1 arm."""
    return _activation(spec) and _has_gs1(spec)


def _restoration(spec: ExperimentSpec) -> bool:
    """Specs whose restoration_preflight is applicable."""
    return spec.restoration_preflight.applicable


def _correctness(spec: ExperimentSpec) -> bool:
    """Specs whose correctness_preflight is required."""
    return spec.correctness_preflight.required


def _feasibility(spec: ExperimentSpec) -> bool:
    """Specs with feasibility_required."""
    return spec.feasibility_required


CATALOG: tuple[GateEntry, ...] = (
    GateEntry(
        "advantage_properties",
        "contract §12",
        "each advantage obeys the identities its definition implies and equals the reference",
        live=False,
        required=_always,
    ),
    GateEntry(
        "stock_advantage_parity",
        "contract §4",
        "with the treatment off, the new path gives the stock loop's own advantages and datums",
        live=False,
        required=_always,
    ),
    GateEntry(
        "loss_gradient_parity",
        "contract §4",
        "fixed rollouts give the loss and parameter gradient of stock code and of the reference",
        live=False,
        required=_correctness,
    ),
    GateEntry(
        "dry_activation",
        "contract §5",
        "the treatment is active on every batch of prompts the run would use",
        live=False,
        required=_dry_activation,
    ),
    GateEntry(
        "initial_identity",
        "contract §3",
        "every arm starts from the same adapter bytes and the same log-probabilities",
        live=True,
        required=_restoration,
    ),
    GateEntry(
        "optimizer_restored",
        "contract §3",
        "a restored optimizer takes the step the uninterrupted one takes, and a cold one does not",
        live=True,
        required=_restoration,
    ),
    GateEntry(
        "optimizer_rule",
        "contract §3, §4",
        "the service's optimizer is AdamW with the betas, epsilon and decay that are asked for",
        live=True,
        required=_always,
    ),
    GateEntry(
        "service_model",
        "design §4, service faults",
        "the planned model is served, at the rank that is asked for, to sampler and trainer alike",
        live=True,
        required=_always,
    ),
    GateEntry(
        "greedy_decoding",
        "design §4, service faults",
        "temperature 0 is the argmax of the model's own probabilities, alone and under load",
        live=True,
        required=_always,
    ),
    GateEntry(
        "sampling_seeds",
        "design §4, service faults",
        "seeds are honoured, rollouts of a group are draws and follow the stated probabilities",
        live=True,
        required=_always,
    ),
    GateEntry(
        "stop_reasons",
        "design §4, service faults",
        "completions end where they should and say why",
        live=True,
        required=_always,
    ),
    GateEntry(
        "sampler_trainer_agreement",
        "design §4, service faults",
        "sampler and trainer give the same log-probabilities to the same tokens",
        live=True,
        required=_always,
    ),
    GateEntry(
        "sampler_freshness",
        "design §4, service faults",
        "after each step a new sampler has the new weights and an old one keeps its own",
        live=True,
        required=_always,
    ),
    GateEntry(
        "capacity_answers",
        "contract §10",
        "a refusal for want of capacity is understood as that, waited out, and never a result",
        live=True,
        required=_always,
    ),
    GateEntry(
        "service_loss_parity",
        "contract §4",
        "the service's loss is the planned one, recomputed from its own log-probabilities",
        live=True,
        required=_correctness,
    ),
    GateEntry(
        "service_gradient_parity",
        "contract §4",
        "the service follows the full gradient of the loss it reports, added up until a step",
        live=True,
        required=_correctness,
    ),
    GateEntry(
        "lr_scaling",
        "contract §4",
        "an update of a fresh optimizer is proportional to the learning rate",
        live=True,
        required=_correctness,
    ),
    GateEntry(
        "pilot_activation",
        "contract §5",
        "three steps of each arm, as the full run would make them, are inside the spec's ranges",
        live=True,
        required=_activation,
    ),
    GateEntry(
        "feasibility",
        "contract §6",
        "the full run, projected from measured times of its own schedule, fits its budget",
        live=True,
        required=_feasibility,
    ),
)

_BY_ID = {entry.gate_id: entry for entry in CATALOG}


def gate_entry(gate_id: str) -> GateEntry:
    """Return a gate by id.

    Raises:
        UsageError: for an id that is not in the catalogue.
    """
    if gate_id not in _BY_ID:
        raise UsageError(
            "a test names a gate that does not exist",
            expected=f"one of {sorted(_BY_ID)}",
            found=gate_id,
            fix="add the gate to harness/gates/catalog.py",
        )
    return _BY_ID[gate_id]


def required_gate_ids(spec: ExperimentSpec) -> tuple[str, ...]:
    """Return the ids of the gates that must be proven before an arm of ``spec`` may train."""
    return tuple(entry.gate_id for entry in CATALOG if entry.required(spec))


def markdown_table() -> list[str]:
    """Return the catalogue as the lines of the README's table."""
    rows = [
        f"| `{entry.gate_id}` | {entry.proves} | {'the service' if entry.live else 'nothing'} |"
        for entry in CATALOG
    ]
    return ["| gate | what it proves | needs |", "|---|---|---|", *rows]
