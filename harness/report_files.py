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
from harness.result import read_result
from harness.store import write_new
from harness.verify_rows import Check, failed, passed, unknown

DEFAULT_FOLDER = Path("artifacts") / "reports"
EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.UNKNOWN: 3}


def draw_into(folder: Path, gsm8k_dir: Path | None, artifacts: Path) -> None:
    """Draw a run's own report, once, before its manifest is sealed.

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
        write_new(folder / MUTANTS_NAME, planted.read_bytes())
    for name, data in drawn_files(_built(folder, gsm8k_dir)).items():
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


def report_check(folder: Path, gsm8k_dir: Path | None, *, figures: bool = False) -> Check:
    """Build a run's report again and compare it with the run's own, byte for byte.

    Args:
        folder: the run's folder.
        gsm8k_dir: offline rows of the data set, where the run used them.
        figures: whether the drawings inside the page are drawn and compared too.
    """
    absent = [name for name in REPORT_NAMES if not (folder / name).is_file()]
    if len(absent) == len(REPORT_NAMES):
        return unknown("report", "the run has no report of its own")
    if absent:
        return failed("report", f"{', '.join(absent)} is missing")
    report = _built(folder, gsm8k_dir)
    own = {name: (folder / name).read_bytes() for name in REPORT_NAMES}
    why_not = report.examples.questions_unknown
    if why_not and not _recorded_as_unknown(own[JSON_NAME]):
        return unknown("report", f"the questions it shows cannot be had here: {why_not}")
    again = drawn_files(report) if figures else _undrawn(report)
    if not figures:
        own[HTML_NAME] = without_figures(own[HTML_NAME].decode()).encode()
    if wrong := [name for name in REPORT_NAMES if own[name] != again[name]]:
        return failed("report", f"{', '.join(wrong)}: not what the run's records give")
    extent = "every byte" if figures else "every byte but the drawings in the page"
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
    check = report_check(folder, options.gsm8k_dir, figures=True)
    lines: list[str] = []
    code = 0
    if (folder / JSON_NAME).exists():
        code = EXIT_CODES[check.outcome]
        lines.append(f"{check.outcome} {check.name}: {check.detail}")
    if options.out is not None or not (folder / HTML_NAME).exists():
        lines += _write(folder, options.out, options.gsm8k_dir)
    else:
        lines.append(f"open {options.run / HTML_NAME}")
    return code, lines


def _write(folder: Path, out: Path | None, gsm8k_dir: Path | None) -> list[str]:
    report = _built(folder, gsm8k_dir)
    target = DEFAULT_FOLDER / report.spec / report.run if out is None else out
    if target.resolve().is_relative_to(folder):
        raise UsageError(
            "a report is not written into a run: its files are evidence",
            expected="--out with a folder outside the run",
            found=str(target),
            fix="name another folder",
        )
    with stored(target):
        target.mkdir(parents=True, exist_ok=True)
        for name, data in drawn_files(report).items():
            write_beside(target / name, data, replace=True)
    status = read_result(folder / RESULT_NAME).status
    return [f"drawn of a run that is {status}: open {target / HTML_NAME}"]
