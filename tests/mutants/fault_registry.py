"""The list of planted service faults: what each patches, who must catch it, what it would do."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Fault(NamedTuple):
    """A patch of the service, the gate that must catch it, and what it would have done."""

    patch: Callable[[], None]
    gate_id: str
    effect: str


FAULTS: dict[str, Fault] = {}


def fault(gate_id: str, effect: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a patch under its function's name.

    Args:
        gate_id: the gate whose measuring function must report a failure.
        effect: what the fault would have done to an experiment.
    """

    def register(patch: Callable[[], None]) -> Callable[[], None]:
        if patch.__name__ in FAULTS:
            raise ValueError(f"two faults are called {patch.__name__}")
        FAULTS[patch.__name__] = Fault(patch, gate_id, effect)
        return patch

    return register
