"""``python -m harness.local_service``: run the service in this process until told to stop.

One line of JSON on stdout says where it listens and what it is; the API key is never printed. It
comes from HARNESS_SERVICE_KEY, and is drawn when that is not set (the service is then of no use
to anyone, except to show that it starts).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import secrets
import signal
import sys
import threading
from pathlib import Path

import torch
from aiohttp import web

from harness.errors import HarnessError, UsageError
from harness.local_service import base_model
from harness.local_service.app import build_runner
from harness.local_service.gateway import GATEWAY_VARIABLE, parse_tokens
from harness.local_service.gguf_model import SUFFIX, load_gguf_model
from harness.local_service.service import Service, Settings
from harness.local_service.session_routes import identity
from harness.output_guard import guard_output

KEY_VARIABLE = "HARNESS_SERVICE_KEY"
MODEL_DIR = Path(__file__).parent / "model"


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m harness.local_service", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="checkpoints are kept here")
    parser.add_argument("--host", default="127.0.0.1", help="a loopback address")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free port")
    parser.add_argument("--dtype", choices=sorted(base_model.DTYPES), default="float32")
    parser.add_argument("--seed", type=int, default=0, help="feeds sampling that brings no seed")
    parser.add_argument("--model-dir", type=Path, default=MODEL_DIR, help="HF folder or .gguf")
    parser.add_argument("--base-model", default=base_model.DEFAULT_NAME, help="name to serve it as")
    parser.add_argument("--exit-with-parent", action="store_true", help="stop at end of stdin")
    return parser.parse_args(argv)


def check_loopback(host: str) -> str:
    """Return the address if it is a loopback one.

    Raises:
        UsageError: otherwise. The service has no transport security and belongs on one machine.
    """
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return host
    raise UsageError(
        "the service listens on loopback only",
        expected="127.0.0.1 or ::1",
        found=host,
        where="--host",
    )


async def serve(options: argparse.Namespace) -> None:
    """Load the model, listen, announce, and wait for the end."""
    load = load_gguf_model if options.model_dir.suffix == SUFFIX else base_model.load_base_model
    base = load(options.model_dir, name=options.base_model, dtype_name=options.dtype)
    key = os.environ.get(KEY_VARIABLE) or f"tml-{secrets.token_urlsafe(32)}"
    gateway = parse_tokens(os.environ.get(GATEWAY_VARIABLE))
    service = Service(Settings(options.data_dir, key, options.seed, gateway), base)
    service.engine.start()
    runner = build_runner(service)
    await runner.setup()
    try:
        site = web.TCPSite(runner, check_loopback(options.host), options.port)
        await site.start()
        announce(service, str(site.name), runner.addresses[0][1])
        await _stopped(options.exit_with_parent)
    finally:
        await runner.cleanup()
        service.engine.stop()


def announce(service: Service, site: str, port: int) -> None:
    """Print the one line that a parent process waits for."""
    host = site.removeprefix("http://").rsplit(":", 1)[0]
    line = {"base_url": f"http://{host}:{port}", "pid": os.getpid(), **identity(service)}
    sys.stdout.write(json.dumps(line, allow_nan=False) + "\n")
    sys.stdout.flush()


async def _stopped(exit_with_parent: bool) -> None:
    """Return on SIGINT or SIGTERM, or at end of stdin if the parent is to be outlived by nobody."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, ended.set)
    if exit_with_parent:

        def watch() -> None:
            while sys.stdin.buffer.read(4096):
                pass
            loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=watch, name="parent", daemon=True).start()
    await ended.wait()


def main(argv: list[str] | None = None) -> int:
    """Run the service; return 0 when told to stop, 4 for a usage error, 1 if it cannot start."""
    options = parse_arguments(sys.argv[1:] if argv is None else argv)
    guard_output()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    try:
        check_loopback(options.host)
        asyncio.run(serve(options))
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 4
    except (HarnessError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
