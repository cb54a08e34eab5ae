"""The training service as the experiment sees it: reach it, start from one state, fetch adapters.

Everything goes through the stock SDK, except for the download of signed addresses.
"""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import tinker
from tinker_cookbook.tokenizer_utils import Tokenizer, register_tokenizer

from harness.closing_client import ClosingClient
from harness.digest import sha256_file, sha256_json
from harness.errors import NotOfferedError, ServiceError
from harness.local_service.gguf_tokenizer import load_smollm_tokenizer
from harness.local_service.smollm import SMOLLM
from harness.local_service.tokenizer import load_tokenizer
from harness.proxy_headers import dressed
from harness.sdk_generation import rest_client, training_client
from harness.spec_model import ExperimentSpec

EMBEDDED_MODEL_PREFIX = "embedded/"
_DOWNLOAD_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class InitialState:
    """The one adapter every arm of a run starts from (contract §3).

    Attributes:
        checkpoint_uri: what the arms load, weights only, with a fresh optimizer.
        adapter_sha256: digest of the downloaded adapter's tensors file, measured here.
        seed: initialization seed that was asked for.
        lora_rank: rank that was asked for.
        reported: what the service says of the client: model name, rank, optimizer.
    """

    checkpoint_uri: str
    adapter_sha256: str
    seed: int
    lora_rank: int
    reported: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of ``initial.json``."""
        return {**asdict(self), "reported": dict(self.reported)}


def register_model_tokenizer(spec: ExperimentSpec) -> None:
    """Tell the cookbook where the tokenizer of an embedded model is; others come from the hub."""
    if spec.base_model == SMOLLM:
        register_tokenizer(spec.base_model, _smollm_tokenizer)
    elif spec.base_model.startswith(EMBEDDED_MODEL_PREFIX):
        register_tokenizer(spec.base_model, _embedded_tokenizer)


def _embedded_tokenizer() -> Tokenizer:
    # The cookbook types tokenizers as the slow base class; it uses what both share.
    return cast(Tokenizer, load_tokenizer())


def _smollm_tokenizer() -> Tokenizer:
    return cast(Tokenizer, load_smollm_tokenizer())


def sdk_client() -> tinker.ServiceClient:
    """Return an SDK client for the service that the environment names.

    Raises:
        ServiceError: when TINKER_BASE_URL or TINKER_API_KEY is not set.
    """
    missing = [name for name in ("TINKER_BASE_URL", "TINKER_API_KEY") if not os.environ.get(name)]
    if missing:
        raise ServiceError(
            "the environment does not say which service to use",
            expected="TINKER_BASE_URL and TINKER_API_KEY",
            found=f"{' and '.join(missing)} not set",
            fix="set them, or use the embedded service (--service embedded)",
        )
    return ClosingClient()


def create_initial_state(
    client: tinker.ServiceClient, spec: ExperimentSpec, seed: int, name: str, folder: Path
) -> InitialState:
    """Create, save and download the adapter that every arm starts from.

    Args:
        client: SDK client; the training client made here is not used again.
        spec: base model and rank.
        seed: initialization seed.
        name: checkpoint name, unique on the service.
        folder: where the adapter is downloaded to.
    """
    training = training_client(
        client.create_lora_training_client(spec.base_model, rank=spec.lora_rank, seed=seed)
    )
    uri = training.save_state(name).result().path
    digest = export_adapter(client, training, name, folder)
    return InitialState(
        checkpoint_uri=uri,
        adapter_sha256=digest,
        seed=seed,
        lora_rank=spec.lora_rank,
        reported=reported_of(training),
    )


def reported_of(training: tinker.TrainingClient) -> dict[str, Any]:
    """Return what the service says of a client, the model's name at its top level.

    The SDK has two places for the name, both optional; a service may fill either.
    """
    info = training.get_info()
    reported = info.model_dump(mode="json", exclude_none=True)
    name = info.model_name or info.model_data.model_name
    return {**reported, "model_name": name} if name else reported


def export_adapter(
    client: tinker.ServiceClient, training: tinker.TrainingClient, name: str, folder: Path
) -> str:
    """Export a training client's adapter, download its files and return one digest over them.

    Returns:
        SHA-256 of the canonical JSON ``{file name: sha256}`` of the adapter's tensor files; the
        configuration beside them is kept but not part of the identity.

    Raises:
        ServiceError: when the export has no tensor file or a file cannot be fetched.
    """
    path = training.save_weights_external(name).result().path
    urls = rest_client(client).get_external_weights_urls(path).result().urls
    folder.mkdir(parents=True, exist_ok=True)
    for relative, url in sorted(urls.items()):
        (folder / Path(relative).name).write_bytes(_download(url, relative))
    return adapter_digest(folder)


def adapter_digest(folder: Path) -> str:
    """Return one digest over the tensor files of a downloaded adapter.

    Raises:
        ServiceError: when the folder holds no tensor file.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise NotOfferedError(
            "the exported adapter holds no tensors",
            expected="at least one .safetensors file",
            found=str(sorted(path.name for path in folder.iterdir())),
            where=folder.name,
            fix="ask the service's operator what its external export contains",
        )
    return sha256_json({path.name: sha256_file(path) for path in files})


def _download(url: str, relative: str) -> bytes:
    try:
        request = dressed(urllib.request.Request(url))
        with urllib.request.urlopen(request, timeout=_DOWNLOAD_TIMEOUT_S) as response:
            return response.read()
    except (urllib.error.URLError, OSError, ValueError) as error:
        # The address is signed, so it never appears in the message.
        raise NotOfferedError(
            "a file of an exported adapter cannot be downloaded",
            expected=relative,
            found=type(error).__name__,
        ) from None


def fixed_batch_logprobs(
    training: tinker.TrainingClient, batch: list[tinker.Datum]
) -> tuple[str, str]:
    """Run the fixed batch forward, accumulating nothing.

    Returns:
        ``(batch_sha256, output_sha256)``: token ids, targets and weights; and every
        log-probability at the precision the service sent (contract §3, initial_output).
    """
    result = training.forward(batch, "cross_entropy").result()
    inputs = [
        {
            "tokens": datum.model_input.to_ints(),
            **{key: value.tolist() for key, value in sorted(datum.loss_fn_inputs.items())},
        }
        for datum in batch
    ]
    if len(result.loss_fn_outputs) != len(batch):
        raise NotOfferedError(
            "the service did not answer every datum of the fixed batch",
            expected=f"{len(batch)} outputs",
            found=f"{len(result.loss_fn_outputs)} outputs",
            where="forward",
            fix="the service breaks the protocol: report it to its operator",
        )
    outputs = hashlib.sha256()
    for output in result.loss_fn_outputs:
        if "logprobs" not in output:
            raise NotOfferedError("forward answered without logprobs")
        outputs.update(output["logprobs"].to_torch().numpy().tobytes())
    return sha256_json(inputs), outputs.hexdigest()
