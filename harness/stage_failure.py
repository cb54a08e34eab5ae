"""Why a stage's process failed, from its exit code and the end of its log."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

from harness.errors import ArmError
from harness.reading import open_regular

_TAIL_LINES = 12
_TAIL_BYTES = 8192
_ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Group)(: |$)")
"""How Python's last words and a stage's own begin: the error's class, not indented."""
_MORE = re.compile(r" \| (expected|found|where|do): ")


def stage_failed(module: str, arguments: Sequence[str], exit_code: int, log_path: Path) -> ArmError:
    """Return the error of a stage that ended with anything but 0.

    Args:
        module: the stage's module.
        arguments: its command line; the second one names what it worked on.
        exit_code: the process's; negative for the signal that ended it.
        log_path: where its output went.

    Raises:
        StoreError: when the log cannot be read.
    """
    lines = _last_lines(log_path)
    stage = " ".join([module, *arguments[1:2]])
    return ArmError(
        f"the stage {stage} failed: {cause_of(exit_code, lines)}",
        expected="exit code 0",
        found=f"exit code {exit_code}",
        where="\n".join(lines[-_TAIL_LINES:]),
        fix=f"read {log_path.name} in the run's folder",
    )


def cause_of(exit_code: int, lines: Sequence[str]) -> str:
    """Return one line that says why a process ended.

    Args:
        exit_code: negative for the signal that ended it, which its log cannot tell.
        lines: the end of its log.
    """
    if exit_code < 0:
        return f"ended by {_signal_name(-exit_code)}"
    errors = [line for line in lines if _ERROR_LINE.match(line)]
    said = errors or [line.strip() for line in lines if line.strip()]
    return _MORE.split(said[-1])[0] if said else "it said nothing"


def _signal_name(number: int) -> str:
    known = {one.value: one.name for one in signal.Signals}
    return known.get(number, f"signal {number}")


def _last_lines(path: Path) -> list[str]:
    with open_regular(path) as stream:
        stream.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return stream.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
