"""The embedded service without a socket: bytes go into aiohttp's own protocol, bytes come out.

Everything but the operating system's part is the real thing: HTTP parsing, routing, middlewares,
handlers, the engine's thread. Thousands of requests a second, and no connection to refuse.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from harness.local_service import base_model
from harness.local_service.app import build_runner
from harness.local_service.service import Service, Settings

KEY = "tml-the-key-of-this-test-0001"
JSON = "application/json"
PATIENCE_S = 30.0
LOGGERS = ("harness.local_service", "asyncio")
"""Who says that something unforeseen happened; aiohttp also logs what it refuses."""


@dataclass(frozen=True)
class Reply:
    """One answer: status, headers in lower case, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class MemoryTransport(asyncio.Transport):
    """Collects what the server writes."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = bytearray()
        self.closed = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def close(self) -> None:
        self.closed.set()

    def abort(self) -> None:
        self.closed.set()

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return


class Alarm(logging.Handler):
    """Keeps every record that says something unforeseen happened."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))


class MemoryService:
    """A running service; every call is synchronous."""

    def __init__(self, model_dir: Path, data_dir: Path, name: str) -> None:
        self.alarm = Alarm()
        for logger in LOGGERS:
            logging.getLogger(logger).addHandler(self.alarm)
        base = base_model.load_base_model(model_dir, name=name, dtype_name="float32")
        self.data_dir = data_dir
        self.service = Service(Settings(data_dir, KEY, 11), base)
        self.loop = asyncio.new_event_loop()
        self.runner = build_runner(self.service)
        self.loop.run_until_complete(self.runner.setup())
        self.service.engine.start()

    def stop(self) -> None:
        self.loop.run_until_complete(self.runner.cleanup())
        self.service.engine.stop()
        self.loop.close()
        for logger in LOGGERS:
            logging.getLogger(logger).removeHandler(self.alarm)

    def raw(self, data: bytes, *, wait: bool = True) -> bytes:
        """Send bytes on a new connection; return what came back until the server closed it.

        Without ``wait`` the client hangs up when the server has had its turns.
        """
        return self.loop.run_until_complete(self._raw(data, wait))

    async def _raw(self, data: bytes, wait: bool) -> bytes:
        server: web.Server = self.runner.server  # type: ignore[assignment]
        protocol, transport = server(), MemoryTransport()
        protocol.connection_made(transport)
        protocol.data_received(data)
        try:
            if wait:
                await asyncio.wait_for(transport.closed.wait(), PATIENCE_S)
            else:
                for _ in range(30):
                    await asyncio.sleep(0)
        finally:
            protocol.connection_lost(None)
            await asyncio.sleep(0)
        return bytes(transport.written)

    def send(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        key: str | None = KEY,
    ) -> Reply:
        """Send one well-framed request and return its answer."""
        lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
        lines += [f"Content-Length: {len(body)}"] + ([f"X-API-Key: {key}"] if key else [])
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        head = "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n"
        return parse_reply(self.raw(head + body))

    def post(self, path: str, document: Any, **headers: str) -> Reply:
        """Post JSON, or bytes as they are."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        given = {"Content-Type": JSON} | {n.replace("_", "-"): v for n, v in headers.items()}
        return self.send("POST", f"/api/v1/{path}", body, given)

    def result(self, reply: Reply) -> Reply:
        """Fetch an accepted request's result."""
        assert reply.status == 200, reply.body[:300]
        return self.post("retrieve_future", {"request_id": reply.json()["request_id"]})


INTERIM = b"HTTP/1.1 100 "
"""What precedes the answer where a client asked whether to go on (``Expect: 100-continue``)."""


def parse_reply(data: bytes) -> Reply:
    # An interim answer says only that the body may come.
    data = data.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    head, _, body = data.partition(b"\r\n\r\n")
    if head.startswith(INTERIM):
        head, _, body = body.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    assert first.startswith(("HTTP/1.1 ", "HTTP/1.0 ")), f"no answer came back, only {data[:100]!r}"
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    return Reply(int(first.split()[1]), headers, body)


def refused(reply: Reply, status: int, names: str = "") -> Reply:
    """Check that a request was refused with a status and names what is wrong."""
    assert reply.status == status, f"{reply.status}, not {status}: {reply.body[:300]!r}"
    assert names in reply.json()["error"], f"{names!r} is not named: {reply.json()['error'][:300]}"
    return reply


def done(served: MemoryService, reply: Reply) -> Reply:
    """Return the result of a request that was taken."""
    found = served.result(reply)
    assert found.status == 200, f"no result: {found.status} {found.body[:300]!r}"
    assert b'"error"' not in found.body, f"it failed: {found.body[:300]!r}"
    return found


@contextmanager
def memory_service(model_dir: Path, data_dir: Path, name: str) -> Iterator[MemoryService]:
    served = MemoryService(model_dir, data_dir, name)
    try:
        yield served
    finally:
        served.stop()
