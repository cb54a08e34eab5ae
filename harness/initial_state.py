"""The adapter that all arms of a seed start from, created in a process of its own.

``python -m harness.initial_state RUN SEED`` writes the seed's ``initial.json`` and its downloaded
adapter (contract §3). A process of its own, so that it is watched as every stage is: the SDK waits
out a bill (402) for an hour and asks a dead service for five minutes. The service's address and key
come from the environment, as for any SDK program.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from harness.plan import PlannedRun
from harness.service import create_initial_state, sdk_client
from harness.stage_process import do_stage, run_stage_main
from harness.store import write_json_atomic


def make_initial_state(run: PlannedRun, seed: int) -> None:
    """Create, save and download a seed's adapter, and record it when all of that is done.

    Args:
        run: the plan.
        seed: one of the decision rule's.

    Raises:
        ServiceError: when the service exports no adapter.
    """
    path = run.initial_path(seed)
    name = f"{path.stem}-{run.folder.name}"
    with sdk_client() as client:
        state = create_initial_state(client, run.spec, seed, name, run.initial_adapter(seed))
    write_json_atomic(path, state.to_json())


def main(argv: Sequence[str]) -> int:
    """Run ``python -m harness.initial_state RUN SEED [--gsm8k-dir DIR]``; exit 0 on success."""
    return do_stage("harness.initial_state", argv, int, make_initial_state)


if __name__ == "__main__":
    sys.exit(run_stage_main(main, sys.argv[1:]))
