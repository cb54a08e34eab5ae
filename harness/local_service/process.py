"""The parent's side: start the service as a process of its own, know when it is up, stop it.

with start_service(data_dir) as service:
    os.environ.update(service.environment())
"""

from __future__ import annotations

import os
import queue
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from harness.command_line import command_parser
from harness.digest import parse_json
from harness.errors import DocumentError, ServiceError
from harness.local_service.gateway import GATEWAY_VARIABLE, draw_tokens
from harness.secrets_out import add_secret
from harness.service_profiles import PROFILES

STOP_TIMEOUT_S = 10.0
_LOG_TAIL_BYTES = 2000
GATED = [name for name, profile in PROFILES.items() if profile.headers]
_ROOT = Path(__file__).resolve().parents[2]


class EmbeddedService:
    """A running service.

    Attributes:
        base_url, pid, base_model: where it listens, its process, the model's name.
        identity: everything it announced (model digest, dtype, protocol …); no secret in it.
        api_key: this start's key; never write it anywhere.
        gateway: variables of this start's gateway tokens; never write their values anywhere.
        profile: whose gateway it stands behind, None without one.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        identity: dict[str, Any],
        api_key: str,
        log_path: Path,
        gateway: Mapping[str, str] | None = None,
        profile: str | None = None,
    ) -> None:
        self._process = process
        self.profile = profile
        self.gateway = dict(gateway or {})
        for name, value in self.gateway.items():
            add_secret(name, value)
        self.identity = identity
        self.api_key = api_key
        add_secret("TINKER_API_KEY", api_key)
        self.log_path = log_path
        self.base_url: str = identity["base_url"]
        self.pid: int = process.pid
        self.base_model: str = identity["base_model"]

    def __repr__(self) -> str:
        return f"EmbeddedService(base_url={self.base_url!r}, pid={self.pid})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process.poll() is None

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until the process ends by itself; return its exit code.

        Raises:
            ServiceError: if it still runs after ``timeout_s``.
        """
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ServiceError(
                "the embedded service has not ended by itself",
                expected=f"an exit within {timeout_s:g} s",
                found=f"process {self.pid} still runs",
            ) from error

    def close_pipe(self) -> None:
        """Close the child's stdin, as the system does when this process dies."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def environment(self) -> dict[str, str]:
        """Return the variables that point a Tinker client at this service."""
        return {
            "TINKER_BASE_URL": self.base_url,
            "TINKER_API_KEY": self.api_key,
            "TINKER_TELEMETRY": "0",
            **self.gateway,
        }

    def stop(self) -> None:
        """End the process: closing its stdin asks it to, then terminate, then kill."""
        end_process(self._process)


def start_service(
    data_dir: Path,
    *,
    dtype: str = "float32",
    seed: int = 0,
    model_dir: Path | None = None,
    base_model: str | None = None,
    log_path: Path | None = None,
    timeout_s: float = 120,
    module: str = "harness.local_service",
    gateway: str | None = None,
) -> EmbeddedService:
    """Start a service and wait until it listens.

    Args:
        data_dir: where checkpoints are kept; a restart with the same folder finds them again.
        dtype: "float32" or "float64".
        seed: feeds sampling requests that bring no seed.
        model_dir: Hugging Face folder of the base model; default the shipped one.
        base_model: the name to serve it under.
        log_path: where its stderr goes; default ``service.log`` in the data folder.
        timeout_s: how long it may take to listen.
        module: what to run; tests run modified services by their own module.
        gateway: profile whose headers every request must carry, with tokens drawn now.

    Raises:
        ServiceError: if it does not come up, with the tail of its log.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    log_path = log_path or data_dir / "service.log"
    options: dict[str, object] = {"--data-dir": data_dir, "--dtype": dtype, "--seed": seed}
    if model_dir is not None:
        options["--model-dir"] = model_dir
    if base_model is not None:
        options["--base-model"] = base_model
    arguments = [str(part) for option in options.items() for part in option]
    api_key = f"tml-{secrets.token_urlsafe(32)}"
    variables, tokens = draw_tokens(gateway) if gateway else ({}, "")
    secret = {"HARNESS_SERVICE_KEY": api_key, GATEWAY_VARIABLE: tokens}
    process = _spawn([sys.executable, "-m", module, *arguments], secret, log_path)
    try:
        identity = _announced(process, log_path, timeout_s)
    except BaseException:
        end_process(process)
        raise
    return EmbeddedService(process, identity, api_key, log_path, variables, gateway)


def _spawn(
    command: list[str], secret: Mapping[str, str], log_path: Path
) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {
        **secret,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
    }
    with log_path.open("ab") as log:
        return subprocess.Popen(
            [*command, "--exit-with-parent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            # Ctrl-C belongs to the parent, which stops the service in order.
            start_new_session=True,
        )


def _announced(
    process: subprocess.Popen[bytes], log_path: Path, timeout_s: float
) -> dict[str, Any]:
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    stdout = process.stdout
    if stdout is None:
        raise ServiceError("the service's standard output is not connected")
    threading.Thread(target=_forward_lines, args=(stdout, lines), daemon=True).start()
    try:
        line = lines.get(timeout=timeout_s)
        return parse_json(line, where="the service's first line")
    except (queue.Empty, DocumentError) as error:
        end_process(process)
        raise ServiceError(
            "the embedded service did not start",
            expected=f"one line of JSON within {timeout_s:g} s",
            found=f"exit code {process.returncode}; its log ends: {_log_tail(log_path)}",
            where=str(log_path),
        ) from error


def _forward_lines(stream: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    """Pass lines on until the stream ends; draining it keeps the child from blocking."""
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(b"")


def _log_tail(path: Path) -> str:
    data = path.read_bytes() if path.is_file() else b""
    return data[-_LOG_TAIL_BYTES:].decode("utf-8", "replace").strip() or "(empty)"


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a child started here; returns when it is gone."""
    if process.stdin is not None:
        process.stdin.close()
    for end in (lambda: None, process.terminate, process.kill):
        end()
        try:
            process.wait(timeout=STOP_TIMEOUT_S / 2)
        except subprocess.TimeoutExpired:
            continue
        return


def serve_by_hand(argv: Sequence[str]) -> int:
    """``python -m harness serve``: start, say how to point a client here, stay until Ctrl-C."""
    parser = command_parser("serve", serve_by_hand.__doc__)
    parser.add_argument(
        "--data-dir", type=Path, default=Path("artifacts/service"), help="checkpoints and log"
    )
    parser.add_argument(
        "--dtype", choices=["float32", "float64"], default="float32", help="arithmetic of training"
    )
    parser.add_argument("--seed", type=int, default=0, help="feeds sampling that brings no seed")
    parser.add_argument("--model-dir", type=Path, help="Hugging Face folder (default: shipped)")
    parser.add_argument("--base-model", help="name to serve it as (default: its own)")
    parser.add_argument("--gateway", choices=GATED, help="demand this profile's headers")
    options = vars(parser.parse_args(list(argv)))
    with start_service(options.pop("data_dir"), **options) as service:
        sys.stdout.write(instructions(service))
        sys.stdout.flush()
        try:
            code = service.wait()
        except KeyboardInterrupt:
            return 0
    return code


def instructions(service: EmbeddedService) -> str:
    """Return what a person needs to use the service from another terminal."""
    profile = service.profile or "url"
    exports = "".join(f"export {key}={value}\n" for key, value in service.environment().items())
    return (
        f"{exports}"
        f"# serving {service.base_model} ({service.identity['dtype']}), log: {service.log_path}\n"
        "# Paste the lines above into another terminal, then for example:\n"
        f"#   pytest -m preflight --service {profile}  or any program that uses the tinker SDK\n"
        "# Its tokenizer is on no hub: harness.local_service.tokenizer.load_tokenizer()\n"
        "# Ctrl-C stops the service; checkpoints stay on disk.\n"
    )
