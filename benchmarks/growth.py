"""How cost grows with prompts, with steps of records, and with arms or seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import small_run
from complete_run import complete_run, write_training
from small_run import plan_run, small_spec_json

from benchmarks.advantages import batch_of
from benchmarks.measure import exponent, peak_bytes, timed
from benchmarks.rows import Row
from harness.advantages import compute
from harness.arm import arm_folder, read_done
from harness.attempts import arm_rollouts, arm_steps
from harness.verify import verify_run

MIB = 2**20


def _rows(
    what: str, unit: str, sizes: Sequence[int], work: Callable[[int], Callable[[], Any]]
) -> list[Row]:
    """Measure time and memory at each size and fit both exponents."""
    seconds: list[float] = []
    peaks: list[float] = []
    for size in sizes:
        one = work(size)
        one()
        seconds.append(statistics.median(timed(one).cpu_s for _ in range(5)))
        peaks.append(peak_bytes(one) / MIB)
    facts = {unit: list(sizes), "cpu_s": seconds, "peak_mib": peaks}
    return [
        Row(f"{what}: time grows as {unit}^b, b", _listed(sizes, seconds, "s"),
            exponent(sizes, seconds), "", facts=facts),
        Row(f"{what}: memory grows as {unit}^b, b", _listed(sizes, peaks, "MiB"),
            exponent(sizes, peaks), "", facts=facts),
    ]  # fmt: skip


def _listed(sizes: Sequence[int], costs: Sequence[float], unit: str) -> str:
    return ", ".join(f"{size}: {cost:.3g} {unit}" for size, cost in zip(sizes, costs, strict=True))


def prompts(quick: bool) -> list[Row]:
    """Measure gs1 advantages at growing batches."""
    sizes = (64, 256, 1024) if quick else (64, 256, 1024, 4096, 16_384)

    def work(size: int) -> Callable[[], Any]:
        batch, params = batch_of(size)
        return lambda: compute("gs1", batch, params)

    return _rows("gs1 advantages", "prompts", sizes, work)


def steps(folder: Path, quick: bool) -> list[Row]:
    """Measure reading an arm's whole record back: steps and rollouts, 4 rollouts a step."""
    sizes = (10, 100) if quick else (10, 100, 1000)

    def work(size: int) -> Callable[[], Any]:
        raw = small_spec_json()
        raw["steps"] = size
        raw["dataset"]["n_examples"] = rows = 4 * size
        for arm in raw["arms"]:
            arm["steps"] = size
        place = folder / f"steps-{size}"
        place.mkdir()
        with patch.object(small_run, "TRAIN_ROWS", rows):
            run = plan_run(place, raw)
        arm = run.spec.arms[0]
        write_training_of(run, arm)
        done = read_done(run.folder, arm.name) or {}
        arm_path = arm_folder(run.folder, arm.name)

        def read() -> None:
            if len(arm_steps(arm_path, done)) * 4 != len(arm_rollouts(arm_path, done)):
                raise ValueError("the benchmark's own records are not whole")

        return read

    return _rows("reading an arm's record", "steps", sizes, work)


def write_training_of(run: Any, arm: Any) -> None:
    """Write an arm's record; its folders must be there."""
    (arm_folder(run.folder, arm.name) / "attempt-01").mkdir(parents=True)
    write_training(run, arm)


def seeds(folder: Path, quick: bool) -> list[Row]:
    """Measure ``verify`` of complete runs of two arms with more and more seeds."""
    sizes = (1, 2) if quick else (1, 4, 16)

    def work(size: int) -> Callable[[], Any]:
        raw = small_spec_json()
        raw["decision_rule"]["seeds"] = list(range(size))
        place = folder / f"seeds-{size}"
        place.mkdir()
        run = complete_run(place, raw)
        return lambda: verify_run(run.folder, place / "rows")

    return _rows("verify of a run", "seeds", sizes, work)
