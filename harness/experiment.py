"""The experiment's stages: plan, initial state, arms, evaluation, decision.

A stage reads the files of the stages before it, never their memory, so each can be run again
alone. ``result.json`` is brought up to date as each one ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import tinker

from harness.arm import arm_folder, next_attempt, read_done
from harness.conclusion import decide_run, score_numbers
from harness.digest import parse_json
from harness.errors import ArmError, HarnessError, StoreError
from harness.evaluate import BASE_ARM, METRIC, predictions_path
from harness.gates.binding import git_state
from harness.manifest import enter_all, seal
from harness.plan import GATES_FOLDER, PLAN_NAME, SPEC_COPY_NAME, PlannedRun, make_plan, read_plan
from harness.problems import load_problems
from harness.report import HTML_NAME
from harness.report_files import draw_into
from harness.result import ResultDocument, publish, read_result, result_line
from harness.service import create_initial_state
from harness.session import HarnessSession
from harness.stage import StepProgress, run_stage
from harness.store import RunFolder, read_jsonl, write_json_atomic, write_new

RESULT_NAME = "result.json"


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
        self.stage_seconds: dict[str, float] = {}

    def pilot(self, steps: int) -> Experiment:
        """Return a pilot of ``steps`` steps of the same session."""
        return Experiment(self.session, steps)

    @cached_property
    def run(self) -> PlannedRun:
        """The run this session works on: the latest unfinished one of this content, or a new one.

        Raises:
            StoreError: when the run's folder cannot be made or read.
        """
        options = self.session.options
        folder, reason = self._unfinished_run()
        if folder is None:
            folder = self._new_run()
        self.session.report(f"run {folder.name}: {reason}")
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
            plan = parse_json((latest.path / PLAN_NAME).read_bytes(), where=PLAN_NAME)
            status = read_result(latest.path / RESULT_NAME).status
        except (OSError, HarnessError):
            return None, f"new: {latest.run_id} has no readable plan and result"
        if status != "running":
            return None, f"new: {latest.run_id} has ended"
        if plan["binding_digest"] != self.session.binding().digest():
            return None, f"new: spec, code or service changed since {latest.run_id}"
        return latest.path, "continued"

    def _new_run(self) -> Path:
        options, loaded = self.session.options, self.session.loaded
        train = load_problems(loaded.spec, "train", options.gsm8k_dir)
        test = load_problems(loaded.spec, "test", options.gsm8k_dir)
        run = RunFolder.create(self.artifacts, loaded.name, loaded.digest, now=datetime.now(UTC))
        write_new(run.path / SPEC_COPY_NAME, options.spec_path.read_bytes())
        pins = options.spec_path.with_suffix(".pins.json")
        if pins.exists():
            write_new((run.path / SPEC_COPY_NAME).with_suffix(".pins.json"), pins.read_bytes())
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
        publish(run.path / RESULT_NAME, ResultDocument.start(summary))
        return run.path

    def _keep_gate_evidence(self, folder: Path) -> None:
        """Copy the sessions that the gates rest on, so that the run can be judged without us."""
        kept = folder / GATES_FOLDER
        kept.mkdir()
        for session in sorted({found.session for found in self.session.standings().values()}):
            source = self.session.gates_folder / f"{session}.jsonl"
            if session and source.exists():
                write_new(kept / source.name, source.read_bytes())

    @property
    def result_path(self) -> Path:
        """The run's ``result.json``."""
        return self.run.folder / RESULT_NAME

    def ensure_initial_state(self) -> dict[str, Any]:
        """Create the adapter all arms start from, once a run, and return ``initial.json``."""
        path = self.run.folder / "initial.json"
        if path.exists():
            return parse_json(path.read_bytes(), where=path.name)
        with self.sdk_client() as client:
            state = create_initial_state(
                client,
                self.run.spec,
                seed=self.run.spec.decision_rule.seeds[0],
                name=f"initial-{self.run.folder.name}",
                folder=self.run.folder / "initial_adapter",
            )
        write_json_atomic(path, state.to_json())
        return state.to_json()

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
        attempt = folder / f"attempt-{next_attempt(folder):02d}"
        steps = self.pilot_steps or self.run.spec.arm(arm_name).steps
        progress = StepProgress(attempt / "steps.jsonl", steps, self.session.report)
        extra = ["--steps", str(steps)] if self.pilot_steps else []
        self._stage("harness.arm", arm_name, progress, extra)
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

    def evaluate(self, arm_name: str) -> float:
        """Score one arm, or ``base``, if the run has not done so; return its accuracy."""
        path = predictions_path(self.run.folder, arm_name)
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            self._stage("harness.evaluate", arm_name, lambda: None)
        accuracy = self._post_scores(arm_name)
        self.session.report(f"{arm_name}: greedy accuracy {accuracy:.4f}")
        return accuracy

    def _stage(
        self,
        module: str,
        arm_name: str,
        on_poll: Callable[[], None],
        extra: Sequence[str] = (),
    ) -> None:
        gsm8k_dir = self.session.options.gsm8k_dir
        data = ["--gsm8k-dir", str(gsm8k_dir)] if gsm8k_dir else []
        environment: Mapping[str, str] = self.session.service.environment()
        stage = module.removeprefix("harness.")
        seconds = run_stage(
            module,
            [str(self.run.folder), arm_name, *data, *extra],
            environment=environment,
            log_path=self._new_log(f"{stage}-{arm_name}"),
            on_poll=on_poll,
        )
        self.stage_seconds[f"{stage} {arm_name}"] = seconds
        enter_all(self.run.folder, ignored={RESULT_NAME})

    def _new_log(self, stem: str) -> Path:
        """Return a log name that no earlier attempt used: a run's files are written once."""
        folder = self.run.folder / "logs"
        number = len(list(folder.glob(f"{stem}-*.log"))) + 1
        return folder / f"{stem}-{number:02d}.log"

    def _post_scores(self, arm_name: str) -> float:
        rows = read_jsonl(predictions_path(self.run.folder, arm_name))
        numbers = score_numbers(rows)
        document = read_result(self.result_path)
        if arm_name == BASE_ARM:
            document = document.with_metrics(numbers)
        else:
            document = document.with_metrics(numbers, arm=arm_name).arm_completed(arm_name)
        publish(self.result_path, document.with_summary(self._progress(document)))
        return numbers[METRIC]

    def _progress(self, document: ResultDocument) -> str:
        done, planned = len(document.completed_arms), len(self.run.spec.arms)
        name = self.run.plan["spec"]
        return f"{name}: {done} of {planned} arms trained and scored, no verdict yet."

    def missing_scores(self) -> list[str]:
        """Return what is not scored yet and must be before the run may end: base model and arms.

        The base model decides nothing, but a run that has ended takes no more numbers.
        """
        names = [BASE_ARM, *(arm.name for arm in self.run.spec.arms)]
        return [name for name in names if not predictions_path(self.run.folder, name).exists()]

    def decide(self) -> ResultDocument:
        """Draw the verdict from the rows and end the run.

        Raises:
            DecisionError: for rows from which no decision may be drawn.
        """
        started_s = time.monotonic()
        document = decide_run(self.run, read_result(self.result_path), self.session.standings())
        publish(self.result_path, document)
        try:
            draw_into(
                self.run.folder, self.session.options.gsm8k_dir, self.session.options.artifacts
            )
        finally:
            # A report that cannot be drawn fails the session; the evidence is sealed all the same.
            enter_all(self.run.folder)
            self.session.report(f"manifest sealed: {seal(self.run.folder)}")
        self.stage_seconds["decision"] = time.monotonic() - started_s
        return document

    def closing_lines(self) -> list[str]:
        """Return the last lines of a session that worked on a run."""
        if "run" not in self.__dict__:
            return []
        lines = [f"stage {name}: {seconds:.1f} s" for name, seconds in self.stage_seconds.items()]
        document = read_result(self.result_path)
        lines.append(document.summary)
        if document.verdict is not None:
            lines.append(f"verdict: {document.verdict} ({document.outcome_reason})")
        if (self.run.folder / HTML_NAME).exists():
            lines.append(f"report: {self.run.folder / HTML_NAME}")
        lines.append(f"files: {self.run.folder}")
        return lines

    def result_line(self) -> str:
        """Return the current document as one line."""
        return result_line(read_result(self.result_path))
