"""Records and secrets: a record is written whole, with a visible placeholder, or not at all.

A text that only looks like a token (a model can make one up) is replaced by ``[redacted:NAME]``,
which any reader of the row sees. A text that holds the value of a secret of this process stops the
write: either something leaks, or a setting is taken for a secret, and both need a person.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.errors import SecretError
from harness.secret_shapes import credential_shapes
from harness.secrets_out import current_redactor


def safe_json(text: str, value: Any, where: str, *, dump: Callable[[Any], str]) -> str:
    """Return a record's JSON text without secrets.

    Args:
        text: what ``dump`` made of ``value``.
        value: the record.
        where: its file, for the message.
        dump: turns a JSON value into text.

    Raises:
        SecretError: when it holds the value of a secret that this process knows.
    """
    redactor = current_redactor()
    # Numbers are no texts: a secret of digits only may also be a measurement.
    if not redactor.values_in(text) and redactor.redact(text) == text:
        return text
    return dump(clean_json(value, where))


def clean_json(value: Any, where: str) -> Any:
    """Return a JSON value with a placeholder for everything that looks like a token.

    Raises:
        SecretError: when one of its texts holds the value of a secret that this process knows.
    """
    redactor = current_redactor()
    held = sorted({name for text in _texts(value) for name in redactor.values_in(text)})
    if held:
        raise _refusal(held, where)
    return redactor.redact_json(value)


def refuse_secrets(data: bytes, where: str) -> None:
    """Refuse bytes that hold a secret or anything that looks like a token.

    Raises:
        SecretError: naming the variable or the kind of token, never what was found.
    """
    text = data.decode("utf-8", "replace")
    if held := [*current_redactor().values_in(text), *credential_shapes(text)]:
        raise _refusal(held, where)


def _refusal(names: list[str], where: str) -> SecretError:
    return SecretError(
        "a record holds a secret and was not written",
        expected="no value of a secret variable in any record",
        found=f"the value of {', '.join(names)}",
        where=where,
        fix="if it is a setting and no secret, unset or rename the variable; else find the leak",
    )


def _texts(value: Any) -> list[str]:
    """Return every text and key of a JSON value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    return []
