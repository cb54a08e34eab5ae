"""``python -m harness status``: what is proven, stale and missing, where the newest run stands.

Reads files only. ``--watch`` reads them again and again until the run ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness.errors import HarnessError
from harness.gates.catalog import gate_entry
from harness.gates.standing import Standing
from harness.gates.verdict import Outcome
from harness.pins import pin_obstacles
from harness.run_state import RunState, is_run, read_run_state, run_lines
from harness.session import DEFAULT_SPEC, PACKAGE_ROOT, HarnessSession
from harness.store import RunFolder

CHANGED_SHOWN = 12
Reader = Callable[[], tuple[list[str], bool]]
"""Returns the lines that are true now, and whether the run has ended."""


def word_of(standing: Standing) -> str:
    """Return the one word for a gate: proven, failed, stale, missing or unknown."""
    if standing.outcome is Outcome.PASS:
        return "proven"
    if standing.outcome is Outcome.FAIL:
        return "failed"
    if standing.reason in ("stale", "never run"):
        return {"stale": "stale", "never run": "missing"}[standing.reason]
    return "unknown"


def gate_lines(standings: Iterable[Standing]) -> list[str]:
    """Say the gates, those of one state and one reason together, with the files that changed."""
    groups: dict[tuple[str, str], list[str]] = {}
    for standing in standings:
        groups.setdefault((word_of(standing), _why(standing)), []).append(standing.gate_id)
    lines: list[str] = []
    for (word, why), gates in groups.items():
        lines.append(f"  {word} ({len(gates)}): {', '.join(gates)}")
        lines += [f"    {why}"] if why else []
    return lines


def _why(standing: Standing) -> str:
    word = word_of(standing)
    if word == "proven":
        return ""
    if word == "missing":
        return (
            f"never run; needs {'the service' if gate_entry(standing.gate_id).live else 'nothing'}"
        )
    if word == "stale":
        shown = ", ".join(standing.changed[:CHANGED_SHOWN])
        more = len(standing.changed) - CHANGED_SHOWN
        return f"changed since: {shown}" + (f" and {more} more" if more > 0 else "")
    return standing.reason


def spec_lines(session: HarnessSession, standings: Sequence[Standing]) -> list[str]:
    """Return spec, pins and gates, a line or two each."""
    loaded = session.loaded
    unpinned = pin_obstacles(loaded.spec, loaded.pins, PACKAGE_ROOT)
    proven = sum(item.outcome is Outcome.PASS for item in standings)
    return [
        f"spec {loaded.name}: digest {loaded.digest[:12]}, service {session.service_name},"
        f" {proven} of {len(standings)} required gates proven",
        *(f"  {line}" for line in unpinned),
        *gate_lines(standings),
    ]


def next_command(
    session: HarnessSession, standings: Sequence[Standing], state: RunState | None
) -> str:
    """Return the command that brings the experiment on, as one line."""
    spec = session.options.spec_path
    given = spec.relative_to(PACKAGE_ROOT) if spec.is_relative_to(PACKAGE_ROOT) else spec
    option = "" if given.as_posix() == DEFAULT_SPEC else f" --spec={given}"
    if pin_obstacles(session.loaded.spec, session.loaded.pins, PACKAGE_ROOT):
        return f"after a review of the code: python -m harness pin {given}"
    failed = [item.gate_id for item in standings if word_of(item) == "failed"]
    if failed:
        return f"see why and mend it: pytest -m preflight -k {failed[0]}{option}"
    if state is None:
        return f"pytest -m full{option}"
    if not state.has_ended:
        return (
            "follow it with python -m harness status --watch; if nothing is working on it,"
            f" this continues the run: pytest -m full{option}"
        )
    if any(item.outcome is not Outcome.PASS for item in standings):
        return f"prove the gates again and start a new run: pytest -m full{option}"
    return f"python -m harness verify {_run_path(state)}"


def _run_path(state: RunState) -> Path:
    here = Path.cwd()
    return state.folder.relative_to(here) if state.folder.is_relative_to(here) else state.folder


def spec_reader(session: HarnessSession) -> Reader:
    """Return a reader of a spec's gates and its newest run."""

    def read() -> tuple[list[str], bool]:
        standings = list(session.standings().values())
        lines = spec_lines(session, standings)
        found = RunFolder.latest(session.options.artifacts, session.loaded.name)
        if found is None:
            return [
                *lines,
                "run: none yet",
                f"next: {next_command(session, standings, None)}",
            ], False
        try:
            state = read_run_state(found.path)
        except HarnessError as error:
            return [*lines, f"run {found.run_id}: not readable: {error}"], False
        tail = f"next: {next_command(session, standings, state)}"
        return [*lines, *run_lines(state), tail], state.has_ended

    return read


def run_reader(folder: Path) -> Reader:
    """Return a reader of one run."""

    def read() -> tuple[list[str], bool]:
        state = read_run_state(folder)
        after = "verify" if state.has_ended else "status --watch"
        command = f"python -m harness {after} {_run_path(state)}"
        return [*run_lines(state), f"next: {command}"], state.has_ended

    return read


def reader_for(subject: Path | None, session_of: Callable[[Path], HarnessSession]) -> Reader:
    """Return the reader of what was named: a run's folder, or a spec (by default the local one)."""
    if subject is not None and (is_run(subject) or subject.is_dir()):
        return run_reader(subject)
    return spec_reader(session_of(subject or PACKAGE_ROOT / DEFAULT_SPEC))


def follow(read: Reader, show: Callable[[list[str]], None], wait: Callable[[], None]) -> None:
    """Show the lines that are true now until the run has ended."""
    while True:
        lines, has_ended = read()
        show(lines)
        if has_ended:
            return
        wait()


def watch(read: Reader, interval_s: float) -> None:
    """Follow a run on this terminal: in place on a TTY, elsewhere only the lines that are new."""

    def wait() -> None:
        time.sleep(interval_s)

    if sys.stdout.isatty():
        with Live(console=Console(), auto_refresh=False) as live:
            follow(read, lambda lines: live.update(Text("\n".join(lines)), refresh=True), wait)
    else:
        follow(read, plain_printer(lambda line: sys.stdout.write(line + "\n")), wait)


def plain_printer(write: Callable[[str], object]) -> Callable[[Sequence[str]], None]:
    """Return a printer of the lines that were not among the lines shown last."""
    before: set[str] = set()

    def show(lines: Sequence[str]) -> None:
        # How long ago a file was written changes every time and alone is no news.
        now = [line.partition(", last written")[0] for line in lines]
        for line in now:
            if line not in before:
                write(line)
        before.clear()
        before.update(now)
        sys.stdout.flush()

    return show
