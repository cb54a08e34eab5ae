"""Seconds of one RL iteration on SkyRL's CPU backend and on the embedded service: once, by hand.

``SKYRL_PYTHON=… python -m benchmarks.skyrl`` writes ``benchmarks/skyrl.json``. Both services train
the grpo arm of ``specs/local.json`` through the unpatched stock loop, one after the other, on the
same weights. SkyRL stands behind the adapter of ``tests/second`` for the SDK's generation, and
compiles every new shape, so the first iterations are left out on both.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.arm_time import run_module
from benchmarks.planned import planned_run
from benchmarks.rows import Row
from harness.closing_client import ClosingClient
from harness.fault_proxy import fault_proxy
from harness.local_service.process import start_service
from harness.service import create_initial_state
from harness.store import write_json_atomic
from tests.second.generation_adapter import GenerationAdapter
from tests.second.skyrl_service import missing_skyrl, skyrl_service

RECORD = ROOT / "benchmarks" / "skyrl.json"
STEPS = 12
LEFT_OUT = 6
"""Iterations in which SkyRL still compiles: later ones meet few new shapes, and their median
none."""
METHOD = (
    f"median of iterations {LEFT_OUT + 1} to {STEPS} (the cookbook's time/total: sampling 64"
    " rollouts of at most 80 tokens, grading, one update) of specs/local.json's grpo arm through"
    " the unpatched stock loop; one run a service, one after the other, each with one thread a"
    " process; SkyRL behind tests/second/generation_adapter.py"
)


def iteration_seconds(environment: Mapping[str, str], folder: Path) -> list[float]:
    """Train the grpo arm on a service and return the seconds of each iteration.

    Args:
        environment: TINKER_BASE_URL and TINKER_API_KEY.
        folder: where the run goes.
    """
    run = planned_run(folder, STEPS)
    address, key = environment["TINKER_BASE_URL"], environment["TINKER_API_KEY"]
    with ClosingClient(base_url=address, api_key=key) as client:
        state = create_initial_state(
            client, run.spec, seed=0, name=folder.name, folder=run.initial_adapter(0)
        )
    write_json_atomic(run.initial_path(0), state.to_json())
    name = next(arm.name for arm in run.spec.arms if arm.advantage_mode == "grpo")
    log = folder / "stock"
    run_module(["benchmarks.arm_time", str(run.folder), name, str(log)], environment)
    rows = [json.loads(line) for line in (log / "metrics.jsonl").read_text().splitlines()]
    return [float(row["time/total"]) for row in rows if "time/total" in row]


def measure(folder: Path) -> dict[str, Any]:
    """Return the record: both services' figures, or why SkyRL has none."""
    record: dict[str, Any] = {
        "unit": "seconds an RL iteration",
        "method": METHOD,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: version(name) for name in ("tinker", "tinker-cookbook", "torch")},
    }
    with start_service(folder / "embedded", base_model="embedded/gradeschool") as service:
        own = iteration_seconds(service.environment(), folder / "on-embedded")
    record["embedded"] = _figures(own)
    if reason := missing_skyrl():
        return {"value": None, "reason": reason, **record}
    with skyrl_service(folder / "skyrl") as skyrl, fault_proxy(skyrl.base_url) as proxy:
        GenerationAdapter(proxy, rank=8)
        record["versions"] |= {f"skyrl's {name}": found for name, found in skyrl.versions.items()}
        environment = {**skyrl.environment(), "TINKER_BASE_URL": proxy.base_url}
        try:
            theirs = iteration_seconds(environment, folder / "on-skyrl")
        except ChildProcessError as error:
            return {"value": None, "reason": " ".join(str(error).split())[-400:], **record}
    figures = _figures(theirs)
    return {"value": figures["value"], **record, "skyrl": figures}


def _figures(seconds: list[float]) -> dict[str, Any]:
    return {
        "value": round(statistics.median(seconds[LEFT_OUT:]), 3),
        "iterations": [round(one, 3) for one in seconds],
    }


def recorded_row() -> Row:
    """Return the benchmark's row from the record of the one measurement."""
    record = json.loads(RECORD.read_text())
    theirs = record["value"]
    return Row(
        "one RL iteration of the grpo arm (recorded, not measured now)",
        f"SkyRL's CPU backend, {record['date']}",
        None if theirs is None else record["embedded"]["value"] / theirs,
        "x",
        most=1.0,
        why=record.get("reason", ""),
        facts=record,
    )


def main(make: Callable[[Path], dict[str, Any]] = measure) -> int:
    """Measure once and write the record."""
    warnings.simplefilter("ignore", FutureWarning)
    with tempfile.TemporaryDirectory() as folder:
        record = make(Path(folder))
    write_json_atomic(RECORD, record)
    print(json.dumps(record, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
