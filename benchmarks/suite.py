"""The offline suite's wall time, read from a log of it, and what the plugin adds to pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.measure import in_turns
from benchmarks.rows import Row

TESTS = [
    f"tests/unit/test_{name}.py" for name in ("intervals", "answers", "decision", "single_number")
]
_TOTAL = re.compile(r"\b(\d+) passed.* in ([\d.]+)s")
_SLOW = re.compile(r"^\s*([\d.]+)s (?:call|setup|teardown)\s+(\S+)", re.MULTILINE)
HOW = "run: python -m pytest --durations 10 > artifacts/suite.log"


def suite_time(log: Path) -> Row:
    """Read the suite's time and its slowest ten from a log of ``pytest --durations 10``."""
    name, against = "the whole offline pytest", "–"
    if not log.exists():
        return Row(name, against, None, "s", most=90.0, why=f"no log of it; {HOW}")
    text = log.read_text(errors="replace")
    total = _TOTAL.findall(text)
    if not total:
        return Row(name, against, None, "s", most=90.0, why=f"the log has no last line; {HOW}")
    passed, seconds = total[-1]
    slowest = [f"{test} {took} s" for took, test in _SLOW.findall(text)[:10]]
    return Row(
        name,
        against,
        float(seconds),
        "s",
        most=90.0,
        why=f"slowest: {', '.join(slowest) or 'not in the log'}",
        facts={"passed": int(passed), "slowest": slowest},
    )


def _pytest(*options: str) -> None:
    present = [test for test in TESTS if (ROOT / test).exists()]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *present],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ChildProcessError(f"pytest ended with {done.returncode}: {done.stdout[-800:]}")


def plugin_overhead(quick: bool) -> Row:
    """Measure the same tests with the plugin and without it."""
    chosen = ("-p", "pytester", "-m", "not live and not full and not slow")
    own = ("-o", "strict=false", "-o", "addopts=", "-o", "markers=slow\nlive\nfull")
    without = ("--noconftest", *own, *chosen)
    pairs = in_turns(_pytest, lambda: _pytest(*without), 2 if quick else 5)
    facts: dict[str, Any] = pairs.facts() | {"tests": TESTS}
    return Row(
        "pytest with the plugin",
        "pytest on the same tests without it (wall time)",
        facts["wall_s"]["ratio"],
        "x",
        most=1.05,
        why="a session begins by reading the spec and digesting every bound file once",
        facts=facts,
    )
