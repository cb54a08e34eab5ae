"""``python -m harness COMMAND``: everything that neither trains nor evaluates.

Exit codes: 0 done, 1 something is false, 3 something is unknown, 4 usage or unreadable input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from harness.command_line import command_parser
from harness.commands import MORE_COMMANDS
from harness.errors import MALFORMED, DocumentError, HarnessError, StoreError, UsageError
from harness.output_guard import guard_output
from harness.reading import bounded_lines, open_regular

Command = Callable[[Sequence[str]], int]


def spec_command(argv: Sequence[str]) -> int:
    """Load and check a spec; print digest, arms, gates and notes."""
    from harness.gates.catalog import required_gate_ids
    from harness.spec import describe, load_spec

    parser = _parser("spec", spec_command)
    parser.add_argument("path", type=Path)
    path = parser.parse_args(argv).path
    loaded = load_spec(path)
    _print(*describe(loaded, required_gate_ids(loaded.spec)))
    _print(f"next: python -m harness plan {path}")
    return 0


def grade_command(argv: Sequence[str]) -> int:
    """Grade lines of {text, gold, finished}; print lines of {prediction, correct}."""
    parser = _parser("grade", grade_command)
    parser.add_argument("path", type=Path, help="JSONL file, or - for standard input")
    path = parser.parse_args(argv).path
    if str(path) == "-":
        return _grade_stream(sys.stdin.buffer)
    try:
        stream = open_regular(path, follow=True)
    except StoreError as error:
        raise DocumentError(
            "the file cannot be read",
            expected="a JSONL file of {text, gold, finished}",
            found=error.found,
            where=str(path),
            fix="name an existing file, or - for standard input",
        ) from error
    with stream:
        return _grade_stream(stream, path.name)


def _grade_stream(stream: BinaryIO, name: str = "") -> int:
    from harness.answers import grade_lines

    count = 0
    for row in grade_lines(bounded_lines(stream, name), name):
        _print(json.dumps(row, allow_nan=False))
        count += 1
    if not count:
        raise DocumentError(
            "there is nothing to grade",
            expected="at least one line of {text, gold, finished}",
            found="an empty file",
            where=name or "standard input",
            fix="name a file with lines, or pipe some in",
        )
    return 0


def serve_command(argv: Sequence[str]) -> int:
    """Start the embedded service by hand and say how to point a client at it."""
    from harness.local_service.process import serve_by_hand

    return serve_by_hand(argv)


def result_command(argv: Sequence[str]) -> int:
    """Print a run's current result document as one line, RESULT {...}, or one value of it."""
    from harness.result import read_result, result_line
    from harness.result_field import field_text

    parser = _parser("result", result_command)
    parser.add_argument(
        "run", type=Path, nargs="?", default=Path("artifacts/runs/local/latest"), help="run folder"
    )
    parser.add_argument(
        "--field", metavar="PATH", help="only this value, such as metrics.arms.ARM.accuracy"
    )
    options = parser.parse_args(argv)
    path = options.run / "result.json"
    if not path.is_file():
        raise UsageError(
            "there is no result to print",
            expected="a run's folder with result.json",
            found="nothing",
            where=str(path),
            fix="make demo, or name another run",
        )
    document = read_result(path)
    if options.field:
        _print(field_text(document.to_json(), options.field))
    else:
        _print(result_line(document))
    return 0


def verify_command(argv: Sequence[str]) -> int:
    """Judge a run again from its files alone: 0 proven, 1 something false, 3 unknown."""
    from harness.published_head import head_line, parse_head
    from harness.verify import exit_code, report_lines, verify_run

    parser = _parser("verify", verify_command)
    parser.add_argument(
        "run", type=Path, help="a run's folder, such as artifacts/runs/local/latest"
    )
    parser.add_argument("--gsm8k-dir", type=Path, help="offline rows, where the run used them")
    parser.add_argument("--head", metavar="SHA256", help="the head that was published of the run")
    options = parser.parse_args(argv)
    published = None if options.head is None else parse_head(options.head)
    # A run that lost one of the two is judged, and the loss is named.
    if not any((options.run / name).is_file() for name in ("plan.json", "manifest.jsonl")):
        raise UsageError(
            "there is no run to verify",
            expected="a run's folder, with its plan.json and manifest.jsonl",
            found="a folder without them" if options.run.is_dir() else "nothing",
            where=str(options.run),
            fix="make demo, or name another run",
        )
    checks = verify_run(options.run, options.gsm8k_dir, published)
    _print(*report_lines(checks), head_line(options.run))
    return exit_code(checks)


def bundle_command(argv: Sequence[str]) -> int:
    """Write a run's evidence into one new folder: 0 complete, 3 partial or unknown."""
    from harness.bundle import collect, report_lines, status_of, write_bundle
    from harness.bundle_exports import Wanted, write_exports
    from harness.plan import read_plan
    from harness.redact import Redactor
    from harness.run_state import is_run
    from harness.session import PACKAGE_ROOT

    parser = _parser("bundle", bundle_command)
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("out", type=Path, help="a folder that does not exist yet")
    parser.add_argument("--ro-crate", action="store_true", help="with RO-Crate 1.2 metadata")
    parser.add_argument(
        "--in-toto", action="store_true", help="with an unsigned in-toto test-result statement"
    )
    options = parser.parse_args(argv)
    if not is_run(options.run):
        raise UsageError(
            "there is no run to bundle",
            expected="a run's folder, with its plan.json",
            found="a folder without it" if options.run.is_dir() else "nothing",
            where=str(options.run),
            fix="make demo, or name another run",
        )
    redactor = Redactor.from_environment(os.environ)
    run = read_plan(options.run.resolve(), None)
    bundle = collect(run, PACKAGE_ROOT, redactor)
    write_bundle(bundle, options.out)
    wanted = Wanted(options.ro_crate, options.in_toto)
    exports = write_exports(run, bundle, options.out, wanted, redactor)
    _print(*exports, *report_lines(bundle))
    return 0 if status_of(bundle) == "complete" else 3


def pin_command(argv: Sequence[str]) -> int:
    """Record the present revisions of baseline, reference and implementation beside a spec."""
    from harness.pins import record_pins
    from harness.session import PACKAGE_ROOT

    parser = _parser("pin", pin_command)
    parser.add_argument("path", type=Path)
    _print(f"recorded in {record_pins(parser.parse_args(argv).path, PACKAGE_ROOT)}")
    return 0


def report_command(argv: Sequence[str]) -> int:
    """Draw a run's report again and compare it: 0 equal or new, 1 different, 3 unknown."""
    from harness.report_files import run_command

    code, lines = run_command(_parser("report", report_command), list(argv))
    _print(*lines)
    return code


COMMANDS: dict[str, Command] = {
    "bundle": bundle_command,
    "spec": spec_command,
    "grade": grade_command,
    "pin": pin_command,
    "report": report_command,
    "result": result_command,
    "serve": serve_command,
    "verify": verify_command,
    **MORE_COMMANDS,
}


def _parser(name: str, command: Command) -> argparse.ArgumentParser:
    return command_parser(name, command.__doc__)


def _print(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")


def _first_line(command: Command) -> str:
    return (command.__doc__ or "").strip().partition("\n")[0]


def _usage() -> str:
    lines = ["usage: python -m harness COMMAND [...]", "", "commands:"]
    lines += [f"  {name:8} {_first_line(command)}" for name, command in COMMANDS.items()]
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    if not argv or argv[0] in {"-h", "--help"}:
        _print(_usage())
        return 0 if argv else 4
    if argv[0] not in COMMANDS:
        sys.stderr.write(f"unknown command {argv[0]!r}\n{_usage()}\n")
        return 4
    try:
        code = COMMANDS[argv[0]](argv[1:])
        sys.stdout.flush()
        return code
    except HarnessError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 4
    except BrokenPipeError:
        # Whoever read has enough. The interpreter will flush once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MALFORMED as error:
        # A document of another form than the contract's, read as one of the right form.
        problem = DocumentError(
            f"{argv[0]} cannot make sense of what it was given",
            expected="the files of a run, a spec or rows, as this version writes them",
            found=f"{type(error).__name__}: {error}",
            where=" ".join(argv[1:]),
            fix="python -m harness verify RUN names the damaged file of a run",
        )
        sys.stderr.write(f"DocumentError: {problem}\n")
        return 4
    except SystemExit as exit_request:
        # argparse exits with 2 for a bad command line; design §1 calls that 4.
        return 4 if exit_request.code not in (0, None) else 0


if __name__ == "__main__":
    guard_output()
    sys.exit(main(sys.argv[1:]))
