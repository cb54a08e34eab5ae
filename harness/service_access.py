"""Which service a session talks to, what identifies it, and how it is started and stopped.

Two ways in: ``embedded`` starts the embedded service on loopback when it is first needed, with its
files under the artifacts folder, so that checkpoints outlive the process; ``url`` takes the address
and key from ``TINKER_BASE_URL`` and ``TINKER_API_KEY``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.digest import sha256_file
from harness.errors import ServiceError, UsageError
from harness.health import public_address, require_address, require_health
from harness.local_service.process import EmbeddedService, start_service
from harness.spec_model import ExperimentSpec

SERVICES = ("embedded", "url")
URL_VARIABLES = ("TINKER_BASE_URL", "TINKER_API_KEY")
MODEL_DIR = Path(__file__).parent / "local_service" / "model"


def choose_service(asked: str | None, spec: ExperimentSpec) -> str:
    """Return the service's name: what was asked for, else what the spec was written for.

    Raises:
        UsageError: for an unknown name, variables missing for a service asked for by name, or the
            embedded service with a spec that does not describe its model.
        ServiceError: for a TINKER_BASE_URL that is to be used and is no address.
    """
    name = asked or ("embedded" if spec.embedded else "url")
    if name not in SERVICES:
        raise UsageError(
            "the service is not known",
            expected=" or ".join(SERVICES),
            found=name,
            where="--service",
            fix="leave --service out: the spec knows its service",
        )
    if name == "embedded" and spec.embedded is None:
        raise UsageError(
            "the spec does not describe the embedded service's model",
            expected="an embedded section with base_model_sha256",
            found="none",
            where="--service embedded",
            fix="use specs/local.json, or --service url for this spec",
        )
    if asked == "url" and missing_variables():
        raise UsageError(
            "the service's variables are not set",
            expected=" and ".join(URL_VARIABLES),
            found=f"missing: {', '.join(missing_variables())}",
            where="environment",
            fix="set them, or use specs/local.json, which needs none",
        )
    if name == "url" and (address := os.environ.get("TINKER_BASE_URL")):
        require_address(address)
    return name


def missing_variables() -> list[str]:
    """Return the variables of the url service that are not set."""
    return [name for name in URL_VARIABLES if not os.environ.get(name)]


def service_identity(name: str, spec: ExperimentSpec) -> dict[str, Any]:
    """Return what identifies the service, without contacting it.

    For the embedded service this is complete: its code is part of the binding, and its model, its
    arithmetic and its seed are here. For another service it is the address.
    """
    if name == "url":
        address = public_address(os.environ.get("TINKER_BASE_URL", ""))
        return {"service": "url", "base_url": address}
    if spec.embedded is None:
        raise UsageError("the spec does not describe the embedded service's model")
    return {
        "service": "embedded",
        "base_model": spec.base_model,
        "model_sha256": _model_sha256(),
        "dtype": spec.embedded.dtype,
        "service_seed": spec.embedded.service_seed,
    }


def _model_sha256() -> str:
    path = MODEL_DIR / "model.safetensors"
    return sha256_file(path) if path.is_file() else "missing: run make local-model"


class ServiceAccess:
    """Starts the service at the first use and stops what it started.

    Args:
        name: ``embedded`` or ``url``.
        spec: describes the embedded model.
        folder: where the embedded service keeps checkpoints and its log.
    """

    def __init__(self, name: str, spec: ExperimentSpec, folder: Path) -> None:
        self.name = name
        self.spec = spec
        self.folder = folder
        self._embedded: EmbeddedService | None = None

    def environment(self) -> Mapping[str, str]:
        """Return the variables an SDK program needs, starting the service if need be.

        An embedded service that has died is started again on its folder, with all it had saved.

        Raises:
            ServiceError: when the service cannot be started or reached, or serves another model.
        """
        if self.name == "url":
            return self._url_environment()
        if self._embedded is not None and not self._embedded.running:
            self.stop()
        if self._embedded is None:
            self._embedded = self._start()
        return self._embedded.environment()

    def stop(self) -> None:
        """Stop the embedded service if this session started it."""
        if self._embedded is not None:
            self._embedded.stop()
            self._embedded = None

    def _url_environment(self) -> Mapping[str, str]:
        if missing := missing_variables():
            raise ServiceError(
                "the environment does not say which service to use",
                expected=" and ".join(URL_VARIABLES),
                found=f"missing: {', '.join(missing)}",
                fix="set them; specs/local.json needs none",
            )
        require_health(os.environ["TINKER_BASE_URL"])
        values = {name: os.environ[name] for name in URL_VARIABLES}
        return {**values, "TINKER_TELEMETRY": "0"}

    def _start(self) -> EmbeddedService:
        described = self.spec.embedded
        if described is None:
            raise UsageError("the spec does not describe the embedded service's model")
        found = service_identity(self.name, self.spec)["model_sha256"]
        if found != described.base_model_sha256:
            raise ServiceError(
                "the embedded model is not the one the spec was written for",
                expected=described.base_model_sha256,
                found=found,
                where="embedded.base_model_sha256",
                fix="restore harness/local_service/model, or write a revised spec",
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        return start_service(
            self.folder / "data",
            dtype=described.dtype,
            seed=described.service_seed,
            base_model=self.spec.base_model,
            log_path=self.folder / "service.log",
        )
