"""Commands that plan, watch, compare and check; like those of ``harness.__main__``, thin."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.command_line import add_artifacts, command_parser, print_json, print_lines
from harness.errors import UsageError
from harness.fork_commands import cleanup_command, fork_command
from harness.service_access import SERVICES
from harness.session import DEFAULT_SPEC, PACKAGE_ROOT, HarnessSession, Options
from harness.spec import load_spec

if TYPE_CHECKING:
    from harness.doctor import Finding


def plan_command(argv: Sequence[str]) -> int:
    """Say what a run of SPEC can show, what it uses and how long it takes; contacts no service.

    With --substitute it asks the service which models it serves, and writes a revised spec.
    """
    from harness.plan_report import plan_document, plan_lines
    from harness.plan_sources import dry_table, projected_time, source_lines

    parser = command_parser("plan", plan_command.__doc__)
    parser.add_argument("spec", type=Path, help="experiment spec")
    parser.add_argument("--gsm8k-dir", type=Path, help="folder with train.jsonl and test.jsonl")
    add_artifacts(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of what is simulated")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")
    parser.add_argument(
        "--substitute", action="store_true", help="write a revision with the closest served model"
    )
    parser.add_argument("--service", choices=SERVICES, help="with --substitute: which service")
    options = parser.parse_args(argv)
    if options.substitute:
        from harness.substitute_command import substitute

        print_lines(*substitute(load_spec(options.spec), options.service, options.artifacts))
        return 0
    session = quiet_session(options.spec, options.artifacts, options.gsm8k_dir)
    document = plan_document(session.loaded, options.seed)
    activation = dry_table(session.loaded.spec, options.gsm8k_dir)
    time = projected_time(session)
    if options.json:
        print_json({**document, "activation": activation, "projected_time": time})
    else:
        simulation = f"simulated with seed {options.seed} where marked *"
        print_lines(*plan_lines(document), *source_lines(activation, time), "", simulation)
    return 0


def status_command(argv: Sequence[str]) -> int:
    """Say what is proven, stale and missing, where the newest run stands, and what to do next."""
    from harness.status import reader_for, watch

    parser = command_parser("status", status_command.__doc__)
    parser.add_argument(
        "subject", type=Path, nargs="?", help=f"a spec or a run's folder (default: {DEFAULT_SPEC})"
    )
    add_artifacts(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="look once, as without --watch")
    how.add_argument("--watch", action="store_true", help="follow the run until it ends")
    parser.add_argument("--interval-s", type=float, default=1.0, help="seconds between two looks")
    options = parser.parse_args(argv)
    read = reader_for(options.subject, lambda spec: quiet_session(spec, options.artifacts))
    if options.watch:
        try:
            watch(read, options.interval_s)
        except KeyboardInterrupt:
            print_lines("", "stopped watching; the run itself was not touched")
    else:
        print_lines(*read()[0])
    return 0


def compare_command(argv: Sequence[str]) -> int:
    """Compare two runs field by field: 0 equal but for names and times, 1 different, 3 unknown."""
    from harness.compare import compare_runs, exit_code, report_lines
    from harness.run_state import is_run

    parser = command_parser("compare", compare_command.__doc__)
    parser.add_argument("first", type=Path, help="a run's folder")
    parser.add_argument("second", type=Path, help="another run's folder")
    options = parser.parse_args(argv)
    for folder in (options.first, options.second):
        if not folder.is_dir():
            raise UsageError(
                "there is no run to compare",
                expected="a run's folder",
                found="a file" if folder.exists() else "nothing",
                where=str(folder),
                fix="name two runs, such as those under artifacts/runs/local",
            )
        if not is_run(folder):
            print_lines(f"note: {folder} has no plan.json and may be no run")
    parts = compare_runs(options.first, options.second)
    print_lines(*report_lines(options.first, options.second, parts))
    return exit_code(parts)


def doctor_command(argv: Sequence[str]) -> int:
    """Check this machine for SPEC: 0 ready, 1 something is wrong, 3 something is not known."""
    from harness.doctor import closing_line, examine, exit_code

    parser = command_parser("doctor", doctor_command.__doc__)
    parser.add_argument("spec", type=Path, nargs="?", default=Path(DEFAULT_SPEC), help="experiment")
    parser.add_argument("--service", choices=SERVICES, help="which service (default: the spec's)")
    parser.add_argument("--gsm8k-dir", type=Path, help="folder with train.jsonl and test.jsonl")
    add_artifacts(parser)
    options = parser.parse_args(argv)
    findings: list[Finding] = []
    for finding in examine(
        PACKAGE_ROOT,
        options.spec,
        options.artifacts,
        service=options.service,
        gsm8k_dir=options.gsm8k_dir,
        environment=os.environ,
    ):
        print_lines(str(finding))
        findings.append(finding)
    print_lines(closing_line(findings))
    if exit_code(findings) == 0:
        print_lines(f"next: python -m harness status {options.spec}")
    return exit_code(findings)


def template_command(argv: Sequence[str]) -> int:
    """Print a valid spec to start from; then: edit, spec, plan, pin."""
    from harness.template import template_document, template_text

    parser = command_parser("template", template_command.__doc__)
    parser.add_argument("--local", action="store_true", help="for the embedded service")
    options = parser.parse_args(argv)
    sys.stdout.write(template_text(template_document(PACKAGE_ROOT / "specs", local=options.local)))
    return 0


def quiet_session(spec: Path, artifacts: Path, gsm8k_dir: Path | None = None) -> HarnessSession:
    """Return a session that reads files only: nothing in it starts or contacts a service."""
    return HarnessSession(
        Options(PACKAGE_ROOT, spec.absolute(), artifacts=artifacts, gsm8k_dir=gsm8k_dir)
    )


MORE_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "cleanup": cleanup_command,
    "compare": compare_command,
    "doctor": doctor_command,
    "fork": fork_command,
    "plan": plan_command,
    "status": status_command,
    "template": template_command,
}
