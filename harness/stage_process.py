"""Inside a stage's process: how it ends when the service fails it.

A stage's own errors (``HarnessError``) are its ``main``'s business. What is left is a fault of the
service, which ends the process with a code of its own (:data:`harness.service_fault.EXIT_CODES`)
and one line, or a defect, which ends it with a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from harness.answer_log import LOG_VARIABLE, AnswerLog, observed_answers
from harness.proxy_headers import stage_headers
from harness.redact import Redactor
from harness.service_fault import EXIT_CODES, fault_of_error, unusable_answer


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
