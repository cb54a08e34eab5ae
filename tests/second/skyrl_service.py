"""Starts SkyRL's Tinker API, as its authors ship it, on loopback with the embedded model's weights.

SkyRL wants a Python of its own, which ``SKYRL_PYTHON`` names (docs/services.md). Its API server
starts its engine by ``uv run`` and reads the flags from its parent's command line, so the parent is
a stand-in called ``uv`` that runs the same Python. The model's name is a path relative to the
server's folder, so that one spec names it on both services.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.local_service.tokenizer import MODEL_DIR

VARIABLE = "SKYRL_PYTHON"
MODEL = "embedded/gradeschool"
API_KEY = "tml-anything"
START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 20.0
READY = "Starting background engine"
ENGINE = {"max_lora_adapters": 64, "max_lora_rank": 8}
"""Adapters stay loaded while their session lives, and a session of gates makes about fifty."""

UV = """#!{python}
import subprocess
import sys

sys.exit(subprocess.call([sys.executable, *sys.argv[sys.argv.index("-m") :]]))
"""
VERSIONS = """
import json, platform
from importlib.metadata import version
names = ("skyrl", "jax", "flax", "optax", "transformers")
print(json.dumps({"python": platform.python_version(), **{n: version(n) for n in names}}))
"""


@dataclass(frozen=True)
class SkyRL:
    """A running server.

    Attributes:
        base_url: its address.
        log_path: what it says.
        versions: of SkyRL's Python and packages.
    """

    base_url: str
    log_path: Path
    versions: dict[str, str]

    def environment(self) -> dict[str, str]:
        """Return the variables of ``--service url``."""
        return {"TINKER_BASE_URL": self.base_url, "TINKER_API_KEY": API_KEY}


def missing_skyrl() -> str:
    """Return why SkyRL cannot be started here; an empty text when it can."""
    python = os.environ.get(VARIABLE, "")
    if not python:
        return f"{VARIABLE} does not name a Python with SkyRL (docs/services.md)"
    asked = "import skyrl.tinker.api"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip().splitlines() or ["no word"])[-1]
    return f"the Python of {VARIABLE} cannot import SkyRL's API: {said}"


@contextmanager
def skyrl_service(folder: Path) -> Iterator[SkyRL]:
    """Run the server until the block ends; only the processes started here are ended.

    Args:
        folder: where model, checkpoints, data base and log go.

    Raises:
        ChildProcessError: when it does not come up.
    """
    python = os.environ[VARIABLE]
    _write_model(folder / MODEL)
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    uv = bin_folder / "uv"
    uv.write_text(UV.format(python=python))
    uv.chmod(0o755)
    port = _free_port()
    server = SkyRL(f"http://127.0.0.1:{port}", folder / "server.log", _versions(python))
    variables = {
        **os.environ,
        "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "JAX_PLATFORMS": "cpu",
        "OMP_NUM_THREADS": "1",
    }
    options = {
        "--host": "127.0.0.1",
        "--port": str(port),
        "--base-model": MODEL,
        "--backend": "jax",
        "--backend-config": json.dumps(ENGINE),
        "--checkpoints-base": str(folder / "checkpoints"),
        "--database-url": f"sqlite:///{folder / 'tinker.db'}",
    }
    flags = [part for pair in options.items() for part in pair]
    with server.log_path.open("wb") as log:
        process = subprocess.Popen(
            [python, str(uv), "run", "--", "-m", "skyrl.tinker.api", *flags],
            cwd=folder,
            env=variables,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_ready(server, process)
        yield server
    finally:
        _end(process)


def _write_model(folder: Path) -> None:
    """Copy the shipped model; SkyRL finds the network's class by ``architectures``."""
    shutil.copytree(MODEL_DIR, folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["Qwen3ForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _versions(python: str) -> dict[str, str]:
    done = subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _wait_ready(server: SkyRL, process: subprocess.Popen[bytes]) -> None:
    """Wait for the engine, which starts after the API answers."""
    until_s = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < until_s:
        if READY in server.log_path.read_text(errors="replace") and _answers(server.base_url):
            return
        time.sleep(0.5)
    tail = server.log_path.read_text(errors="replace")[-1500:]
    raise ChildProcessError(f"SkyRL did not come up (exit code {process.poll()}): {tail}")


def _answers(base_url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base_url}/api/v1/healthz", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the stand-in, the server and its engine: the process group that was started here."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
    # The group may outlive its first process by a moment; the last signal was sent to all of it.
