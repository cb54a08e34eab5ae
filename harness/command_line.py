"""What every ``python -m harness`` command shares: how its options are read and lines printed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, but not those that say nothing: None, and a switch that is off."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


def command_parser(name: str, about: str | None) -> argparse.ArgumentParser:
    """Return the parser of one command; its help shows every default."""
    return argparse.ArgumentParser(
        prog=f"python -m harness {name}", description=about, formatter_class=_Formatter
    )


def add_artifacts(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where records are, as pytest's own of that name."""
    parser.add_argument(
        "--artifacts", type=Path, metavar="DIR", default=Path("artifacts"), help="where records are"
    )


def print_lines(*lines: str) -> None:
    """Write lines to standard output."""
    for line in lines:
        sys.stdout.write(line + "\n")


def print_json(document: Any) -> None:
    """Write one strict JSON document, indented, to standard output."""
    print_lines(json.dumps(document, indent=2, allow_nan=False))
