"""``python -m benchmarks``: measure, print the table and write ``artifacts/bench.json``.

``--quick`` takes fewer pairs and smaller sizes, for trying; its figures are not to be quoted.
``--only WORD`` measures the groups whose name holds the word. A group that cannot be measured says
why in its row; nothing is left out unsaid.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import (
    ROOT,
    advantages,
    arm_time,
    client_step,
    decoding,
    growth,
    records,
    skyrl,
    suite,
)
from benchmarks.planned import planned_run
from benchmarks.rows import Row, table
from benchmarks.train_step import train_step
from harness.errors import HarnessError
from harness.local_service.process import start_service
from harness.store import write_json_atomic

Group = Callable[[], list[Row]]


def groups(options: argparse.Namespace, folder: Path) -> dict[str, Group]:
    """Return what can be measured, by name, cheap ones first."""
    quick: bool = options.quick

    def live(measure: Callable[[Any], list[Row]]) -> Group:
        def with_service() -> list[Row]:
            data = Path(tempfile.mkdtemp(dir=folder))
            with start_service(data, base_model="embedded/gradeschool") as service:
                return measure(service)

        return with_service

    return {
        "advantages": lambda: [advantages.small(quick), *advantages.large(quick)],
        "decision": lambda: records.decision(folder, quick),
        "verify": lambda: [verification(options.run, quick)],
        "client step": lambda: client_step.client_step(quick),
        "sampling": live(lambda service: [decoding.sampling(service, quick)]),
        "train step": live(lambda service: [train_step(service, quick)]),
        "evaluation": live(
            lambda service: decoding.evaluation(service, planned_run(folder / "plan", 2), quick)
        ),
        "arm": live(lambda service: [arm_time.arm_time(service, folder, quick)]),
        "skyrl": lambda: [skyrl.recorded_row()],
        "suite": lambda: [suite.suite_time()],
        "plugin": lambda: [suite.plugin_overhead(quick)],
        "growth by prompts": lambda: growth.prompts(quick),
        "growth by steps": lambda: growth.steps(folder, quick),
        "growth by seeds": lambda: growth.seeds(folder, quick),
    }


def verification(run: Path, quick: bool) -> Row:
    """Measure ``verify``, where there is a run."""
    if not run.exists():
        why = "there is no run yet: make demo, or name one with --run"
        return Row("verify of a run", "–", None, "x", most=3.0, why=why)
    return records.verification(run.resolve(), quick)


def _measured(name: str, measure: Group) -> list[Row]:
    """Return a group's rows, or one that says why it could not be measured; the rest goes on."""
    try:
        return measure()
    except (HarnessError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        return [Row(name, "–", None, "", why=f"{type(error).__name__}: {reason}"[:1000])]


def main(argv: Sequence[str]) -> int:
    """Measure what is asked for; exit 0 whatever the figures say, for they are no test."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--run", type=Path, default=ROOT / "artifacts" / "runs/local/latest")
    parser.add_argument("--out", type=Path, default=ROOT / "artifacts" / "bench.json")
    options = parser.parse_args(argv)
    os.environ["TINKER_TELEMETRY"] = "0"
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, measure in groups(options, Path(folder)).items():
            if options.only in name:
                print(f"measuring {name} …", file=sys.stderr, flush=True)
                rows += _measured(name, measure)
    document = {
        "version": 1,
        "quick": options.quick,
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_at_start": load,
            "load_at_end": os.getloadavg()[0],
        },
        "rows": [row.to_json() for row in rows],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(options.out, document)
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
