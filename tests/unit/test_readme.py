"""The README says what is so: gates, commands, options, exit codes, length."""

from __future__ import annotations

import re

from mini_project import ROOT

from harness.__main__ import COMMANDS
from harness.gates.catalog import markdown_table
from harness.session import exit_code

README = (ROOT / "README.md").read_text(encoding="utf-8")
RENEW = "python -c 'from harness.gates.catalog import *; print(*markdown_table(), sep=chr(10))'"


def test_the_gates_table_is_the_catalogue() -> None:
    table = "\n".join(markdown_table())
    assert table in README, f"the README's gates table is not current; renew it with: {RENEW}"


def test_every_command_it_names_exists_and_every_command_is_named() -> None:
    named = set(re.findall(r"python -m harness (\w+)", README))
    assert named == set(COMMANDS), f"README names {sorted(named)}, there are {sorted(COMMANDS)}"


def test_the_exit_codes_it_explains_are_the_ones_given() -> None:
    assert exit_code(0, blocked=True, undecided=True) == 10
    assert exit_code(0, blocked=False, undecided=True) == 11
    assert exit_code(1, blocked=True, undecided=True) == 1
    for code in ("| 10 |", "| 11 |"):
        assert code in README, f"the README does not explain exit code {code}"


def test_it_can_be_read_in_one_sitting() -> None:
    lines = README.count("\n")
    assert lines <= 150, f"{lines} lines, allowed 150"
