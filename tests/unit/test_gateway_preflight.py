"""Every gate against a service behind a gateway, with the profile of the shared service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mini_project import ROOT, pinned_local, required_ids

from harness.local_service.process import start_service

pytestmark = [pytest.mark.live, pytest.mark.slow]

GATES = 19
"""All that the local spec requires; written down so that none can vanish."""


def preflight(folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run ``pytest -m preflight --service spindle`` on the local spec, records in ``folder``."""
    options = (
        f"--spec={pinned_local(folder)}",
        f"--artifacts={folder / 'artifacts'}",
        "-p",
        "no:cacheprovider",
    )
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "preflight", "--service", "spindle", *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_gates_pass_behind_the_gateway(tmp_path: Path) -> None:
    with start_service(tmp_path / "data", gateway="spindle") as service:
        ran = preflight(tmp_path, {**os.environ, **service.environment()})
        secrets = [service.api_key, *service.gateway.values()]
    assert ran.returncode == 0, f"exit {ran.returncode} instead of 0: {ran.stdout[-4000:]}"
    summary: dict[str, Any] = json.loads((tmp_path / "artifacts/last-session.json").read_text())
    outcomes = {gate_id: found["outcome"] for gate_id, found in summary["gates"].items()}
    assert outcomes == dict.fromkeys(required_ids(), "pass")
    assert len(outcomes) == GATES
    named = [part for part in secrets if part in ran.stdout + ran.stderr]
    assert named == [], f"{len(named)} of the gateway's secrets were printed"


def test_the_forks_tokens_do_not_open_it(tmp_path: Path) -> None:
    with start_service(tmp_path / "data", gateway="fork") as fork:
        tokens = list(fork.gateway.values())
        names = ("MODAL_PROXY_TOKEN_ID", "MODAL_PROXY_TOKEN_SECRET")
        wrong = dict(zip(names, ("wk-another", "ws-another"), strict=True))
        ran = preflight(tmp_path, {**os.environ, **fork.environment(), **wrong})
    assert ran.returncode != 0
    summary: dict[str, Any] = json.loads((tmp_path / "artifacts/last-session.json").read_text())
    passed = [name for name, gate in summary["gates"].items() if gate["outcome"] == "pass"]
    offline = [name for name, gate in summary["gates"].items() if not gate["live"]]
    assert sorted(passed) == sorted(offline), "no live gate can pass behind another's gateway"
    assert "correct the service's key and tokens" in ran.stdout, ran.stdout[-3000:]
    assert not [token for token in tokens if token in ran.stdout + ran.stderr]
