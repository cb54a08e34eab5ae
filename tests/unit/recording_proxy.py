"""A reverse proxy on loopback that keeps what passes between the SDK and a service."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientSession, ClientTimeout, web

HOP_HEADERS = {"host", "content-length", "transfer-encoding", "connection", "content-encoding"}


@dataclass(frozen=True)
class Exchange:
    """One request as it left the SDK, and the status it was answered with."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int

    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


@dataclass
class Recording:
    """Everything that passed, in order of arrival.

    ``target`` is where requests go, and may move; ``before`` and ``after`` see each request before
    it is passed on and once it is answered.
    """

    base_url: str
    target: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    before: Callable[[str, str, bytes], None] = lambda *_: None
    after: Callable[[str, str, bytes], None] = lambda *_: None

    def of(self, endpoint: str) -> list[Exchange]:
        return [seen for seen in self.exchanges if seen.path == f"/api/v1/{endpoint}"]


@contextmanager
def recording_proxy(target: str, *, keep_host: bool = False) -> Iterator[Recording]:
    """Run a proxy to ``target`` in a thread of its own until the block ends.

    With ``keep_host`` the target takes the proxy's address for its own, in the links it gives out.
    """
    recording = Recording("", target)
    ready = threading.Event()
    stop: dict[str, Any] = {}

    async def serve() -> None:
        timeout = ClientTimeout(total=None)
        async with ClientSession(auto_decompress=False, timeout=timeout) as client:

            async def forward(request: web.Request) -> web.Response:
                body = await request.read()
                headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_HEADERS}
                if keep_host:
                    headers["Host"] = request.headers["Host"]
                if encoding := request.headers.get("Content-Encoding"):
                    headers["Content-Encoding"] = encoding
                recording.before(request.method, request.path, body)
                url = recording.target + request.path_qs
                async with client.request(
                    request.method, url, data=body, headers=headers
                ) as answer:
                    content = await answer.read()
                    recording.exchanges.append(
                        Exchange(
                            request.method, request.path, dict(request.headers), body, answer.status
                        )
                    )
                    recording.after(request.method, request.path, body)
                    kept = {
                        k: v
                        for k, v in answer.headers.items()
                        if k.lower() not in HOP_HEADERS - {"content-encoding"}
                    }
                    return web.Response(status=answer.status, body=content, headers=kept)

            app = web.Application(client_max_size=1 << 27)
            app.router.add_route("*", "/{tail:.*}", forward)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            recording.base_url = f"http://127.0.0.1:{port}"
            stop["event"] = asyncio.Event()
            stop["loop"] = asyncio.get_running_loop()
            ready.set()
            await stop["event"].wait()
            await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    if not ready.wait(timeout=30):
        raise RuntimeError("the proxy did not start")
    try:
        yield recording
    finally:
        stop["loop"].call_soon_threadsafe(stop["event"].set)
        thread.join(timeout=30)
