"""Runs a run's pieces of work so that a fault of the service leaves the right result document.

Every piece is watched (:mod:`harness.stage_watch`), made again while the service has no capacity
(:mod:`harness.capacity_layer`), and where it stops, ``result.json`` says why and what continues it
(:mod:`harness.stopping`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from harness.answer_log import LOG_VARIABLE
from harness.capacity import CapacityError, CapacityExhaustedError, CapacityState
from harness.capacity_layer import CapacityLayer, Waiting, refused_inside
from harness.errors import HarnessError, StoreError
from harness.health import missing_sign_of_life
from harness.release import Reason, release_sessions, sessions_named
from harness.result import read_result
from harness.stage_watch import AskHealth, Clock, StageWatch
from harness.stall_watch import ANSWERS, ROWS, Pace, RowCounter
from harness.step_count import StepCounter
from harness.stopping import publish_capacity_block, publish_stopped, publish_waiting
from harness.store import write_json_atomic

T = TypeVar("T")
Poll = Callable[[], None]
Environment = Mapping[str, str]
TELL_AFTER_S = 30.0
"""How long a refusal lasts before the summary speaks of it; the SDK rides over shorter ones."""
RunProcess = Callable[[Environment, Path, Poll], float]
"""Starts the stage's process with an environment, a log and something to poll; returns seconds."""


class Supervision:
    """Supervises one run.

    Args:
        result_path: the run's ``result.json``.
        name: the spec's name.
        seed: the run's seed, for the jitter of waits.
        command: what continues the run, for the summary.
        report: shows one line to the person.
        clock: time.
        health: asks the service at an address for a sign of life.
    """

    def __init__(
        self,
        result_path: Path,
        name: str,
        seed: int,
        command: str,
        report: Callable[[str], None],
        clock: Clock | None = None,
        health: Callable[[str], str | None] = missing_sign_of_life,
    ) -> None:
        self.result_path = result_path
        self.name = name
        self.command = command
        self.report = report
        self.clock = clock or Clock()
        self.health = health
        self.released = 0
        self._left_over_finished = False
        self._told = False
        self._summary_waits = False
        self.count_steps = StepCounter(result_path.parent)
        self.state = CapacityState(seed)
        self.state.progressed(self.count_steps())
        self.layer = CapacityLayer(self.state, self.clock, self._say)

    def stage(
        self,
        where: str,
        environment: Environment,
        new_log: Callable[[], Path],
        follow: Callable[[], Poll],
        run: RunProcess,
        *,
        pace: Pace,
        arm_name: str | None = None,
    ) -> float:
        """Run a stage's process until it is done; return its seconds, of the last try.

        Args:
            where: stage and arm.
            environment: address and key of the service.
            new_log: returns a new log's path for every try.
            follow: returns what reports the progress of a try.
            run: starts the process.
            pace: what shows that it goes on.
            arm_name: whose steps or rows those are.

        Raises:
            CapacityExhaustedError: when the service had no capacity; the run has ended.
            HarnessError: whatever stopped the stage; the run can be continued.
        """

        def attempt() -> float:
            watch = StageWatch(
                where,
                (log := new_log()).with_suffix(".answers.jsonl"),
                self._health_of(environment),
                self.state,
                self.count_steps,
                self.clock,
                pace=pace,
                count_own=self._counter(pace, arm_name),
            )
            return self._try(watch, environment, log, follow(), run)

        return self._guarded(where, lambda: self.layer.run(attempt))

    def _try(
        self,
        watch: StageWatch,
        environment: Environment,
        log: Path,
        follow: Poll,
        run: RunProcess,
    ) -> float:
        answers = log.with_suffix(".answers.jsonl")

        def poll() -> None:
            follow()
            watch.poll()
            self._tell()

        self._finish_left_over(environment, log.parent)
        self._told = False
        ended: tuple[Reason, str] = "interrupted", "the stage was stopped"
        try:
            seconds = run({**environment, LOG_VARIABLE: str(answers)}, log, poll)
            ended = "success", "the stage is done"
            return seconds
        except CapacityError:
            ended = "interrupted", "the service had no capacity"
            raise
        except HarnessError:
            ended = "errored", "the stage failed"
            raise
        finally:
            # Also after a stop: nothing that this stage opened stays open.
            released = release_sessions(environment, watch.all_sessions(), *ended)
            with self.state.lock:
                self.released += released
            # The folder is missing when the process could not even be started.
            if log.parent.is_dir():
                write_json_atomic(log.with_suffix(".watch.json"), watch.record())

    def _finish_left_over(self, environment: Environment, logs: Path) -> None:
        """Finish, once, what the stages of an earlier session left open when it was killed."""
        # Under the lock: a stage beside this one must not open a session before this is done.
        with self.state.lock:
            if not self._left_over_finished:
                self._left_over_finished = True
                detail = "the process that opened it is gone"
                release_sessions(environment, sessions_named(logs), "interrupted", detail)

    def _counter(self, pace: Pace, arm_name: str | None) -> Callable[[], int] | None:
        """Return what counts a stage's progress; None leaves it to the service's answers."""
        if arm_name is None or pace == ANSWERS:
            return None
        counter = RowCounter if pace == ROWS else StepCounter
        return counter(self.result_path.parent, arm_name)

    def _health_of(self, environment: Environment) -> AskHealth:
        return lambda: self.health(environment["TINKER_BASE_URL"])

    def _guarded(self, what: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except CapacityExhaustedError as error:
            self._blocked(error)
            raise
        except HarnessError as error:
            self._stopped(what, error.problem, error)
            raise
        except KeyboardInterrupt as interrupt:
            self.interrupted(what, interrupt)
            raise

    def interrupted(self, what: str, interrupt: KeyboardInterrupt) -> None:
        """Say in the summary that a person stopped the run."""
        self._stopped(what, "interrupted", interrupt)

    def _blocked(self, error: CapacityExhaustedError) -> None:
        with self.state.lock:
            # Of trainings at once, the first to give up has ended the run for all of them.
            if read_result(self.result_path).status == "running":
                publish_capacity_block(self.result_path, self.name, error, self.released)

    def _stopped(self, what: str, problem: str, cause: BaseException) -> None:
        try:
            with self.state.lock:
                if read_result(self.result_path).status == "running":
                    publish_stopped(self.result_path, self.name, what, problem, self.command)
        except StoreError as unwritten:
            # A full disk may be what stopped the run: the cause is what the person must see.
            cause.add_note(f"result.json does not say so: {unwritten}")

    def _tell(self) -> None:
        """Keep the summary true while a stage runs: refused, or working again."""
        with self.state.lock:
            refusal, now_s = self.state.refusal, self.clock.now_s()
            if refusal is None and self._summary_waits:
                self._told = self._summary_waits = False
                sentence = "the service works again, no verdict yet."
                publish_waiting(self.result_path, self.name, sentence)
            elif refusal and not self._told and now_s - refusal.since_s >= TELL_AFTER_S:
                self._told = True
                self._say(refused_inside(refusal, self.clock))

    def _say(self, waiting: Waiting) -> None:
        self._summary_waits = True
        publish_waiting(self.result_path, self.name, waiting.sentence())
        self.report(waiting.sentence())
