"""Fixtures that several unit-test files share."""

from __future__ import annotations

from pathlib import Path

import pytest
from complete_run import complete_run
from toy_qwen import toy_model, toy_service, wire

__all__ = ["toy_model", "toy_service", "wire"]


@pytest.fixture(scope="session")
def complete_original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small complete run, made once a session; copy it before changing it."""
    return complete_run(tmp_path_factory.mktemp("complete")).folder
