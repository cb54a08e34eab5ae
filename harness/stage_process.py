"""Inside a stage's process: how every stage begins, and how it ends when the service fails it.

A stage's own errors (``HarnessError``) end it with one line and 1. What is left is a fault of the
service, which ends the process with a code of its own (:data:`harness.service_fault.EXIT_CODES`)
and one line, or a defect, which ends it with a traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from harness.answer_log import LOG_VARIABLE, AnswerLog, observed_answers
from harness.errors import HarnessError
from harness.output_guard import guard_output
from harness.parent_watch import end_with_parent
from harness.plan import PlannedRun, read_plan
from harness.proxy_headers import stage_headers
from harness.redact import Redactor
from harness.service_fault import EXIT_CODES, fault_of_error, unusable_answer

Subject = TypeVar("Subject")


def do_stage(
    module: str,
    argv: Sequence[str],
    subject: Callable[[str], Subject],
    work: Callable[[PlannedRun, Subject], None],
) -> int:
    """Do a stage's work as ``python -m MODULE RUN SUBJECT [--gsm8k-dir DIR]`` asks for it.

    Args:
        module: the stage.
        argv: the arguments.
        subject: reads what of the run the stage works on: an arm's name, a seed.
        work: the stage itself, given the run's plan and the subject.

    Returns:
        0 when it is done, 1 when it failed with an error of its own, which is then written.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("run", type=Path)
    parser.add_argument("subject", type=subject)
    parser.add_argument("--gsm8k-dir", type=Path)
    options = parser.parse_args(argv)
    end_with_parent()
    guard_output()
    os.environ["TINKER_TELEMETRY"] = "0"
    # The SDK calls some of its own methods deprecated, and the stock loop still makes such calls.
    warnings.simplefilter("ignore", FutureWarning)
    try:
        work(read_plan(options.run, options.gsm8k_dir), options.subject)
    except HarnessError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


def run_stage_main(main: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Run a stage's ``main`` and return the process's exit code.

    Args:
        main: the stage.
        argv: its arguments.
    """
    redactor = Redactor.from_environment(os.environ)
    named = os.environ.get(LOG_VARIABLE)
    log = AnswerLog(Path(named), redactor) if named else None
    with ExitStack() as stack:
        stack.enter_context(stage_headers(os.environ))
        if log is not None:
            stack.enter_context(observed_answers(log))
        try:
            code = main(argv)
        except Exception as error:
            fault = fault_of_error(error)
            if fault is None:
                # The traceback stays in the log: only the SDK's authors could say it better.
                if log is not None and (unusable := unusable_answer(error, log.last_answer)):
                    log.ended(unusable)
                raise
            if log is not None:
                log.ended(fault)
            where = " ".join(argv[1:2])
            sys.stderr.write(redactor.redact(f"ServiceError: {fault.error(where)}") + "\n")
            return EXIT_CODES[fault.kind]
    if log is not None and log.failure is not None:
        sys.stderr.write(f"{type(log.failure).__name__}: {log.failure}\n")
        return code or 1
    return code
