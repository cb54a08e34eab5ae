"""The experiment's stages: plan, initial state, arms, evaluation, decision.

A stage reads the files of the stages before it, never their memory, so each can be run again
alone. ``result.json`` is brought up to date as each one ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import tinker

from harness.arm import arm_folder, next_attempt, read_done
from harness.attempt_progress import AttemptProgress
from harness.conclusion import decide_run
from harness.deviations import with_executed, with_revision
from harness.errors import ArmError, HarnessError, StoreError
from harness.evaluate import BASE_ARM, predictions_path
from harness.gates.binding import git_state
from harness.manifest import enter_all, is_sealed, seal
from harness.plan import (
    GATES_FOLDER,
    PLAN_NAME,
    SPEC_COPY_NAME,
    PlannedRun,
    PlanVersionError,
    make_plan,
    parse_plan,
    read_plan,
)
from harness.problems import load_problems
from harness.reading import MAX_ROWS_BYTES, read_regular
from harness.redact import Redactor
from harness.report import HTML_NAME
from harness.report_files import draw_into
from harness.result import RESULT_NAME, ResultDocument, publish, read_result, result_line
from harness.run_lock import RunLock, acquire
from harness.run_result import GROWING_FILES, post_scores, post_stage, with_evidence
from harness.service import create_initial_state
from harness.session import DEFAULT_SPEC, HarnessSession
from harness.stage import run_stage
from harness.stage_log import scrub_files
from harness.step_line import ShowStep
from harness.step_mirror import feed, open_mirror
from harness.stopping import continue_command
from harness.store import RunFolder, write_json_atomic, write_new
from harness.supervision import Supervision
from harness.timings import record_timing


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
        self._session_timings: list[str] = []
        self._redactor = Redactor.from_environment(os.environ)
        self.lock: RunLock | None = None

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
        folder, reason = self._unfinished_run()
        if folder is None:
            folder = self._new_run()
        self.session.report(f"run {folder.name}: {reason}")
        self.lock = acquire(folder)
        if self.lock and self.lock.taken_over:
            self.session.report(f"lock of {self.lock.taken_over}, which is gone: taken over")
        return read_plan(folder, options.gsm8k_dir)

    def _unfinished_run(self) -> tuple[Path | None, str]:
        options, loaded = self.session.options, self.session.loaded
        latest = RunFolder.latest(self.artifacts, loaded.name)
        if self.pilot_steps is not None:
            return None, f"a pilot of {self.pilot_steps} steps an arm"
        if options.fresh:
            return None, "new, as --fresh asks"
        if latest is None:
            return None, "the first of this spec"
        try:
            plan = parse_plan(latest.path)
            status = read_result(latest.path / RESULT_NAME).status
        except PlanVersionError as error:
            return None, f"new: {latest.run_id} is of another version ({error.found})"
        except (OSError, HarnessError):
            return None, f"new: {latest.run_id} has no readable plan and result"
        unsealed = status == "succeeded" and not is_sealed(latest.path)
        if status != "running" and not unsealed:
            return None, f"new: {latest.run_id} has ended"
        if plan["binding_digest"] != self.session.binding().digest():
            return None, f"new: spec, code or service changed since {latest.run_id}"
        return latest.path, "continued: only its seal is missing" if unsealed else "continued"

    def _new_run(self) -> Path:
        options, loaded = self.session.options, self.session.loaded
        train = load_problems(loaded.spec, "train", options.gsm8k_dir)
        test = load_problems(loaded.spec, "test", options.gsm8k_dir)
        run = RunFolder.create(self.artifacts, loaded.name, loaded.digest, now=datetime.now(UTC))
        write_new(run.path / SPEC_COPY_NAME, read_regular(options.spec_path, follow=True))
        pins = options.spec_path.with_suffix(".pins.json")
        if pins.exists():
            write_new(
                (run.path / SPEC_COPY_NAME).with_suffix(".pins.json"),
                read_regular(pins, follow=True),
            )
        binding, code = self.session.binding(), git_state(options.root)
        plan = make_plan(loaded, run.run_id, train, test, binding, code)
        plan["gates"] = {
            gate_id: {"outcome": standing.outcome.value, "session": standing.session}
            for gate_id, standing in self.session.standings().items()
        }
        self._keep_gate_evidence(run.path)
        write_json_atomic(run.path / PLAN_NAME, plan)
        # Not the title: prose may hold more sentences than a summary is allowed.
        summary = f"{loaded.name}: planned, nothing trained yet."
        document = with_revision(ResultDocument.start(summary), loaded, options.spec_path.parent)
        publish(run.path / RESULT_NAME, document)
        return run.path

    def _keep_gate_evidence(self, folder: Path) -> None:
        """Copy the sessions that the gates rest on, so that the run can be judged without us."""
        kept = folder / GATES_FOLDER
        kept.mkdir(exist_ok=True)
        for session in sorted({found.session for found in self.session.standings().values()}):
            source = self.session.gates_folder / f"{session}.jsonl"
            if session and source.exists() and not (kept / source.name).exists():
                write_new(kept / source.name, read_regular(source, max_bytes=MAX_ROWS_BYTES))

    @cached_property
    def supervision(self) -> Supervision:
        """What watches this run's stages and says in ``result.json`` what stopped one."""
        options = self.session.options
        return Supervision(
            self.result_path,
            self.run.plan["spec"],
            self.run.spec.decision_rule.seeds[0],
            continue_command(options.root, options.spec_path, DEFAULT_SPEC),
            self.session.report,
        )

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
                self.supervision.work(
                    "initial state", lambda seed=seed: self._create_initial_state(seed)
                )
        return self.run.initial_state()

    def _create_initial_state(self, seed: int) -> None:
        path = self.run.initial_path(seed)
        with self.sdk_client() as client:
            state = create_initial_state(
                client,
                self.run.spec,
                seed=seed,
                name=f"{path.stem}-{self.run.folder.name}",
                folder=self.run.initial_adapter(seed),
            )
        write_json_atomic(path, state.to_json())

    def sdk_client(self) -> tinker.ServiceClient:
        """Return an SDK client of the session's service, to be used in a with statement."""
        environment = self.session.service.environment()
        os.environ["TINKER_TELEMETRY"] = "0"
        return tinker.ServiceClient(
            base_url=environment["TINKER_BASE_URL"], api_key=environment["TINKER_API_KEY"]
        )

    def train(self, arm_name: str) -> dict[str, Any]:
        """Train one arm if the run has not done so, and return its ``done.json``.

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
        done = read_done(self.run.folder, arm_name)
        if done is not None:
            self.session.report(f"{arm_name}: already trained in this run")
            return done
        folder = arm_folder(self.run.folder, arm_name)
        steps = self.pilot_steps or self.run.spec.arm(arm_name).steps

        extra = ["--steps", str(steps)] if self.pilot_steps else []
        with ExitStack() as mirrors:

            def follow() -> AttemptProgress:
                attempt = folder / f"attempt-{next_attempt(folder):02d}"
                shows = [self.session.show_step, *self._mirror_into(mirrors, arm_name, attempt)]
                return AttemptProgress(arm_name, attempt, steps, self.session.report, shows)

            self._stage("harness.arm", arm_name, follow, extra)
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
        path = predictions_path(self.run.folder, arm_name)
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            self._stage("harness.evaluate", arm_name, lambda: lambda: None)
        accuracy = post_scores(self.run, arm_name)
        post_stage(self.run, self.session.options.root, self._redactor)
        self.session.report(f"{arm_name}: greedy accuracy {accuracy:.4f}")
        return accuracy

    def _stage(
        self,
        module: str,
        arm_name: str,
        follow: Callable[[], Callable[[], None]],
        extra: Sequence[str] = (),
    ) -> None:
        gsm8k_dir = self.session.options.gsm8k_dir
        data = ["--gsm8k-dir", str(gsm8k_dir)] if gsm8k_dir else []
        arguments = [str(self.run.folder), arm_name, *data, *extra]
        stage = module.removeprefix("harness.")

        def run(environment: Mapping[str, str], log: Path, on_poll: Callable[[], None]) -> float:
            try:
                return run_stage(
                    module, arguments, environment=environment, log_path=log, on_poll=on_poll
                )
            finally:
                self._scrub(arm_name)

        seconds = self.supervision.stage(
            f"{stage} {arm_name}",
            self.session.service.environment(),
            lambda: self._new_log(f"{stage}-{arm_name}"),
            follow,
            run,
            trains=module == "harness.arm",
        )
        record_timing(self.run.folder, stage, arm_name, seconds)
        self._session_timings.append(f"stage {stage} {arm_name}: {seconds:.1f} s")
        enter_all(self.run.folder, ignored=GROWING_FILES)

    def _scrub(self, arm_name: str) -> None:
        """Take secrets out of what the stock loop wrote by itself, before it is entered."""
        for folder in arm_folder(self.run.folder, arm_name).glob("attempt-*/cookbook"):
            for name in scrub_files(folder):
                self.session.report(f"{arm_name}: a secret was taken out of cookbook/{name}")

    def _new_log(self, stem: str) -> Path:
        """Return a log name that no earlier attempt used: a run's files are written once."""
        folder = self.run.folder / "logs"
        number = len(list(folder.glob(f"{stem}-*.log"))) + 1
        return folder / f"{stem}-{number:02d}.log"

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
        standings = self.session.standings()
        self._keep_gate_evidence(self.run.folder)
        document = decide_run(self.run, with_executed(document, self.run), standings)
        root = self.session.options.root
        document = with_evidence(document, self.run, root, self._redactor, ended=True)
        publish(self.result_path, document)
        return document

    def closing_lines(self) -> list[str]:
        """Return the last lines of a session that worked on a run."""
        if "run" not in self.__dict__:
            return []
        lines = list(self._session_timings)
        document = read_result(self.result_path)
        lines.append(document.summary)
        if document.verdict is not None:
            lines.append(f"verdict: {document.verdict} ({document.outcome_reason})")
        shown = self._shown_folder()
        if (self.run.folder / HTML_NAME).exists():
            lines.append(f"report: {shown / HTML_NAME}")
        lines.append(f"files: {shown}")
        after = "status" if document.status == "running" else "verify"
        return [*lines, f"next: python -m harness {after} {shown}"]

    def _shown_folder(self) -> Path:
        """Return the run's folder as it is shortest from here."""
        folder, here = self.run.folder, Path.cwd()
        return folder.relative_to(here) if folder.is_relative_to(here) else folder

    def result_line(self) -> str:
        """Return the current document as one line."""
        return result_line(read_result(self.result_path))
