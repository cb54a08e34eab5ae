"""The plugin's command line: the experiment's options, and what they ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.service_profiles import PROFILES
from harness.session_options import DEFAULT_SPEC, Options
from harness.step_mirror import OWN_VARIABLES


def add_options(parser: pytest.Parser) -> None:
    """Add the experiment's options, in a group of their own."""
    group = parser.getgroup("rl comparison", "paired RL comparisons")
    group.addoption(
        "--spec",
        metavar="PATH",
        default=DEFAULT_SPEC,
        help=f"experiment spec (default: {DEFAULT_SPEC})",
    )
    group.addoption(
        "--service", metavar="NAME", help=f"{', '.join(PROFILES)} (default: the spec's own)"
    )
    group.addoption(
        "--arm",
        metavar="ARM",
        action="append",
        default=[],
        help="only this arm, by name or advantage mode; may be repeated (default: all)",
    )
    group.addoption(
        "--artifacts",
        metavar="DIR",
        default="artifacts",
        help="where records go (default: artifacts)",
    )
    group.addoption("--gsm8k-dir", metavar="DIR", help="folder with train.jsonl and test.jsonl")
    group.addoption(
        "--parallel",
        metavar="N",
        type=int,
        default=1,
        help="arms that train at once, for a service that can take it (default: 1)",
    )
    group.addoption("--fresh", action="store_true", help="start a new run, finished or not")
    group.addoption(
        "--mirror",
        choices=sorted(OWN_VARIABLES),
        help="copy each training step to this tracker, if it is installed; decides nothing",
    )


def options_of(config: pytest.Config) -> Options:
    """Return what the command line asks for; paths are read from where it was typed."""
    return Options(
        root=config.rootpath,
        spec_path=_from(config, config.option.spec),
        service=config.option.service,
        arms=tuple(config.option.arm),
        artifacts=_from(config, config.option.artifacts),
        gsm8k_dir=_from(config, config.option.gsm8k_dir) if config.option.gsm8k_dir else None,
        fresh=config.option.fresh,
        parallel=config.option.parallel,
        mirror=config.option.mirror,
    )


def _from(config: pytest.Config, path: str) -> Path:
    return config.invocation_params.dir / path
