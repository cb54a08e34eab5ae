"""The one way secrets are kept out of what this process writes.

Every sink comes here: records (`refuse_secrets`), logs and messages (`without_secrets`). The
redactor is built from the environment as it is now and rebuilt when a variable with a secret's
name changes; keys that are only handed to child processes are added with `add_secret`.
"""

from __future__ import annotations

import os
from typing import Any

from harness.redact import Redactor, is_secret_name

_added: set[tuple[str, str]] = set()
"""Secrets of this process that no variable of its own holds, each with its variable's name."""
_names: dict[str, bool] = {}
"""Whether a variable's name is a secret's; names repeat, so each is judged once."""


class _Current:
    """The redactor of the environment it was last built from."""

    def __init__(self) -> None:
        self.values: tuple[tuple[str, str], ...] | None = None
        self.redactor = Redactor({})


_current = _Current()


def add_secret(variable: str, value: str) -> None:
    """Treat a value as this variable's secret from now on, whatever the environment holds."""
    _added.add((variable, value))


def current_redactor() -> Redactor:
    """Return the redactor of all secrets this process knows now."""
    values = (*_secret_variables(), *sorted(_added))
    if values != _current.values:
        _current.redactor = Redactor.from_values(values)
        _current.values = values
    return _current.redactor


def _secret_variables() -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for name, value in os.environ.items():
        if name not in _names:
            _names[name] = is_secret_name(name)
        if _names[name]:
            found.append((name, value))
    return tuple(sorted(found))


def without_secrets(text: str) -> str:
    """Return a message or log text with every secret replaced by its placeholder."""
    return current_redactor().redact(text)


def json_without_secrets(value: Any) -> Any:
    """Return a JSON value with every secret in its texts and keys replaced."""
    return current_redactor().redact_json(value)
