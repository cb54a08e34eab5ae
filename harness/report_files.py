"""The three files of a report: drawn into a run before it is sealed, drawn again to be compared.

A run's own report is evidence that was derived from its records: whoever draws it again must get
the same bytes. The command never writes into a run.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from harness.digest import parse_json
from harness.durable import stored, write_beside
from harness.errors import DocumentError, HarnessError, UsageError
from harness.gates.verdict import Outcome
from harness.plan import PLAN_NAME
from harness.reading import read_regular
from harness.redact import Redactor
from harness.report import (
    HTML_NAME,
    JSON_NAME,
    MARKDOWN_NAME,
    REPORT_NAMES,
    build_report,
    report_json,
)
from harness.report_model import Report
from harness.report_render import render_html, render_markdown, without_figures
from harness.report_source import MUTANTS_NAME, RESULT_NAME
from harness.store import write_new
from harness.verify_rows import Check, failed, passed, unknown

DEFAULT_FOLDER = Path("artifacts") / "reports"
EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNKNOWN: 3}


def draw_into(folder: Path, gsm8k_dir: Path | None, artifacts: Path) -> None:
    """Draw a run's own report, before its manifest is sealed; what is there already stays.

    Args:
        folder: the run's folder.
        gsm8k_dir: offline rows of the data set, where the run used them.
        artifacts: where the last session of planted defects left its record; it is copied into
            the run, so that the report rests on the run's files alone.

    Raises:
        HarnessError: when a record is damaged or a report is there already.
    """
    planted = artifacts / MUTANTS_NAME
    if planted.is_file() and not (folder / MUTANTS_NAME).exists():
        write_new(folder / MUTANTS_NAME, read_regular(planted))
    if all((folder / name).exists() for name in REPORT_NAMES):
        return
    for name, data in drawn_files(_built(folder, gsm8k_dir)).items():
        # A run that was cut off while it was drawn keeps what is there: the bytes are the same.
        if not (folder / name).exists():
            write_new(folder / name, data)


def drawn_files(report: Report) -> dict[str, bytes]:
    """Return the bytes of the three files by name."""
    return {
        JSON_NAME: report_json(report),
        MARKDOWN_NAME: render_markdown(report).encode(),
        HTML_NAME: render_html(report).encode(),
    }


def _built(folder: Path, gsm8k_dir: Path | None) -> Report:
    try:
        return build_report(folder, gsm8k_dir, Redactor.from_environment(os.environ))
    except HarnessError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # What a document of a wrong form raises when it is read as one of the right form.
        raise DocumentError(
            "a record of the run has not the form it should have",
            found=f"{type(error).__name__}: {error}",
            where=folder.name,
            fix="python -m harness verify RUN names the damaged record",
        ) from error


def report_check(folder: Path, gsm8k_dir: Path | None) -> Check:
    """Build a run's report again and compare it with the run's own, all but the drawings.

    Args:
        folder: the run's folder.
        gsm8k_dir: offline rows of the data set, where the run used them.
    """
    absent = [name for name in REPORT_NAMES if not (folder / name).is_file()]
    if len(absent) == len(REPORT_NAMES):
        return unknown("report", "the run has no report of its own")
    if absent:
        return failed("report", f"{', '.join(absent)} is missing")
    report = _built(folder, gsm8k_dir)
    return _compared(folder, report, _undrawn(report), drawn=False)


def _compared(folder: Path, report: Report, again: Mapping[str, bytes], *, drawn: bool) -> Check:
    """Compare a run's own three files with what its records give, byte for byte."""
    own = {name: read_regular(folder / name) for name in REPORT_NAMES}
    why_not = report.examples.questions_unknown
    if why_not and not _recorded_as_unknown(own[JSON_NAME]):
        return unknown("report", f"the questions it shows cannot be had here: {why_not}")
    if not drawn:
        own[HTML_NAME] = without_figures(own[HTML_NAME].decode()).encode()
    if wrong := [name for name in REPORT_NAMES if own[name] != again[name]]:
        return failed("report", f"{', '.join(wrong)}: not what the run's records give")
    extent = "every byte" if drawn else "every byte but the drawings in the page"
    return passed("report", f"the records give {extent} of {', '.join(REPORT_NAMES)} again")


def _recorded_as_unknown(data: bytes) -> bool:
    return parse_json(data, where=JSON_NAME)["examples"]["questions_unknown"] is not None


def _undrawn(report: Report) -> Mapping[str, bytes]:
    return {
        JSON_NAME: report_json(report),
        MARKDOWN_NAME: render_markdown(report).encode(),
        HTML_NAME: render_html(report, drawn=False).encode(),
    }


def run_command(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[int, list[str]]:
    """Run ``python -m harness report RUN [--out DIR]``; return exit code and lines to print.

    Raises:
        HarnessError: when the run cannot be read, or ``--out`` is inside it.
    """
    parser.add_argument("run", type=Path, help="a run's folder, finished or not")
    parser.add_argument("--out", type=Path, help="write report.html, .md and .json here")
    parser.add_argument("--gsm8k-dir", type=Path, help="offline rows, where the run used them")
    options = parser.parse_args(argv)
    folder = options.run.resolve()
    for name in (PLAN_NAME, RESULT_NAME):
        if not (folder / name).is_file():
            raise UsageError(
                "there is no run to report on",
                expected=f"a run's folder with {PLAN_NAME} and {RESULT_NAME}",
                found=f"no {name}",
                where=str(options.run),
                fix="make demo, or name another run",
            )
    own = [name for name in REPORT_NAMES if (folder / name).is_file()]
    report = _built(folder, options.gsm8k_dir)
    files = drawn_files(report)
    lines: list[str] = []
    code = 0
    if own:
        check = (
            _compared(folder, report, files, drawn=True)
            if len(own) == len(REPORT_NAMES)
            else report_check(folder, options.gsm8k_dir)
        )
        code = EXIT_CODES[check.outcome]
        lines.append(f"{check.outcome} {check.name}: {check.detail}")
    if own and options.out is None:
        return code, [*lines, f"open {options.run / HTML_NAME}"]
    target = options.out or DEFAULT_FOLDER / report.spec / report.run
    _write(folder, target, files)
    return code, [
        *lines,
        f"drawn of a run that is {report.verdict.status}: open {target / HTML_NAME}",
    ]


def _write(folder: Path, target: Path, files: Mapping[str, bytes]) -> None:
    if target.resolve().is_relative_to(folder):
        raise UsageError(
            "a report is not written into a run: its files are evidence",
            expected="--out with a folder outside the run",
            found=str(target),
            fix="name another folder",
        )
    with stored(target):
        target.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_beside(target / name, data, replace=True)
