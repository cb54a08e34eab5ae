"""The offline suite's wall time, and what the plugin adds to pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.measure import in_turns
from benchmarks.rows import Row

TESTS = [
    f"tests/unit/test_{name}.py" for name in ("intervals", "answers", "decision", "single_number")
]
_TOTAL = re.compile(r"\b(\d+) passed.* in [\d.]+s")
_SLOW = re.compile(r"^\s*([\d.]+)s (?:call|setup|teardown)\s+(\S+)", re.MULTILINE)
_SUITE = ("pytest", "-p", "no:cacheprovider", "--durations", "30")


def suite_time() -> Row:
    """Run the whole offline suite once and name its slowest ten tests.

    The time is the wall's, pytest's own start included: what a person waits for. One run, because
    it takes minutes: it is a figure to see a trend by, not a ratio of neighbours.
    """
    with tempfile.TemporaryDirectory() as folder:
        started_s = time.perf_counter()
        text = _offline_suite(Path(folder))
        wall_s = time.perf_counter() - started_s
    ten = [(test, float(seconds)) for seconds, test in _SLOW.findall(text)[:10]]
    return Row(
        "the whole offline pytest",
        "– (wall time of one process, one run)",
        wall_s,
        "s",
        most=90.0,
        why="most of it is pytest sessions of their own, which tests of the plugin start",
        note=f"slowest ten: {', '.join(f'{test} {seconds:.1f} s' for test, seconds in ten)}",
        facts={
            "passed": int(_TOTAL.findall(text)[-1]),
            "wall_s": wall_s,
            "slowest": dict(ten),
        },
    )


def _offline_suite(artifacts: Path) -> str:
    done = subprocess.run(
        # With "=": pytest would take a folder that stands alone for its root.
        [sys.executable, "-m", *_SUITE, f"--artifacts={artifacts}"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if not _TOTAL.search(done.stdout):
        said = done.stdout[-800:] + done.stderr[-800:]
        raise ChildProcessError(f"pytest ended with {done.returncode}: {said}")
    if done.returncode != 0:
        raise ChildProcessError(f"the suite fails, so its time says nothing: {done.stdout[-800:]}")
    return done.stdout


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
    """Measure the same tests with the plugin and without it; no conftest's imports in either."""
    chosen = ("--noconftest", "-p", "pytester", "-m", "not live and not full and not slow")
    own = ("-o", "strict=false", "-o", "addopts=", "-o", "markers=slow\nlive\nfull")
    pairs = in_turns(
        lambda: _pytest("-p", "harness.plugin", *chosen),
        lambda: _pytest(*own, *chosen),
        2 if quick else 5,
    )
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
