"""Commands that plan, watch, compare and check; like those of ``harness.__main__``, thin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.command_line import command_parser, print_json, print_lines
from harness.session import DEFAULT_SPEC, PACKAGE_ROOT, HarnessSession, Options


def plan_command(argv: Sequence[str]) -> int:
    """Say what a run of SPEC can show, what it uses and how long it takes; contacts no service."""
    from harness.plan_report import plan_document, plan_lines
    from harness.plan_sources import dry_table, projected_time, source_lines

    parser = command_parser("plan", plan_command.__doc__)
    parser.add_argument("spec", type=Path, help="experiment spec")
    parser.add_argument("--gsm8k-dir", type=Path, help="folder with train.jsonl and test.jsonl")
    parser.add_argument("--artifacts", type=Path, default=Path("artifacts"), help="where records go")
    parser.add_argument("--seed", type=int, default=0, help="seed of what is simulated")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")
    options = parser.parse_args(argv)
    session = quiet_session(options.spec, options.artifacts, options.gsm8k_dir)
    document = plan_document(session.loaded, options.seed)
    activation = dry_table(session.loaded.spec, options.gsm8k_dir)
    time = projected_time(session)
    if options.json:
        print_json({**document, "activation": activation, "projected_time": time})
    else:
        simulation = f"simulated with seed {options.seed} where marked *"
        print_lines(*plan_lines(document), *source_lines(activation, time), "", simulation)
    return 0


def quiet_session(spec: Path, artifacts: Path, gsm8k_dir: Path | None = None) -> HarnessSession:
    """Return a session that reads files only: nothing in it starts or contacts a service."""
    return HarnessSession(
        Options(PACKAGE_ROOT, spec.absolute(), artifacts=artifacts, gsm8k_dir=gsm8k_dir)
    )


MORE_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {"plan": plan_command}
