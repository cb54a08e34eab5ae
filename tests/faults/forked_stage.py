"""Stages as forks of one process that has everything imported: the same code, seconds sooner.

``harness.stage.run_stage`` starts a fresh interpreter, which imports torch for seconds. A fork
server imports it once. What a stage does, how it ends and how it is watched stay the same.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path

from harness.stage_failure import stage_failed

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "harness.initial_state",
        "harness.arm",
        "harness.evaluate",
        "harness.stage_process",
        "tests.faults.stage_imports",
    ]
)
_POLL_S = 0.1
_GRACE_S = 10.0


def import_ahead() -> None:
    """Start the fork server now, so that it has everything imported when the first stage comes."""
    forkserver.ensure_running()


def stage_child(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], log: str
) -> None:
    """Be the stage's process."""
    os.environ.update(environment)
    with Path(log).open("ab") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    from harness.stage_process import run_stage_main

    code = run_stage_main(importlib.import_module(module).main, arguments)
    sys.stderr.flush()
    os._exit(code)


def fork_stage(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], log_path: Path
) -> BaseProcess:
    """Start a stage and return its process."""
    process = _FORKS.Process(
        target=stage_child, args=(module, list(arguments), dict(environment), str(log_path))
    )
    process.start()
    return process


def run_forked(
    module: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    log_path: Path,
    on_poll: Callable[[], None],
) -> float:
    """Do what ``run_stage`` does."""
    started_s = time.monotonic()
    log_path.parent.mkdir(parents=True, exist_ok=True)
    process = fork_stage(module, arguments, environment, log_path)
    try:
        while process.is_alive():
            process.join(_POLL_S)
            on_poll()
    except BaseException:
        _end(process)
        raise
    on_poll()
    if process.exitcode != 0:
        raise stage_failed(module, arguments, process.exitcode or 0, log_path)
    return time.monotonic() - started_s


def _end(process: BaseProcess) -> None:
    process.terminate()
    process.join(_GRACE_S)
    if process.is_alive():
        process.kill()
        process.join()
