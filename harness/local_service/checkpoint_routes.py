"""REST handlers: training runs, checkpoints, their lifetimes, and downloads."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from harness.local_service import requests
from harness.local_service.checkpoints import (
    KINDS,
    CheckpointRef,
    check_ttl,
    expiry,
    make_ref,
    parse_uri,
)
from harness.local_service.messages import SERVICE, json_answer, read_body
from harness.local_service.refusals import RefusalError
from harness.local_service.service import Service

_RUN = "/api/v1/training_runs/{run}"
_CHECKPOINT = _RUN + "/checkpoints/{kind}/{name}"


def checkpoint_document(ref: CheckpointRef, metadata: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint as the SDK's Checkpoint type, digests beside it."""
    return {
        "checkpoint_id": ref.checkpoint_id,
        "checkpoint_type": KINDS[ref.kind],
        "time": metadata["created"],
        "tinker_path": ref.uri,
        "size_bytes": metadata["size_bytes"],
        "public": False,
        "user_metadata": metadata["user_metadata"],
        "expires_at": metadata["expires_at"],
        "adapter_sha256": metadata["adapter_sha256"],
    }


def run_document(service: Service, run: str) -> dict[str, Any]:
    """Return a training run as the SDK's TrainingRun type, with what this service adds."""
    record = service.store.read_run(run)
    model = service.registry.models.get(run)
    return {
        **record,
        "model_owner": "local",
        "is_lora": True,
        "corrupted": False,
        "lora_rank": record["lora"]["rank"],
        "last_request_time": model.last_request.isoformat() if model else record["created"],
    }


async def get_run(request: web.Request) -> web.Response:
    """GET training_runs/{run}."""
    return json_answer(run_document(request.app[SERVICE], request.match_info["run"]))


async def list_runs(request: web.Request) -> web.Response:
    """GET training_runs, a page of them."""
    service = request.app[SERVICE]
    runs = service.store.runs()
    page, cursor = _page(request, runs)
    documents = [run_document(service, run) for run in page]
    return json_answer({"training_runs": documents, "cursor": cursor})


def _page(request: web.Request, items: list[Any]) -> tuple[list[Any], dict[str, int]]:
    try:
        limit = int(request.query.get("limit", "20"))
        offset = int(request.query.get("offset", "0"))
    except ValueError as error:
        raise RefusalError(
            "limit and offset are whole numbers", found=request.query_string[:200]
        ) from error
    if not (1 <= limit <= 1000 and offset >= 0):
        raise RefusalError(
            "limit is 1 to 1000, offset at least 0", found=request.query_string[:200]
        )
    cursor = {"offset": offset, "limit": limit, "total_count": len(items)}
    return items[offset : offset + limit], cursor


async def list_checkpoints(request: web.Request) -> web.Response:
    """GET training_runs/{run}/checkpoints."""
    service, run = request.app[SERVICE], request.match_info["run"]
    service.store.read_run(run)
    found = [checkpoint_document(*item) for item in service.store.listed(run)]
    return json_answer({"checkpoints": found})


async def list_all_checkpoints(request: web.Request) -> web.Response:
    """GET checkpoints: every run's, newest first, a page of them."""
    store = request.app[SERVICE].store
    found = [checkpoint_document(*item) for run in store.runs() for item in store.listed(run)]
    found.sort(key=lambda document: document["time"], reverse=True)
    page, cursor = _page(request, found)
    return json_answer({"checkpoints": page, "cursor": cursor})


def _ref(request: web.Request) -> CheckpointRef:
    match = request.match_info
    return make_ref(match["run"], match["kind"], match["name"])


async def delete_checkpoint(request: web.Request) -> web.Response:
    """DELETE training_runs/{run}/checkpoints/{kind}/{name}."""
    request.app[SERVICE].store.delete(_ref(request))
    return json_answer({})


async def set_ttl(request: web.Request) -> web.Response:
    """PUT training_runs/{run}/checkpoints/{kind}/{name}/ttl."""
    body = await read_body(request, requests.SetTtl)
    request.app[SERVICE].store.set_ttl(_ref(request), check_ttl(body.ttl_seconds))
    return json_answer(expiry(body.ttl_seconds))


async def external_urls(request: web.Request) -> web.Response:
    """GET …/external_weights_urls: a signed link for each file of an external checkpoint."""
    service, ref = request.app[SERVICE], _ref(request)
    service.store.metadata(ref)
    if ref.kind != "external_weights":
        raise RefusalError("only external weights can be downloaded", found=ref.uri)
    folder = service.store.path(ref)
    files = sorted(path.name for path in folder.iterdir() if path.name.startswith("adapter_"))
    token, expires = service.downloads.grant(folder, files)
    root = f"{request.url.origin()}/api/v1/downloads/{token}"
    urls = {name: f"{root}/{name}" for name in files}
    return json_answer({"urls": urls, "expires": expires.isoformat()})


async def download(request: web.Request) -> web.StreamResponse:
    """GET downloads/{token}/{file}: no key needed, the token is the permission."""
    match = request.match_info
    return web.FileResponse(
        request.app[SERVICE].downloads.resolve(match["token"], match["file"]),
        headers={"Content-Type": "application/octet-stream"},
    )


async def weights_info(request: web.Request) -> web.Response:
    """POST weights_info."""
    body = await read_body(request, requests.WeightsInfo)
    ref = parse_uri(body.tinker_path)
    metadata = request.app[SERVICE].store.metadata(ref)
    lora = metadata["lora"]
    return json_answer(
        {
            "base_model": metadata["base_model"],
            "optimizer_config": metadata["optimizer_config"],
            "is_lora": True,
            "lora_rank": lora["rank"],
            **{flag: lora[flag] for flag in ("train_unembed", "train_mlp", "train_attn")},
            "lora_alpha": lora["alpha"],
            "init_seed": lora["seed"],
            "adapter_sha256": metadata["adapter_sha256"],
            "optimizer_step": metadata["optimizer_step"],
            "base_model_sha256": metadata["base_model_sha256"],
            "dtype": metadata["dtype"],
        }
    )


ROUTES = [
    web.get("/api/v1/training_runs", list_runs),
    web.get("/api/v1/checkpoints", list_all_checkpoints),
    web.get(_RUN, get_run),
    web.get(_RUN + "/checkpoints", list_checkpoints),
    web.get(_CHECKPOINT + "/external_weights_urls", external_urls),
    web.put(_CHECKPOINT + "/ttl", set_ttl),
    web.delete(_CHECKPOINT, delete_checkpoint),
    web.post("/api/v1/weights_info", weights_info),
    web.get("/api/v1/downloads/{token}/{file}", download),
]
