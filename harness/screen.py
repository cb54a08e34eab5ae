"""The terminal of a pytest session: lines that appear at once, through capture and redactor."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from harness.secrets_out import without_secrets
from harness.step_line import SeenStep, coloured_line, plain_line


class Screen:
    """Writes lines while tests run and their output is captured.

    Args:
        config: the session's; its terminal reporter is asked for each time, as ``-p no:terminal``
            leaves none.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def line(self, text: str) -> None:
        """Write one message."""
        clean = without_secrets(text)
        self._write(lambda terminal: terminal.write_line(clean))

    def step(self, step: SeenStep) -> None:
        """Write one training step: with bar and colour where the terminal shows them."""
        plain = without_secrets(plain_line(step))
        columns = shutil.get_terminal_size().columns

        def write(terminal: Any) -> None:
            if terminal.isatty and terminal.hasmarkup:
                terminal.write_raw(coloured_line(step, columns) + "\n", flush=True)
            else:
                terminal.write_line(plain)

        self._write(write)

    def _write(self, write: Callable[[Any], None]) -> None:
        terminal: Any = self.config.pluginmanager.getplugin("terminalreporter")
        capture: Any = self.config.pluginmanager.getplugin("capturemanager")
        if terminal is None:
            return
        with capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            write(terminal)
