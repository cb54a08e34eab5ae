"""The list of planted client-side defects: what each patches, who must catch it, its effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

Patch = Callable[[pytest.MonkeyPatch], None]


class ClientMutant(NamedTuple):
    """A patch of this process, the guard that must catch it, and what it would have done."""

    patch: Patch
    guard: str
    effect: str


CLIENT_MUTANTS: dict[str, ClientMutant] = {}


def planted(guard: str, effect: str) -> Callable[[Patch], Patch]:
    """Register a patch under its function's name.

    Args:
        guard: a key of ``client_guards.GUARDS``: a gate, a run-time guard, or a unit-test file.
        effect: what the defect would have done to an experiment.
    """

    def register(patch: Patch) -> Patch:
        if patch.__name__ in CLIENT_MUTANTS:
            raise ValueError(f"two defects are called {patch.__name__}")
        CLIENT_MUTANTS[patch.__name__] = ClientMutant(patch, guard, effect)
        return patch

    return register
