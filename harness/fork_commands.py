"""``python -m harness fork`` and ``cleanup``: what a run on a fork starts, and what is still up."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from harness.command_line import add_artifacts, command_parser, print_lines
from harness.errors import UsageError


def fork_command(argv: Sequence[str]) -> int:
    """Give out the id of SPEC's next run on a fork, or record the apps that were named after it."""
    from harness.fork_run import new_run_id, record_fork
    from harness.spec import load_spec

    parser = command_parser("fork", fork_command.__doc__)
    parser.add_argument("spec", type=Path, help="experiment spec")
    parser.add_argument("--run-id", help="the id that the apps are named after")
    parser.add_argument("--app", action="append", default=[], help="exact name; may be repeated")
    parser.add_argument("--revision", help="code revision that was deployed")
    parser.add_argument("--patch", type=Path, help="difference from it, where there is one")
    add_artifacts(parser)
    options = parser.parse_args(argv)
    loaded = load_spec(options.spec)
    if options.run_id is None:
        run_id = new_run_id(loaded)
        print_lines(
            run_id,
            "Put it into the name of every app, deploy, then record them:",
            f"  python -m harness fork {options.spec} --run-id {run_id}"
            " --revision REV --app NAME …",
        )
        return 0
    if not options.app or not options.revision:
        raise UsageError("--run-id records what was started", expected="--revision and --app")
    patch = options.patch.read_bytes() if options.patch else None
    apps, revision = tuple(options.app), options.revision
    path = record_fork(options.artifacts, loaded, options.run_id, apps, revision, patch)
    print_lines(f"recorded in {path}; the next new run on --service fork takes this id")
    return 0


def cleanup_command(argv: Sequence[str]) -> int:
    """List what RUN started on a fork and is still up: 0 nothing, 1 something, 3 not known."""
    from harness.fork_cleanup import STOP, app_states, record_cleanup
    from harness.fork_run import FORK_NAME, read_fork
    from harness.manifest import is_sealed

    parser = command_parser("cleanup", cleanup_command.__doc__)
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("--up", metavar="FILE", help="names of all apps that are up, one a line; -")
    parser.add_argument(
        "--left", nargs=2, action="append", default=[], metavar=("APP", "WHY"), help="left up"
    )
    options = parser.parse_args(argv)
    path = options.run / FORK_NAME
    if not path.is_file():
        print_lines("this run started nothing: it has no fork.json")
        return 0
    apps = read_fork(path).apps
    if options.up is None:
        print_lines(
            *(f"?     {name}  stop it with: {STOP.format(name=name)}" for name in apps),
            "Not known which are up: give the platform's listing with --up FILE, one name a line.",
        )
        return 3
    text = sys.stdin.read() if options.up == "-" else Path(options.up).read_text(encoding="utf-8")
    states = app_states(apps, text.splitlines(), dict(options.left))
    print_lines(*(state.line() for state in states))
    if is_sealed(options.run):
        print_lines("not recorded: the run is final and takes no more files")
    else:
        print_lines(f"recorded in {record_cleanup(options.run, states).name}")
    return 1 if any(state.state == "up" for state in states) else 0
