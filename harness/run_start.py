"""Which run a session works on: the latest one of this content that has not ended, or a new one.

A new run is planned before anything is done: its folder holds its own copy of spec and pins, the
plan, the gate evidence it relies on and the first state of ``result.json``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from harness.deviations import with_revision
from harness.errors import HarnessError
from harness.fork_run import FORK_SERVICE, waiting_fork
from harness.gates.binding import git_state
from harness.manifest import is_sealed
from harness.plan import (
    GATES_FOLDER,
    PLAN_NAME,
    SPEC_COPY_NAME,
    PlanVersionError,
    make_plan,
    parse_plan,
)
from harness.problems import load_problems
from harness.reading import MAX_ROWS_BYTES, read_regular
from harness.result import RESULT_NAME, ResultDocument, publish, read_result
from harness.session import HarnessSession
from harness.store import RunFolder, write_json_atomic, write_new


def unfinished_run(
    session: HarnessSession, artifacts: Path, pilot_steps: int | None
) -> tuple[Path | None, str]:
    """Return the run to continue, or None, and why.

    Args:
        session: options, spec and binding.
        artifacts: where its runs are.
        pilot_steps: steps of a pilot, which is always a new run; None for the experiment.
    """
    latest = RunFolder.latest(artifacts, session.loaded.name)
    if pilot_steps is not None:
        return None, f"a pilot of {pilot_steps} steps an arm"
    if session.options.fresh:
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
    if plan["binding_digest"] != session.binding().digest():
        return None, f"new: spec, code or service changed since {latest.run_id}"
    return latest.path, "continued: only its seal is missing" if unsealed else "continued"


def new_run(session: HarnessSession, artifacts: Path, pilot_steps: int | None) -> Path:
    """Plan a new run and return its folder.

    Raises:
        StoreError: when the folder cannot be made or written.
        SpecError: when the spec revises another one that is not beside it.
    """
    options, loaded = session.options, session.loaded
    train = load_problems(loaded.spec, "train", options.gsm8k_dir)
    test = load_problems(loaded.spec, "test", options.gsm8k_dir)
    forked = session.service_name == FORK_SERVICE and pilot_steps is None
    run = RunFolder.create(
        artifacts,
        loaded.name,
        loaded.digest,
        now=datetime.now(UTC),
        run_id=waiting_fork(options.artifacts, loaded.name).run_id if forked else None,
    )
    pins = options.spec_path.with_suffix(".pins.json")
    own_spec = run.path / SPEC_COPY_NAME
    write_new(own_spec, read_regular(options.spec_path, follow=True))
    if pins.exists():
        write_new(own_spec.with_suffix(".pins.json"), read_regular(pins, follow=True))
    binding, code = session.binding(), git_state(options.root)
    plan = make_plan(loaded, run.run_id, train, test, binding, code)
    plan["pilot_steps"] = pilot_steps
    plan["gates"] = {
        gate_id: {"outcome": standing.outcome.value, "session": standing.session}
        for gate_id, standing in session.standings().items()
    }
    keep_gate_evidence(session, run.path)
    write_json_atomic(run.path / PLAN_NAME, plan)
    # Not the title: prose may hold more sentences than a summary is allowed.
    summary = f"{loaded.name}: planned, nothing trained yet."
    document = with_revision(ResultDocument.start(summary), loaded, options.spec_path.parent)
    publish(run.path / RESULT_NAME, document)
    return run.path


def keep_gate_evidence(session: HarnessSession, folder: Path) -> None:
    """Copy the sessions that the gates rest on into a run, so that it can be judged without us."""
    kept = folder / GATES_FOLDER
    kept.mkdir(exist_ok=True)
    for name in sorted({found.session for found in session.standings().values()}):
        source = session.gates_folder / f"{name}.jsonl"
        if name and source.exists() and not (kept / source.name).exists():
            write_new(kept / source.name, read_regular(source, max_bytes=MAX_ROWS_BYTES))
