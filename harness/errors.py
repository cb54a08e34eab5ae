"""Every error this package raises on purpose.

A message answers four questions: what was expected, what was found, where, and what to do.
Each class also derives from the standard exception a caller would expect, so that generic
handlers (``except ValueError``) keep working.
"""

from __future__ import annotations

from harness.secrets_out import without_secrets

_MAX_SHOWN = 4000
_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
}


def shown(text: str) -> str:
    """Return a text that any terminal and file takes: no secret, no control character, bounded.

    What a message repeats comes from files and services that may hold anything.
    """
    clean = without_secrets(text).encode("utf-8", "backslashreplace").decode().translate(_CONTROLS)
    if len(clean) <= _MAX_SHOWN:
        return clean
    half = _MAX_SHOWN // 2
    return f"{clean[:half]} … {len(clean) - 2 * half} characters … {clean[-half:]}"


class HarnessError(Exception):
    """Base class of the harness's own errors; each part is passed through `shown`.

    Args:
        problem: one plain sentence naming the rule that was broken.
        expected: what would have been accepted.
        found: what was there instead.
        where: file, field path, step or endpoint.
        fix: the next thing to do, as a command or an edit.
    """

    def __init__(
        self,
        problem: str,
        *,
        expected: str = "",
        found: str = "",
        where: str = "",
        fix: str = "",
    ) -> None:
        self.problem = shown(problem)
        self.expected = shown(expected)
        self.found = shown(found)
        self.where = shown(where)
        self.fix = shown(fix)
        super().__init__(self._text())

    def _text(self) -> str:
        parts = [self.problem]
        for label, value in (
            ("expected", self.expected),
            ("found", self.found),
            ("where", self.where),
            ("do", self.fix),
        ):
            if value:
                parts.append(f"{label}: {value}")
        return " | ".join(parts)


class DocumentError(HarnessError, ValueError):
    """A JSON, JSONL or schema document is not what the contract allows."""


class SpecError(DocumentError):
    """An experiment spec breaks contract §1."""


class AdvantageError(HarnessError, ValueError):
    """An advantage is undefined for the input it was given."""


class DecisionError(HarnessError, ValueError):
    """Observations or a rule from which no decision may be drawn."""


class ServiceError(HarnessError, RuntimeError):
    """The training service cannot be reached or did not do what was asked."""


class NotOfferedError(ServiceError):
    """An answer of the service lacks what is measured with; the sentence names the route."""


class RefusedError(ServiceError):
    """The service refuses for want of capacity or money; nothing is known of what was asked."""


class ArmError(HarnessError, RuntimeError):
    """An arm broke one of the conditions under which its training counts."""


class GateError(HarnessError, AssertionError):
    """A preflight gate measured something outside what is allowed."""


class StoreError(HarnessError, OSError):
    """A run folder cannot be written or read as the contract asks."""


class SecretError(StoreError):
    """A record holds one of this process's secrets and was not written."""


class UsageError(HarnessError, ValueError):
    """The command line or the environment asks for something that is not offered."""


MALFORMED = (
    HarnessError,
    OSError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
)
"""What a document of a wrong form raises when it is read as one of the right form."""
