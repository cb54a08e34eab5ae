"""What ``result.json`` says of a run that stopped or waits: still running, or blocked by capacity.

A fault that stops a session leaves the run to be continued: status running, and a summary that
says what stopped it and what continues it. Only the want of capacity ends a run (contract §10).
Numbers that were posted stay, whatever happens.
"""

from __future__ import annotations

from pathlib import Path

from harness.capacity import CapacityExhaustedError
from harness.result import CapacityBlock, publish, read_result
from harness.service_fault import one_clause


def continue_command(root: Path, spec_path: Path, default_spec: str) -> str:
    """Return the command that continues a run of a spec, without a path of this machine."""
    inside = spec_path.is_relative_to(root)
    given = spec_path.relative_to(root).as_posix() if inside else spec_path.name
    return "pytest -m full" if given == default_spec else f"pytest -m full --spec {given}"


def publish_stopped(path: Path, name: str, stage: str, problem: str, command: str) -> None:
    """Say in the summary what stopped the run and what continues it; it stays running.

    Args:
        path: ``result.json``.
        name: the spec's name.
        stage: what was being done.
        problem: why it stopped.
        command: what continues it.
    """
    document = read_result(path)
    summary = f"{name}: stopped in {stage}, {one_clause(problem)}. Continue with: {command}."
    publish(path, document.with_summary(summary))


def publish_waiting(path: Path, name: str, sentence: str) -> None:
    """Say in the summary that the run waits; it stays running."""
    publish(path, read_result(path).with_summary(f"{name}: {sentence}"))


def publish_capacity_block(
    path: Path, name: str, blocked: CapacityExhaustedError, released: int
) -> None:
    """End the run as contract §10 asks; what it measured so far stays.

    Args:
        path: ``result.json``.
        name: the spec's name.
        blocked: what the service said and how many steps were done.
        released: sessions that the service confirmed to be finished.
    """
    document = read_result(path)
    error = one_clause(blocked.refusal)
    finished = document.finish(
        "failed",
        "inconclusive",
        "incomplete_execution",
        f"{name}: the service had no capacity after {blocked.steps} comparison steps ({error})."
        " The comparison was not completed.",
        capacity_block=CapacityBlock(
            error=error,
            comparison_steps_completed=blocked.steps,
            released_clients=released,
        ),
    )
    publish(path, finished)
