"""An optional copy of a run's steps in a tracker that a person already watches.

A mirror is a convenience and never evidence: nothing reads it back, it is fed by the process that
follows the run's files, and its failure is said once and stops nothing. The tracker itself runs in
a process of its own (:mod:`harness.mirror_process`), which is given numbers, names of spec, run and
arm, and of the environment no secret but the tracker's own.
"""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Protocol

from harness.errors import UsageError
from harness.redact import is_secret_name
from harness.step_line import SeenStep

OWN_VARIABLES = {
    "trackio": ("TRACKIO_", "HF_"),
    "mlflow": ("MLFLOW_", "DATABRICKS_"),
    "wandb": ("WANDB_",),
}
"""Trackers, each with the beginnings of the variables that reach it whatever they are called."""
PATH_VARIABLE = "HARNESS_MIRROR_PATH"
"""A folder with a tracker's package, for the mirror's process alone: its needs may not be ours."""
CLOSE_S = 30.0
"""How long a run waits at an arm's end for its mirror to take what is left."""
_PACKAGE_ROOT = Path(__file__).parents[1]
_SAID_BYTES = 2048


class StepMirror(Protocol):
    """Where steps are copied to."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Copy one step; never raises and never waits."""

    def close(self) -> None:
        """Copy what is left, or give up."""


def step_numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a row of ``steps.jsonl``, nested ones as ``outer/inner``."""
    return {name: value for name, value in _numbers(row, "") if name != "step"}


def _numbers(row: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}/")
        elif (
            isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        ):
            yield f"{prefix}{key}", float(value)


def feed(mirror: StepMirror) -> Callable[[SeenStep], None]:
    """Return what copies each step that is seen into a mirror."""
    return lambda step: mirror.log(step.done - 1, step_numbers(step.row))


def require_tracker(kind: str, environment: Mapping[str, str]) -> None:
    """Refuse a tracker that the mirror's process would not find.

    Raises:
        UsageError: when its package is not installed.
    """
    if PathFinder.find_spec(kind, [environment.get(PATH_VARIABLE, ""), *sys.path]) is None:
        raise UsageError(
            f"--mirror {kind} needs the package {kind}",
            expected=f"{kind} in this Python, or in the folder that {PATH_VARIABLE} names",
            found="nothing",
            fix=f"pip install --target DIR {kind}; export {PATH_VARIABLE}=DIR",
        )


class ProcessMirror:
    """A mirror whose tracker runs in a process of its own.

    Args:
        kind: a key of :data:`OWN_VARIABLES`.
        names: project, group and run, as the tracker will show them.
        folder: where the tracker works, made if it is missing; it may leave files there.
        report: shows one line to the person.
        close_s: how long :meth:`close` may take.
    """

    def __init__(
        self,
        kind: str,
        names: tuple[str, str, str],
        folder: Path,
        report: Callable[[str], None],
        close_s: float = CLOSE_S,
    ) -> None:
        self.kind = kind
        self.report = report
        self.close_s = close_s
        self._failed = False
        self._unsent = b""
        folder.mkdir(parents=True, exist_ok=True)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.mirror_process", kind, *names],
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            env=environment_for(kind, os.environ),
            cwd=folder,
            # An interrupt ends the run; the mirror ends when its input does, with what it was sent.
            start_new_session=True,
        )
        self._pipe = -1
        if self._process.stdin is not None:
            self._pipe = self._process.stdin.fileno()
            os.set_blocking(self._pipe, False)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Hand one step on; what the tracker is too slow to take is kept for the next time."""
        if not self._failed:
            line = json.dumps({"step": step, "numbers": dict(numbers)}, allow_nan=False)
            self._unsent += line.encode() + b"\n"
            self._send()

    def close(self) -> None:
        """Send what is left and end the process, by force if it takes too long."""
        until_s = time.monotonic() + self.close_s
        while self._unsent and not self._failed and (left_s := until_s - time.monotonic()) > 0:
            select.select([], [self._pipe], [], left_s)
            self._send()
        self._close_input()
        try:
            code = self._process.wait(timeout=max(0.1, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._fail(f"it did not end within {self.close_s:g} s")
        else:
            if code != 0 or self._unsent:
                self._fail(f"it ended with exit code {code}")
        self._said.close()

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._pipe, self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._fail("it ended before the run did")

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _fail(self, what: str) -> None:
        """Say once that the mirror is lost, with its own last words."""
        if self._failed:
            return
        self._failed = True
        self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, self._said.tell() - _SAID_BYTES))
        words = self._said.read().decode("utf-8", "replace").strip().splitlines()
        last = f": {words[-1]}" if words else ""
        self.report(f"mirror {self.kind}: {what}{last}; the run goes on without it")


def open_mirror(
    kind: str, names: tuple[str, str, str], folder: Path, report: Callable[[str], None]
) -> ProcessMirror | None:
    """Return a mirror, or say why there is none; see :class:`ProcessMirror`."""
    try:
        return ProcessMirror(kind, names, folder, report)
    except OSError as error:
        report(f"mirror {kind}: not started: {error.strerror}; the run goes on without it")
        return None


def environment_for(kind: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a tracker's process: no secret but the tracker's own."""
    kept = {
        name: value
        for name, value in environment.items()
        if name.startswith(OWN_VARIABLES[kind]) or not is_secret_name(name)
    }
    folders = [kept.get(PATH_VARIABLE, ""), str(_PACKAGE_ROOT), kept.get("PYTHONPATH", "")]
    search = os.pathsep.join(filter(None, folders))
    return kept | {"PYTHONPATH": search}
