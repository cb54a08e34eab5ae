"""Runs one stage of an experiment as a process and follows it from its files.

A stage is ``python -m harness.initial_state``, ``harness.arm`` or ``harness.evaluate``. Its log
goes to a file; its progress is read from ``steps.jsonl`` as lines appear, the same file a person
would watch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from harness.digest import parse_json
from harness.errors import ArmError
from harness.parent_watch import WATCH_VARIABLE
from harness.reading import open_regular
from harness.redact import is_secret_name
from harness.secrets_out import add_secret
from harness.stage_failure import stage_failed
from harness.stage_log import LogCopy

_PACKAGE_ROOT = Path(__file__).parents[1]
_POLL_S = 0.25
_GRACE_S = 10.0

Report = Callable[[str], None]


class LineFollower:
    """Reads the complete lines that were added to a file since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def new_rows(self) -> Iterator[dict[str, Any]]:
        """Yield each complete new line as an object; a line still being written waits."""
        if not self.path.exists():
            return
        with open_regular(self.path) as stream:
            stream.seek(self._offset)
            data = stream.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.splitlines():
            yield parse_json(line, where=self.path.name)


def run_stage(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    log_path: Path,
    on_poll: Callable[[], None],
) -> float:
    """Run a stage to its end and return its seconds.

    Args:
        module: the stage's module.
        arguments: its command line.
        environment: variables added to this process's own.
        log_path: where its output goes.
        on_poll: called a few times a second while it runs, and once after.

    Raises:
        ArmError: when it exits with anything but 0, with its last words and the end of its log.
    """
    started_s = time.monotonic()
    log_path.parent.mkdir(parents=True, exist_ok=True)
    # The stage runs the package that the gates were bound to, whatever the current folder holds.
    search = os.pathsep.join(filter(None, [str(_PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]))
    own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": search, WATCH_VARIABLE: "1"}
    variables = {**os.environ, **own, **environment}
    command = [sys.executable, "-P", "-m", module, *arguments]
    for name in filter(is_secret_name, environment):
        add_secret(name, environment[name])
    # Its input is written to by no one: it ends when this process does (parent_watch).
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.PIPE,
        env=variables,
    )
    log = LogCopy(_output_of(process), log_path)
    try:
        exit_code = _wait(process, on_poll)
    except BaseException:
        _end(process)
        raise
    finally:
        if process.stdin is not None:
            process.stdin.close()
        log.join()
    on_poll()
    if exit_code != 0:
        raise stage_failed(module, arguments, exit_code, log_path)
    return time.monotonic() - started_s


def _output_of(process: subprocess.Popen[bytes]) -> IO[bytes]:
    if process.stdout is None:
        raise ArmError("the stage's output is not connected")
    return process.stdout


def _wait(process: subprocess.Popen[bytes], on_poll: Callable[[], None]) -> int:
    while True:
        try:
            return process.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            on_poll()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the stage to stop, and stop it if it does not: no arm trains unwatched."""
    process.terminate()
    try:
        process.wait(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
