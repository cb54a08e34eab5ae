"""The process of a mirror: steps from standard input into a tracker.

Run as ``python -m harness.mirror_process KIND PROJECT GROUP RUN``. Each line is an object with
``step`` and ``numbers``; the end of the input ends the tracker's run. The tracker is told to record
nothing else: no code, no console, no machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from harness.digest import parse_json

Log = Callable[[Mapping[str, float], int], object]
Close = Callable[[], object]


def open_trackio(project: str, group: str, name: str) -> tuple[Log, Close]:
    """Start a run of trackio: local unless its own variables say otherwise."""
    import trackio  # pyright: ignore[reportMissingImports] - an optional package

    run = trackio.init(
        project=project,
        group=group,
        name=name,
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    return (lambda numbers, step: run.log(metrics=dict(numbers), step=step)), run.finish


def open_mlflow(project: str, group: str, name: str) -> tuple[Log, Close]:
    """Start a run of MLflow at ``MLFLOW_TRACKING_URI``, by default in the mirror's folder."""
    import mlflow  # pyright: ignore[reportMissingImports] - an optional package

    mlflow.set_experiment(project)
    mlflow.start_run(run_name=name, tags={"group": group}, log_system_metrics=False)
    return (lambda numbers, step: mlflow.log_metrics(dict(numbers), step=step)), mlflow.end_run


def open_wandb(project: str, group: str, name: str) -> tuple[Log, Close]:
    """Start a run of W&B; with ``WANDB_MODE=offline`` it stays in the mirror's folder."""
    import wandb  # pyright: ignore[reportMissingImports] - an optional package

    settings = wandb.Settings(
        console="off", disable_code=True, disable_git=True, save_code=False, silent=True
    )
    run = wandb.init(project=project, group=group, name=name, settings=settings)
    return (lambda numbers, step: run.log(dict(numbers), step=step)), run.finish


TRACKERS: dict[str, Callable[[str, str, str], tuple[Log, Close]]] = {
    "trackio": open_trackio,
    "mlflow": open_mlflow,
    "wandb": open_wandb,
}


def main(argv: Sequence[str]) -> int:
    """Copy every line into the tracker until the input ends."""
    kind, project, group, name = argv
    log, close = TRACKERS[kind](project, group, name)
    for line in sys.stdin.buffer:
        if line.endswith(b"\n"):
            row = parse_json(line, where="standard input")
            log(row["numbers"], row["step"])
    close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
