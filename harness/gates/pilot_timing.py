"""What a pilot's files say of the time it took (contract §6).

Its steps timed themselves, and the times at which it wrote its files say how long everything around
the steps took: the files are those of the stages of the full run, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.arm import attempt_folder
from harness.digest import parse_json
from harness.durable import stored
from harness.errors import StoreError
from harness.plan import INITIAL_NAME, PLAN_NAME, PlannedRun
from harness.reading import read_regular
from harness.store import read_jsonl


@dataclass(frozen=True)
class PilotTiming:
    """What a pilot took.

    Attributes:
        initial_s: seconds to create, save and download the initial state.
        setup_s: arm → seconds of its process that are not steps: start, load, proof, checkpoint.
        step_s: arm → seconds of each step after the first, whose own time holds the load.
        configs: arm → configuration that was executed.
        run_id: the pilot.
    """

    initial_s: float
    setup_s: Mapping[str, float]
    step_s: Mapping[str, Sequence[float]]
    configs: Mapping[str, Mapping[str, Any]]
    run_id: str


def read_pilot(run: PlannedRun, binding_digest: str) -> PilotTiming:
    """Read a pilot's times.

    Raises:
        StoreError: for a pilot of other content, an unfinished one, or times in no possible order.
        ArmError: for an arm that did not finish.
    """
    if run.plan["binding_digest"] != binding_digest:
        raise _unusable("spec, code or service changed since the pilot", run.folder)
    before_s = _written_s(run.folder / INITIAL_NAME)
    initial_s = before_s - _written_s(run.folder / PLAN_NAME)
    setup_s: dict[str, float] = {}
    step_s: dict[str, list[float]] = {}
    configs: dict[str, dict[str, Any]] = {}
    for arm in run.spec.at(run.spec.decision_rule.seeds[0]):
        folder = attempt_folder(run.folder, arm.name)
        executed = folder / "effective_config.json"
        configs[arm.name] = parse_json(read_regular(executed), where=executed.name)
        times_s = [float(row["step_s"]) for row in read_jsonl(folder / "steps.jsonl")]
        step_s[arm.name] = times_s[1:]
        done_s = _written_s(folder.parent / "done.json")
        setup_s[arm.name] = _setup_s(
            times_s,
            started_s=before_s,
            configured_s=_written_s(executed),
            stepped_s=_written_s(folder / "steps.jsonl"),
            done_s=done_s,
            folder=run.folder,
        )
        before_s = done_s
    return PilotTiming(initial_s, setup_s, step_s, configs, run.folder.name)


def _setup_s(
    times_s: Sequence[float],
    *,
    started_s: float,
    configured_s: float,
    stepped_s: float,
    done_s: float,
    folder: Path,
) -> float:
    """Return what an arm's process took besides its steps.

    The first step's time runs from before the load of the initial state; what it is longer than
    the mean of the others is the load and the proof of the start.
    """
    if len(times_s) < 2:
        raise _unusable(f"{len(times_s)} steps, where at least 2 are needed", folder)
    if not started_s <= configured_s <= stepped_s <= done_s:
        raise _unusable("its files were not written in the order of the stages", folder)
    mean_s = sum(times_s[1:]) / (len(times_s) - 1)
    load_s = max(0.0, times_s[0] - mean_s)
    return (configured_s - started_s) + load_s + (done_s - stepped_s)


def _written_s(path: Path) -> float:
    with stored(path):
        return path.stat().st_mtime_ns / 1e9


def _unusable(why: str, folder: Path) -> StoreError:
    return StoreError(
        "the pilot cannot be timed",
        expected="a finished pilot of this spec, code and service",
        found=why,
        where=f"pilot {folder.name}",
        fix="pytest -m preflight -k 'pilot_activation or feasibility'",
    )
