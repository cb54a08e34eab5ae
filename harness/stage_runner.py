"""Runs a run's stages: a process each, supervised, its time noted, its files entered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.arm import arm_folder
from harness.growing_files import growing_names
from harness.manifest import enter_all
from harness.parallel_trainings import StoppedError
from harness.plan import PlannedRun
from harness.result import RESULT_NAME
from harness.run_result import GROWING_FILES
from harness.session import DEFAULT_SPEC, HarnessSession
from harness.stage import run_stage
from harness.stage_log import scrub_files
from harness.stage_watch import Clock
from harness.stall_watch import ANSWERS, ROWS, STEPS
from harness.stopping import continue_command
from harness.supervision import Supervision
from harness.timings import record_timing

PACES = {"harness.initial_state": ANSWERS, "harness.arm": STEPS, "harness.evaluate": ROWS}
"""What shows that a stage goes on."""


class StageRunner:
    """The stages of one run; several threads may run stages of different arms.

    Args:
        session: options and service.
        run: the planned run.
        say: shows a line.
        stopping: set when every stage has to end.

    Attributes:
        supervision: what watches the stages and says in ``result.json`` what stopped one.
        timings: a line about each stage that this session ran.
    """

    def __init__(
        self,
        session: HarnessSession,
        run: PlannedRun,
        say: Callable[[str], None],
        stopping: threading.Event,
    ) -> None:
        options = session.options
        self._session = session
        self._run = run
        self._say = say
        self._stopping = stopping
        self._at_work: set[str] = set()
        self.timings: list[str] = []
        self.supervision = Supervision(
            run.folder / RESULT_NAME,
            run.plan["spec"],
            run.spec.decision_rule.seeds[0],
            continue_command(options.root, options.spec_path, DEFAULT_SPEC),
            say,
            Clock(sleep=self._sleep),
        )

    def _sleep(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise StoppedError("the session ends")

    def make_initial_state(self, seed: int) -> None:
        """Create and save the adapter that all arms of a seed start from.

        Raises:
            ArmError: when the stage's process fails.
        """
        self._watched(
            "initial state",
            "harness.initial_state",
            [str(self._run.folder), str(seed), *self._data()],
            f"initial-seed{seed}",
            lambda: lambda: None,
        )

    def run_arm_stage(
        self,
        module: str,
        arm_name: str,
        follow: Callable[[], Callable[[], None]],
    ) -> None:
        """Run an arm's training or evaluation, note its wall time and enter its files.

        Args:
            module: ``harness.arm`` or ``harness.evaluate``.
            arm_name: the arm, or ``base``.
            follow: called as each attempt begins; returns what is called while it runs.

        Raises:
            ArmError: when the stage's process fails.
        """
        stage = module.removeprefix("harness.")
        arguments = [str(self._run.folder), arm_name, *self._data()]
        lock = self.supervision.state.lock
        with lock:
            self._at_work.add(arm_name)
        try:
            seconds = self._watched(
                f"{stage} {arm_name}", module, arguments, f"{stage}-{arm_name}", follow, arm_name
            )
        finally:
            self._scrub(arm_name)
            with lock:
                self._at_work.discard(arm_name)
        with lock:
            record_timing(self._run.folder, stage, arm_name, seconds)
            self.timings.append(f"stage {stage} {arm_name}: {seconds:.1f} s")
            growing = growing_names(self._run.folder, self._at_work)
            enter_all(self._run.folder, ignored=GROWING_FILES | growing)

    def _data(self) -> list[str]:
        gsm8k_dir = self._session.options.gsm8k_dir
        return ["--gsm8k-dir", str(gsm8k_dir)] if gsm8k_dir else []

    def _watched(
        self,
        where: str,
        module: str,
        arguments: Sequence[str],
        log_stem: str,
        follow: Callable[[], Callable[[], None]],
        arm_name: str | None = None,
    ) -> float:
        """Run a stage's process under supervision and return its seconds."""

        def run(environment: Mapping[str, str], log: Path, on_poll: Callable[[], None]) -> float:
            def poll() -> None:
                if self._stopping.is_set():
                    raise StoppedError(f"{where} was stopped")
                on_poll()

            return run_stage(module, arguments, environment=environment, log_path=log, on_poll=poll)

        with self.supervision.state.lock:
            service = self._session.service.environment()
        return self.supervision.stage(
            where,
            service,
            lambda: self._new_log(log_stem),
            follow,
            run,
            pace=PACES[module],
            arm_name=arm_name,
        )

    def _scrub(self, arm_name: str) -> None:
        """Take secrets out of what the stock loop wrote by itself, before it is entered."""
        for folder in arm_folder(self._run.folder, arm_name).glob("attempt-*/cookbook"):
            for name in scrub_files(folder, self._run.folder):
                self._say(f"{arm_name}: a secret was taken out of cookbook/{name}")

    def _new_log(self, stem: str) -> Path:
        """Return a log name that no earlier attempt used: a run's files are written once."""
        folder = self._run.folder / "logs"
        number = len(list(folder.glob(f"{stem}-*.log"))) + 1
        return folder / f"{stem}-{number:02d}.log"
