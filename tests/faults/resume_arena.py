"""One small arm after another on one service, each killed when a request says so.

Stages are forked (`forked_stage`); every request of theirs passes a proxy that
counts it, and a plan says at which one the stage is killed with SIGKILL, before the service sees
the request or after it has answered.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tinker

from harness.arm import arm_folder, read_done
from harness.attempts import arm_rollouts, arm_steps
from harness.digest import sha256_file
from harness.evaluate import predictions_path
from harness.gates.binding import Binding
from harness.local_service.checkpoints import CheckpointStore, parse_uri
from harness.local_service.process import EmbeddedService, start_service
from harness.local_service.task import Split, generate_rows
from harness.plan import PLAN_NAME, PlannedRun, make_plan, read_plan
from harness.problems import load_problems
from harness.service import create_initial_state
from harness.spec import LoadedSpec, load_spec
from harness.store import read_jsonl, write_json_atomic
from tests.faults.forked_stage import fork_stage
from tests.unit.recording_proxy import Recording, recording_proxy

ROOT = Path(__file__).parents[2]
STEPS, ROLLOUTS, TEST_ROWS = 3, 16, 40
ARM, OTHER_ARM = "gs1_small", "grpo_small"
BINDING = Binding({"harness/a.py": "0" * 64}, {"python": "3.11"}, {"service": "embedded"})
TIMES = frozenset({"training_s", "step_s", "attempt", "sampling_session"})
"""Fields of a step in which an interrupted run differs from an uninterrupted one."""
Kill = Callable[[int, str, str, bytes], bool]
"""Decides on (number of the request, method, endpoint, body) whether the stage is killed now."""


def never(*_: Any) -> bool:
    return False


def write_spec(folder: Path) -> LoadedSpec:
    """Write the local spec cut down to 16 rollouts a step, 3 steps and 40 items."""
    raw = json.loads((ROOT / "specs" / "local.json").read_text())
    raw["dataset"] |= {"name": "small", "hf_path": "offline/small", "n_examples": STEPS * ROLLOUTS}
    raw["eval"]["n_examples"] = TEST_ROWS
    raw |= {"steps": STEPS, "batch_size": ROLLOUTS}
    grpo, gs1 = raw["arms"]
    grpo |= {"name": OTHER_ARM, "group_size": 4, "groups_per_batch": ROLLOUTS // 4, "steps": STEPS}
    gs1 |= {"name": ARM, "group_size": 1, "groups_per_batch": ROLLOUTS, "steps": STEPS}
    raw["decision_rule"]["arms"] = {"treatment": ARM, "baseline": OTHER_ARM}
    asked = raw["restoration_preflight"]["groups"][0]["arms"]
    for arm, name in zip(asked, (OTHER_ARM, ARM), strict=True):
        arm["name"] = name
    path = folder / "spec.json"
    path.write_text(json.dumps(raw))
    return load_spec(path)


def write_rows(folder: Path) -> Path:
    """Write rows of the embedded task as an offline data set."""
    folder.mkdir(parents=True)
    counts: dict[Split, int] = {"train": STEPS * ROLLOUTS, "test": TEST_ROWS}
    for split, count in counts.items():
        rows = generate_rows(split, 0)[:count]
        lines = [json.dumps({"question": r["question"], "answer": r["answer"]}) for r in rows]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@dataclass
class Outcome:
    """What a run came to, without times and addresses."""

    adapter_sha256: str
    optimizer_sha256: str
    steps: list[dict[str, Any]]
    rollouts: list[dict[str, Any]]
    predictions: list[dict[str, Any]]

    def differences(self, other: Outcome) -> list[str]:
        """Return the parts in which two runs differ."""
        return [name for name, value in vars(self).items() if value != getattr(other, name)]


@dataclass
class Arena:
    """The service, the folder of its checkpoints and the proxy before it."""

    folder: Path
    data_dir: Path
    service: EmbeddedService
    proxy: Recording
    initial: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._seen = 0
        self._kill: Kill = never
        self._when = "before"
        self.proxy.before = lambda *request: self._look("before", *request)
        self.proxy.after = lambda *request: self._look("after", *request)
        self.rows = write_rows(self.folder / "rows")
        self.initial = self._initial_state()

    def _initial_state(self) -> dict[str, Any]:
        loaded = write_spec(self.folder)
        environment = self.service.environment()
        client = tinker.ServiceClient(
            base_url=environment["TINKER_BASE_URL"], api_key=environment["TINKER_API_KEY"]
        )
        with client:
            into = self.folder / "initial_adapter"
            return create_initial_state(client, loaded.spec, 0, "initial", into).to_json()

    def restart_service(self) -> None:
        """Kill the service as the system would, and start it again on the same folder."""
        os.kill(self.service.pid, signal.SIGKILL)
        self.service.wait(30)
        self.service.stop()
        self.service = start_service(self.data_dir, base_model="embedded/gradeschool")
        self.proxy.target = self.service.base_url

    def new_run(self, name: str) -> PlannedRun:
        """Plan a run that starts from the one initial state."""
        folder = self.folder / "runs" / name
        folder.mkdir(parents=True)
        loaded = write_spec(folder)
        train, test = (load_problems(loaded.spec, split, self.rows) for split in ("train", "test"))
        plan = make_plan(loaded, name, train, test, BINDING, {"head": None, "dirty": None})
        plan["gates"] = {"every_gate": {"outcome": "pass", "session": ""}}
        write_json_atomic(folder / PLAN_NAME, plan)
        write_json_atomic(folder / "initial.json", self.initial)
        return read_plan(folder, self.rows)

    def stage(self, run: PlannedRun, module: str, kill: Kill = never, when: str = "before") -> int:
        """Run one stage and return its exit status; -9 when it was killed."""
        arguments = [str(run.folder), ARM, "--gsm8k-dir", str(self.rows)]
        environment = {
            "TINKER_BASE_URL": self.proxy.base_url,
            "TINKER_API_KEY": self.service.api_key,
            "TINKER_TELEMETRY": "0",
        }
        with self._lock:
            # No request is judged before the process is known.
            self._seen, self._kill, self._when = 0, kill, when
            log = run.folder / f"{module}.log"
            process = fork_stage(f"harness.{module}", arguments, environment, log)
            self._pid = process.pid or 0
        process.join()
        with self._lock:
            self._pid = 0
        assert process.exitcode is not None
        return process.exitcode

    @property
    def requests_seen(self) -> int:
        """How many requests the last stage made."""
        return self._seen

    def _look(self, when: str, method: str, path: str, body: bytes) -> None:
        with self._lock:
            if when == "before":
                self._seen += 1
            endpoint = path.removeprefix("/api/v1/").split("/")[0]
            due = when == self._when and self._kill(self._seen, method, endpoint, body)
            if self._pid and due:
                os.kill(self._pid, signal.SIGKILL)
                self._kill = never

    def finish(self, run: PlannedRun) -> Outcome:
        """Run the arm and its evaluation to their ends and return what came of them."""
        for module in ("arm", "evaluate"):
            if module == "arm" and read_done(run.folder, ARM) is not None:
                continue
            if module == "evaluate" and predictions_path(run.folder, ARM).exists():
                continue
            status = self.stage(run, module)
            log = (run.folder / f"{module}.log").read_text()
            assert status == 0, f"{module} ended with {status}: {log[-1500:]}"
        return self.outcome(run)

    def outcome(self, run: PlannedRun) -> Outcome:
        """Read a finished run."""
        done = read_done(run.folder, ARM)
        assert done is not None, "the arm has not finished"
        store = CheckpointStore(self.data_dir)
        ref = parse_uri(done["state_uri"])
        arm = arm_folder(run.folder, ARM)
        predictions = read_jsonl(predictions_path(run.folder, ARM))
        steps = arm_steps(arm, done)
        return Outcome(
            adapter_sha256=store.metadata(ref)["adapter_sha256"],
            optimizer_sha256=sha256_file(store.path(ref) / "optimizer.safetensors"),
            steps=[{k: v for k, v in row.items() if k not in TIMES} for row in steps],
            rollouts=[dict(row) for row in arm_rollouts(arm, done)],
            predictions=[
                {k: v for k, v in row.items() if k != "checkpoint"} for row in predictions
            ],
        )


@contextmanager
def open_arena(folder: Path, data_dir: Path, service: EmbeddedService) -> Iterator[Arena]:
    """Put a proxy before a service whose checkpoints are in ``data_dir``, and order stages."""
    with recording_proxy(service.base_url) as proxy:
        yield Arena(folder, data_dir, service, proxy)
