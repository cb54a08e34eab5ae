"""A tiny run on the embedded service through the fault proxy, and what it left behind."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.attempts import arm_rollouts, arm_steps
from harness.experiment import Experiment
from harness.fault_proxy import FaultProxy
from harness.gates.standing import Standing
from harness.gates.verdict import Outcome
from harness.local_service.process import EmbeddedService
from harness.pins import record_pins
from harness.result import ResultDocument, read_result
from harness.session import HarnessSession, Options
from harness.stage_watch import Clock

ROOT = Path(__file__).resolve().parents[2]
ARM = "gs1_small"
"""Groups of one: what is sampled does not depend on the order in which requests arrive."""
GRPO = "grpo_small"
STEPS = 2
TIMES = ("training_s", "step_s", "sampling_session", "attempt")
"""Fields of a step that differ between two equal runs."""


def small_spec() -> dict[str, Any]:
    """Return the local spec cut down to offline rows, two arms, four rollouts and two steps."""
    raw = json.loads((ROOT / "specs" / "local.json").read_text())
    raw["dataset"] |= {"name": "small", "hf_path": "offline/small", "n_examples": 12}
    raw["eval"]["n_examples"] = 6
    raw["execution"]["max_tokens"] = 24
    raw |= {"steps": STEPS, "batch_size": 4}
    grpo, gs1 = raw["arms"]
    grpo |= {"name": GRPO, "group_size": 2, "groups_per_batch": 2, "steps": STEPS}
    gs1 |= {"name": ARM, "group_size": 1, "groups_per_batch": 4, "steps": STEPS}
    raw["decision_rule"]["arms"] = {"treatment": ARM, "baseline": GRPO}
    rows = raw["restoration_preflight"]["groups"][0]["arms"]
    rows[0]["name"], rows[1]["name"] = GRPO, ARM
    return raw


def write_rows(folder: Path) -> Path:
    """Write the offline data set and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 12), ("test", 6)):
        rows = [
            {
                "question": f"{split} : Tom has {i} apples and buys {i} more",
                "answer": f"#### {2 * i}",
            }
            for i in range(count)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


class ProxiedAccess:
    """The service as a session sees it: behind the proxy."""

    def __init__(self, base_url: str, api_key: str) -> None:
        self.values = {
            "TINKER_BASE_URL": base_url,
            "TINKER_API_KEY": api_key,
            "TINKER_TELEMETRY": "0",
        }

    def environment(self) -> Mapping[str, str]:
        return self.values

    def stop(self) -> None:
        return


@dataclass(frozen=True)
class Records:
    """What a finished arm measured, without times and names that differ between equal runs."""

    steps: list[dict[str, Any]]
    rollouts: list[dict[str, Any]]


class SmallRun:
    """One run in a folder of its own.

    Args:
        folder: where it goes.
        service: the embedded service.
        proxy: what stands before it.
        initial: folder with the initial state that all runs of a session share, if there is one.
    """

    def __init__(
        self, folder: Path, service: EmbeddedService, proxy: FaultProxy, initial: Path | None
    ) -> None:
        self.folder = folder
        self.access = ProxiedAccess(proxy.base_url, service.api_key)
        self.initial = initial
        self.said: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        spec = folder / "small.json"
        spec.write_text(json.dumps(small_spec()))
        record_pins(spec, ROOT)
        self.options = Options(
            ROOT, spec, artifacts=folder / "artifacts", gsm8k_dir=write_rows(folder / "rows")
        )

    def experiment(self, pace: float = 1.0) -> Experiment:
        """Return the run as a new session of the same command finds it.

        Args:
            pace: seconds of the supervision's clock that pass in one real second.
        """
        session = HarnessSession(self.options, self.said.append)
        vars(session)["service"] = self.access
        standing = {
            gate: Standing(gate, Outcome.PASS, "not its subject") for gate in session.required
        }
        vars(session)["standings"] = lambda: standing
        experiment = Experiment(session)
        if self.initial is not None and not (experiment.run.folder / "initial.json").exists():
            shutil.copytree(self.initial, experiment.run.folder, dirs_exist_ok=True)
        experiment.stages.supervision.clock = quick_clock(pace)
        experiment.stages.supervision.layer.clock = experiment.stages.supervision.clock
        return experiment

    def result(self) -> ResultDocument:
        """Return the run's result document as it is on disk."""
        (path,) = self.folder.glob("artifacts/runs/small/2*/result.json")
        return read_result(path)

    def records(self) -> Records:
        """Return what the finished arm measured, each step from the attempt that counts."""
        (arm,) = self.folder.glob(f"artifacts/runs/small/2*/arms/{ARM}")
        done = json.loads((arm / "done.json").read_text())
        steps = [{k: v for k, v in row.items() if k not in TIMES} for row in arm_steps(arm, done)]
        return Records(steps, [dict(row) for row in arm_rollouts(arm, done)])


def quick_clock(pace: float) -> Clock:
    """Return a clock ``pace`` times as fast as the wall's, whose waits take no time."""
    slept_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal slept_s
        slept_s += seconds

    return Clock(now_s=lambda: time.monotonic() * pace + slept_s, sleep=sleep)
