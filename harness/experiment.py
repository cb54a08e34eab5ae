"""The experiment's stages: plan, initial state, arms, evaluation, decision.

A stage reads the files of the stages before it, never their memory, so each can be run again
alone. ``result.json`` is brought up to date as each one ends.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import tinker

from harness.arm import arm_folder, next_attempt, read_done
from harness.attempt_progress import AttemptProgress
from harness.capacity import CapacityExhaustedError
from harness.closing_client import ClosingClient
from harness.conclusion import decide_run
from harness.deviations import with_executed
from harness.errors import ArmError, StoreError
from harness.evaluate import BASE_ARM, predictions_path
from harness.fork_cleanup import require_cleaned
from harness.fork_run import FORK_SERVICE, keep_fork
from harness.manifest import enter_all, seal
from harness.parallel_trainings import ParallelTrainings, Relay, StoppedError
from harness.plan import (
    PlannedRun,
    read_plan,
)
from harness.redact import Redactor
from harness.report_files import draw_into
from harness.result import RESULT_NAME, ResultDocument, publish, read_result
from harness.run_lock import RunLock, acquire
from harness.run_result import post_scores, post_stage, with_evidence
from harness.run_start import keep_gate_evidence, new_run, unfinished_run
from harness.session import HarnessSession
from harness.stage_runner import StageRunner
from harness.step_line import ShowStep, plain_line
from harness.step_mirror import feed, open_mirror
from harness.terminal import run_lines


class Experiment:
    """One run of the session's spec.

    Args:
        session: options, spec, gates and service.
        pilot_steps: None for the experiment itself; a number of steps for a pilot, which is a new
            run beside the real ones and is never evaluated.
    """

    def __init__(self, session: HarnessSession, pilot_steps: int | None = None) -> None:
        self.session = session
        self.pilot_steps = pilot_steps
        self.artifacts = session.options.artifacts / ("pilot" if pilot_steps else "")
        self._redactor = Redactor.from_environment(os.environ)
        self.lock: RunLock | None = None
        self.say = Relay(session.report)
        self._stopping = threading.Event()
        self._parallel: ParallelTrainings | None = None

    def pilot(self, steps: int) -> Experiment:
        """Return a pilot of ``steps`` steps of the same session."""
        return Experiment(self.session, steps)

    @cached_property
    def run(self) -> PlannedRun:
        """The run this session works on: the latest unfinished one of this content, or a new one.

        Raises:
            StoreError: when the run's folder cannot be made or read, or another process has it.
        """
        options = self.session.options
        folder, reason = unfinished_run(self.session, self.artifacts, self.pilot_steps)
        if folder is None:
            folder = new_run(self.session, self.artifacts, self.pilot_steps)
        self.session.report(f"run {folder.name}: {reason}")
        self.lock = acquire(folder)
        if self.lock and self.lock.taken_over:
            self.session.report(f"lock of {self.lock.taken_over}, which is gone: taken over")
        return read_plan(folder, options.gsm8k_dir)

    @property
    def _forked(self) -> bool:
        """Whether this is a run on a service that was started for it; pilots are part of none."""
        return self.session.service_name == FORK_SERVICE and self.pilot_steps is None

    @cached_property
    def stages(self) -> StageRunner:
        """What runs this run's stages."""
        return StageRunner(self.session, self.run, self.say, self._stopping)

    @property
    def result_path(self) -> Path:
        """The run's ``result.json``."""
        return self.run.folder / RESULT_NAME

    def ensure_initial_state(self) -> dict[str, Any]:
        """Create the adapter that all arms of a seed start from, once a run and seed.

        Returns:
            ``initial.json``: the state of the first seed.
        """
        seeds = self.run.spec.decision_rule.seeds
        for seed in seeds[:1] if self.pilot_steps else seeds:
            if not self.run.initial_path(seed).exists():
                self.stages.make_initial_state(seed)
        initial = self.run.initial_state()
        if self._forked:
            options, name = self.session.options, self.session.loaded.name
            keep_fork(options.artifacts, name, self.run.folder, initial["reported"])
        return initial

    def sdk_client(self) -> tinker.ServiceClient:
        """Return an SDK client of the session's service, to be used in a with statement."""
        environment = self.session.service.environment()
        os.environ["TINKER_TELEMETRY"] = "0"
        return ClosingClient(
            base_url=environment["TINKER_BASE_URL"], api_key=environment["TINKER_API_KEY"]
        )

    def train(self, arm_name: str) -> dict[str, Any]:
        """Train one arm if the run has not done so, and return its ``done.json``.

        With ``--parallel`` the session's other arms are begun too, and each is scored as soon as
        it is trained; this returns when its own arm is.

        Raises:
            ArmError: when the arm's process fails.
        """
        planned, found = self.run.plan["binding_digest"], self.session.binding().digest()
        if planned != found:
            raise ArmError(
                "spec, code, packages or service changed after this run was planned",
                expected=planned,
                found=found,
                where=f"arm {arm_name}",
                fix="run the same command again: it starts a new run, with its gates",
            )
        self.ensure_initial_state()
        if self.session.options.parallel > 1 and self.pilot_steps is None:
            self._wait_for(arm_name)
        return self._train(arm_name)

    def _wait_for(self, arm_name: str) -> None:
        """Begin all arms of the session, unless they are begun, and wait for this one's end."""
        options = self.session.options
        if self._parallel is None:
            names = self.session.planned_arms or (arm_name,)
            self.say(f"{len(names)} arms, at most {options.parallel} at once: {', '.join(names)}")
            # What is made at its first use is made here, before there are threads to race for it.
            self.stages.supervision.count_steps()
            self._parallel = ParallelTrainings(
                names, options.parallel, self._train_and_score, self.say, self._stopping
            )
        try:
            if arm_name in self._parallel:
                self._parallel.wait_for(arm_name)
        except StoppedError as error:
            raise ArmError(
                "the arm was stopped because the run ended",
                expected="an arm that is trained and scored",
                found=str(error),
                where=f"arm {arm_name}",
                fix="see what ended the run, then run the same command again",
            ) from error
        except KeyboardInterrupt as interrupt:
            self._parallel.stop()
            self.stages.supervision.interrupted(f"arm {arm_name} and those beside it", interrupt)
            raise

    def _train_and_score(self, arm_name: str) -> None:
        """Bring one of several arms at once to its end, in a thread of its own."""
        try:
            self._train(arm_name)
            self._score(arm_name)
        except CapacityExhaustedError:
            # The run has ended; what the others do would count for nothing.
            self._stopping.set()
            raise

    def close(self) -> None:
        """End the arms that are still in training."""
        if self._parallel is not None:
            self._parallel.stop()

    def _train(self, arm_name: str) -> dict[str, Any]:
        done = read_done(self.run.folder, arm_name)
        if done is not None:
            if self._parallel is None:
                self.say(f"{arm_name}: already trained in this run")
            return done
        folder = arm_folder(self.run.folder, arm_name)
        steps = self.pilot_steps or self.run.spec.arm(arm_name).steps

        with ExitStack() as mirrors:

            def follow() -> AttemptProgress:
                attempt = folder / f"attempt-{next_attempt(folder):02d}"
                shows = [self._show_step(), *self._mirror_into(mirrors, arm_name, attempt)]
                return AttemptProgress(arm_name, attempt, steps, self.say, shows)

            self.stages.run_arm_stage("harness.arm", arm_name, follow)
        done = read_done(self.run.folder, arm_name)
        if done is None:
            raise StoreError(
                "the arm's process ended well but left no record of it",
                expected=f"arms/{arm_name}/done.json",
                found="nothing",
                where=self.run.folder.name,
                fix=f"read logs/arm-{arm_name}-*.log, then run the same command again",
            )
        return done

    def _mirror_into(self, mirrors: ExitStack, arm_name: str, attempt: Path) -> list[ShowStep]:
        """Open the copy of an attempt's steps that was asked for; pilots have none."""
        kind = self.session.options.mirror
        if kind is None or self.pilot_steps is not None:
            return []
        # An attempt that is made again is a run of its own there; the one before is over.
        mirrors.close()
        run = self.run.folder.name
        names = (self.run.plan["spec"], run, f"{run}.{arm_name}.{attempt.name}")
        folder = self.artifacts / "mirror" / kind
        mirror = open_mirror(kind, names, folder, self.session.report)
        if mirror is None:
            return []
        mirrors.callback(mirror.close)
        return [feed(mirror)]

    def evaluate(self, arm_name: str) -> float:
        """Score one arm, or ``base``, if the run has not done so; return its accuracy.

        A score that was cut off keeps its rows: only the missing items are asked for.
        """
        accuracy = self._score(arm_name)
        self.say(f"{arm_name}: greedy accuracy {accuracy:.4f}")
        return accuracy

    def _score(self, arm_name: str) -> float:
        path = predictions_path(self.run.folder, arm_name)
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            self.stages.run_arm_stage("harness.evaluate", arm_name, lambda: lambda: None)
        with self.stages.supervision.state.lock:
            accuracy = post_scores(self.run, arm_name)
            post_stage(self.run, self.session.options.root, self._redactor)
        return accuracy

    def _show_step(self) -> ShowStep:
        """Return what shows a step; several arms at once share the terminal line by line."""
        if self._parallel is None:
            return self.session.show_step
        return lambda step: self.say(plain_line(step))

    def missing_scores(self) -> list[str]:
        """Return what is not scored yet and must be before the run may end: base model and arms.

        The base model decides nothing, but a run that has ended takes no more numbers.
        """
        names = [BASE_ARM, *(arm.name for arm in self.run.spec.trainings)]
        return [name for name in names if not predictions_path(self.run.folder, name).exists()]

    def decide(self) -> ResultDocument:
        """Draw the verdict from the rows and end the run; one that has ended is sealed only.

        Raises:
            DecisionError: for rows from which no decision may be drawn.
        """
        document = read_result(self.result_path)
        if document.status == "running":
            document = self._conclude(document)
        try:
            draw_into(
                self.run.folder, self.session.options.gsm8k_dir, self.session.options.artifacts
            )
        finally:
            # A report that cannot be drawn fails the session; the evidence is sealed all the same.
            enter_all(self.run.folder)
            self.session.report(f"manifest sealed: {seal(self.run.folder)}")
        return document

    def _conclude(self, document: ResultDocument) -> ResultDocument:
        """Draw the verdict, post what it rests on and publish the finished result."""
        require_cleaned(self.run.folder)
        standings = self.session.standings()
        keep_gate_evidence(self.session, self.run.folder)
        document = decide_run(self.run, with_executed(document, self.run), standings)
        root = self.session.options.root
        document = with_evidence(document, self.run, root, self._redactor, ended=True)
        publish(self.result_path, document)
        return document

    def closing_lines(self) -> list[str]:
        """Return the last lines of a session that worked on a run."""
        if "run" not in self.__dict__:
            return []
        return run_lines(self.run.folder, self.stages.timings)
