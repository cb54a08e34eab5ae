"""A reverse proxy on loopback that makes a service fail in stated ways.

It stands between the real SDK and a real service, so that what a fault does to a run is measured on
the wire: by the gate ``capacity_answers`` on any service, by ``tests/faults`` on the embedded one.

    with fault_proxy("http://127.0.0.1:8000") as proxy:
        proxy.rules.append(Rule("asample", status(429), times=3))
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from harness.errors import ServiceError
from harness.health import public_address

_HOP_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_PREFIX = "/api/v1/"
_START_TIMEOUT_S = 30.0


@dataclass
class Passing:
    """One request on its way.

    Attributes:
        proxy: the proxy it passes.
        request: as it came from the SDK.
        body: its bytes.
    """

    proxy: FaultProxy
    request: web.Request
    body: bytes

    async def forward(self) -> web.Response:
        """Hand the request to the service and return its answer, byte for byte."""
        return await self.proxy.forward(self.request, self.body)


Fault = Callable[[Passing], Awaitable[web.StreamResponse]]


@dataclass
class Rule:
    """When a fault happens.

    Attributes:
        endpoint: first part of the path after ``/api/v1/``, or ``*`` for all.
        fault: what happens in place of the plain answer.
        times: how often; None for ever.
        after: how many requests pass unharmed first.
        request_type: only polls for the result of this kind of request, such as "Sample".
        hits: how often it happened.
    """

    endpoint: str
    fault: Fault
    times: int | None = None
    after: int = 0
    request_type: str | None = None
    hits: int = 0

    def takes(self, endpoint: str, request_type: str | None) -> bool:
        """Return whether the rule is for this request, and count it."""
        used_up = self.times is not None and self.hits >= self.times
        if used_up or self.endpoint not in ("*", endpoint):
            return False
        if self.request_type not in (None, request_type):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.hits += 1
        return True


@dataclass
class FaultProxy:
    """A running proxy.

    Attributes:
        target: address of the service; may be changed while it runs.
        rules: the first one that takes a request decides.
        base_url: where the proxy listens.
        passed: endpoint and status of every answer, in order.
    """

    target: str
    rules: list[Rule] = field(default_factory=list)
    base_url: str = ""
    passed: list[tuple[str, int]] = field(default_factory=list)
    client: ClientSession | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request: by the first rule that takes it, else by the service."""
        passing = Passing(self, request, await request.read())
        endpoint = request.path.removeprefix(_PREFIX).partition("/")[0]
        kind = request.headers.get("X-Tinker-Request-Type")
        rule = next((rule for rule in self.rules if rule.takes(endpoint, kind)), None)
        answer = await (rule.fault(passing) if rule else passing.forward())
        self.passed.append((endpoint, answer.status))
        return answer

    async def forward(self, request: web.Request, body: bytes) -> web.Response:
        """Ask the service; 502 where nobody answers, as a gateway would."""
        if self.client is None:
            return web.Response(status=502)
        url = self.target + request.path_qs
        sent = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_HEADERS}
        try:
            async with self.client.request(request.method, url, data=body, headers=sent) as answer:
                content = await answer.read()
        except ClientError:
            return web.Response(status=502)
        kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_HEADERS}
        return web.Response(status=answer.status, body=content, headers=kept)


def status(code: int, message: str = "made up by the fault proxy") -> Fault:
    """Return the fault of answering with an error status."""

    async def fault(_passing: Passing) -> web.StreamResponse:
        return web.json_response({"error": message}, status=code)

    return fault


@contextmanager
def fault_proxy(target: str) -> Iterator[FaultProxy]:
    """Run a proxy to ``target`` in a thread of its own until the block ends.

    Raises:
        ServiceError: when it cannot listen.
    """
    proxy = FaultProxy(public_address(target))
    ready, done = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with ClientSession(
            auto_decompress=False, timeout=ClientTimeout(total=None)
        ) as proxy.client:
            app = web.Application(client_max_size=1 << 27)
            app.router.add_route("*", "/{tail:.*}", proxy.handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            proxy.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            ready.set()
            await done.wait()
            await runner.cleanup()

    def run() -> None:
        loop.run_until_complete(serve())
        # Requests that a fault never answers are still waiting.
        waiting = asyncio.all_tasks(loop)
        for task in waiting:
            task.cancel()
        if waiting:
            loop.run_until_complete(asyncio.wait(waiting))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    if not ready.wait(_START_TIMEOUT_S):
        raise ServiceError("the fault proxy did not start")
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(_START_TIMEOUT_S)
