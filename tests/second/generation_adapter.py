"""What stands between today's SDK and a service of an older generation of its protocol.

It fills only what the SDK takes for granted since then (tinker-notes §10) and passes everything
else on, so that behind it the gates measure the service itself:

- ``asample`` answers carry sample_sequence_ids;
- a training client made from a state is one ``load_weights`` call with a model id that the SDK
  presumes: here a model is created, loaded, and known by that id from then on;
- ``save_weights_external`` is a sampler checkpoint, whose archive is unpacked into one link a file.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, cast

from aiohttp import ClientSession, web
from tinker.proto import tinker_public_pb2 as proto

from harness.fault_proxy import FaultProxy, Passing, Rule

API = "/api/v1/"
LATER = 408
"""What a future answers that is not done yet: it is asked again."""


class GenerationAdapter:
    """The adapter of one proxy.

    Args:
        proxy: stands before the service; gets the rules.
        rank: LoRA rank of models made from a state, which the request does not say.
    """

    def __init__(self, proxy: FaultProxy, rank: int) -> None:
        self.proxy = proxy
        self.rank = rank
        self.models: dict[str, str] = {}
        self.exports: dict[str, bytes] = {}
        self._numbers = count()
        routes: dict[str, Callable[[Passing], Awaitable[web.StreamResponse]]] = {
            "asample": self._asample,
            "load_weights": self._load_weights,
            "save_weights_external": self._save_external,
            "training_runs": self._training_runs,
            "exported": self._exported,
            "retrieve_future": self._retrieve,
            "*": self._translated,
        }
        proxy.rules = [Rule(endpoint, handler) for endpoint, handler in routes.items()]

    async def _asample(self, passing: Passing) -> web.StreamResponse:
        whole = await passing.forward()
        if whole.status != 200:
            return whole
        asked, answer = json.loads(passing.body), _json(whole)
        number = next(self._numbers)
        ids = [f"sequence-{number}-{i}" for i in range(asked.get("num_samples", 1))]
        return web.json_response({**answer, "sample_sequence_ids": ids})

    async def _load_weights(self, passing: Passing) -> web.StreamResponse:
        asked = json.loads(passing.body)
        if asked.get("model_id"):
            return await self._translated(passing)
        created = {
            "session_id": asked["session_id"],
            "model_seq_id": asked["model_seq_id"],
            "base_model": asked.get("base_model") or await self._base_model(),
            "lora_config": {"rank": self.rank, "seed": 0},
        }
        model = await self._post("create_model", created)
        if "model_id" not in model:
            return web.json_response(model, status=400)
        while (await self._post_status("retrieve_future", model)) == LATER:
            continue
        presumed = f"{asked['session_id']}:train:{asked['model_seq_id']}"
        self.models[presumed] = model["model_id"]
        body = {"model_id": model["model_id"], "path": asked["path"]}
        loaded = await self._post("load_weights", {**body, "optimizer": asked["optimizer"]})
        return web.json_response(loaded, status=200 if "request_id" in loaded else 400)

    async def _save_external(self, passing: Passing) -> web.StreamResponse:
        asked = json.loads(passing.body)
        model = self.models.get(asked["model_id"], asked["model_id"])
        saved = await self._post(
            "save_weights_for_sampler", {"model_id": model, "path": asked["path"]}
        )
        return web.json_response(saved, status=200 if "request_id" in saved else 400)

    async def _retrieve(self, passing: Passing) -> web.StreamResponse:
        whole = await passing.forward()
        kind = passing.request.headers.get("X-Tinker-Request-Type")
        if whole.status != 200 or kind != "SaveWeightsExternal":
            return whole
        answer = _json(whole)
        model, _, name = str(answer["path"]).removeprefix("tinker://").partition("/")
        path = f"tinker://{model}/external_weights/{name.removeprefix('sampler_weights/')}"
        return web.json_response({"type": "save_weights_external", "path": path})

    async def _training_runs(self, passing: Passing) -> web.StreamResponse:
        parts = passing.request.path.removeprefix(API).split("/")
        if parts[-1] != "external_weights_urls":
            return await self._translated(passing)
        model, name = parts[1], parts[-2]
        archive = f"training_runs/{model}/checkpoints/{name}/download"
        async with self._client.get(f"{self.proxy.target}{API}{archive}") as answer:
            content = await answer.read()
            if answer.status != 200:
                return web.Response(status=answer.status, body=content)
        urls: dict[str, str] = {}
        for path, data in _unpacked(content).items():
            key = f"{model}-{name}-{path}".replace("/", "-")
            self.exports[key] = data
            urls[path] = f"{self.proxy.base_url}{API}exported/{key}"
        return web.json_response({"urls": urls, "expires": "2100-01-01T00:00:00Z"})

    async def _exported(self, passing: Passing) -> web.StreamResponse:
        return web.Response(body=self.exports[passing.request.path.rpartition("/")[2]])

    async def _translated(self, passing: Passing) -> web.StreamResponse:
        """Pass a request on with the service's own model id in place of a presumed one."""
        if b":train:" not in passing.body:
            return await passing.forward()
        if passing.body.lstrip().startswith(b"{"):
            asked = json.loads(passing.body)
            asked["model_id"] = self.models.get(asked["model_id"], asked["model_id"])
            passing.body = json.dumps(asked).encode()
        else:
            request = proto.ForwardBackwardRequest.FromString(passing.body)
            request.model_id = self.models.get(request.model_id, request.model_id)
            passing.body = request.SerializeToString()
        return await passing.forward()

    async def _base_model(self) -> str:
        async with self._client.get(f"{self.proxy.target}{API}get_server_capabilities") as answer:
            return (await answer.json())["supported_models"][0]["model_name"]

    async def _post(self, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
        async with self._client.post(f"{self.proxy.target}{API}{endpoint}", json=body) as answer:
            return await answer.json()

    async def _post_status(self, endpoint: str, model: Mapping[str, Any]) -> int:
        body = {"request_id": model["request_id"]}
        async with self._client.post(f"{self.proxy.target}{API}{endpoint}", json=body) as answer:
            await answer.read()
            return answer.status

    @property
    def _client(self) -> ClientSession:
        return cast(ClientSession, self.proxy.client)


def _json(answer: web.Response) -> dict[str, Any]:
    return json.loads(cast(bytes, answer.body))


def _unpacked(archive: bytes) -> dict[str, bytes]:
    """Return the files of a tar archive, compressed or not, by their paths."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        for member in opened.getmembers():
            if stream := opened.extractfile(member):
                found[member.name.removeprefix("./")] = stream.read()
    return found
