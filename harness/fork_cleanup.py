"""What a run on a fork started and what of it is still up. It lists; it never stops anything.

Which apps are up, the platform's own listing says, one exact name a line. A name that the run did
not record is none of its business, however similar it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.digest import parse_json
from harness.errors import ArmError, UsageError
from harness.fork_run import FORK_NAME, read_fork
from harness.reading import read_regular
from harness.store import write_json_atomic

State = Literal["up", "down", "left"]
STOP = "modal app stop {name}"
"""The platform's own command; printed for a person, never run."""
_PATTERN = "cleanup-*.json"


@dataclass(frozen=True)
class AppState:
    """One app of the run: still up, down, or left up on purpose for a reason."""

    name: str
    state: State
    reason: str | None = None

    def line(self) -> str:
        """Return what a person should read, with the command that stops it."""
        if self.state == "up":
            return f"up    {self.name}  stop it with: {STOP.format(name=self.name)}"
        return f"{self.state:5} {self.name}" + (f"  ({self.reason})" if self.reason else "")


def app_states(
    apps: Iterable[str], listed: Iterable[str], left: Mapping[str, str]
) -> tuple[AppState, ...]:
    """Compare the run's apps with what is up.

    Args:
        apps: exact names that the run recorded.
        listed: names of everything that is up, the run's or not.
        left: name → why it stays up.

    Raises:
        UsageError: when an app is left that the run did not start.
    """
    known, up = tuple(apps), {line.strip() for line in listed}
    if foreign := sorted(set(left) - set(known)):
        raise UsageError(
            "the run did not start this",
            expected=f"one of {', '.join(known)}",
            found=", ".join(foreign),
            where="--left",
        )
    return tuple(_state(name, name in up, left.get(name)) for name in known)


def _state(name: str, is_up: bool, reason: str | None) -> AppState:
    if not is_up:
        return AppState(name, "down")
    return AppState(name, "up") if reason is None else AppState(name, "left", reason)


def record_cleanup(run_folder: Path, states: Iterable[AppState]) -> Path:
    """Write what was found as a new file of the run: ``cleanup-NN.json``."""
    number = len(list(run_folder.glob(_PATTERN))) + 1
    path = run_folder / f"cleanup-{number:02d}.json"
    rows = [{"app": s.name, "state": s.state, "reason": s.reason} for s in states]
    write_json_atomic(path, {"version": 1, "apps": rows})
    return path


def still_up(run_folder: Path) -> list[str]:
    """Return the run's apps that the newest record does not show as down or left.

    Without a record all of them; none for a run that is not on a fork.
    """
    if not (run_folder / FORK_NAME).exists():
        return []
    apps = read_fork(run_folder / FORK_NAME).apps
    records = sorted(run_folder.glob(_PATTERN))
    if not records:
        return list(apps)
    rows = parse_json(read_regular(records[-1]), where=records[-1].name)["apps"]
    settled = {row["app"] for row in rows if row["state"] in ("down", "left")}
    return [name for name in apps if name not in settled]


def require_cleaned(run_folder: Path) -> None:
    """Refuse to make a result final while something that the run started may be up.

    Raises:
        ArmError: naming the apps.
    """
    if names := still_up(run_folder):
        raise ArmError(
            "the result is not final: what the run started is not known to be stopped",
            expected="every app of fork.json down, or left with a reason",
            found=", ".join(names),
            where=run_folder.name,
            fix="python -m harness cleanup RUN --up LISTING, then run the same command again",
        )
