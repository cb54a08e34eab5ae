"""Keeps secrets out of what a process says: tracebacks and log records.

A stage's output passes once more through the redactor of its parent (:mod:`harness.stage_log`);
this guard is what also holds for files that libraries write and for stages started by hand.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from harness.secrets_out import without_secrets


def guard_output() -> None:
    """Redact this process's tracebacks and log records from now on.

    Printed characters that the terminal cannot take are escaped instead of ending the program.
    """
    sys.excepthook = _print_exception
    threading.excepthook = lambda hook: _print_exception(
        hook.exc_type, hook.exc_value or hook.exc_type(), hook.exc_traceback
    )
    logging.setLogRecordFactory(SecretFreeRecord)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(without_secrets(text))


class SecretFreeRecord(logging.LogRecord):
    """A log record whose message, traceback and stack hold no secret, whoever formats it."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        if self.exc_info:
            # A formatter takes this text as it is instead of making its own.
            self.exc_text = without_secrets(logging.Formatter().formatException(self.exc_info))
        if self.stack_info:
            self.stack_info = without_secrets(self.stack_info)

    def getMessage(self) -> str:  # noqa: N802 - logging's own name
        """Return the message without secrets."""
        return without_secrets(super().getMessage())


def redacted_result(function: Callable[..., str]) -> Callable[..., str]:
    """Return a function whose text comes back without secrets."""

    def wrapper(*arguments: Any, **keywords: Any) -> str:
        return without_secrets(function(*arguments, **keywords))

    return wrapper
