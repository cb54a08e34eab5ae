"""Starts stages quickly: imports them once and forks a process for each order it reads.

A line on stdin is ``{"module", "argv", "environment", "log"}``; the answers are a line with the
process's id and, when it ended, a line with its exit status (negative: the signal that ended it).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from harness import arm, evaluate

STAGES: dict[str, Callable[[Sequence[str]], int]] = {"arm": arm.main, "evaluate": evaluate.main}


def run(order: dict[str, Any]) -> int:
    """Run one stage in this process, its output going to a file."""
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order["environment"])
    return STAGES[order["module"]](order["argv"])


def say(line: dict[str, int]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    say({"ready": os.getpid()})
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                code = run(order)
            finally:
                os._exit(code)
        say({"pid": pid})
        _, status = os.waitpid(pid, 0)
        say({"status": os.waitstatus_to_exitcode(status)})


if __name__ == "__main__":
    main()
