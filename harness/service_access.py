"""Which service a session talks to, what identifies it, and how it is started and stopped.

Two ways in: ``embedded`` starts the embedded service on loopback when it is first needed, with its
files under the artifacts folder, so that checkpoints outlive the process; every other profile of
:mod:`harness.service_profiles` takes address, key and headers from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness.digest import sha256_file
from harness.errors import ServiceError, UsageError
from harness.health import public_address, require_address, require_health
from harness.local_service.process import EmbeddedService, start_service
from harness.local_service.smollm import SMOLLM, smollm_path
from harness.proxy_headers import environment_of, headers_sent
from harness.service_profiles import (
    BASE_URL_VARIABLE,
    KEY_VARIABLE,
    PROFILES,
    missing_error,
    profile_named,
)
from harness.spec_model import ExperimentSpec

EMBEDDED = "embedded"
SERVICES = tuple(PROFILES)
START_TIMEOUT_S = 300.0
"""Reading a GGUF file takes a quiet machine seconds and a busy one minutes."""
MODEL_DIR = Path(__file__).parent / "local_service" / "model"


def choose_service(asked: str | None, spec: ExperimentSpec) -> str:
    """Return the service's name: what was asked for, else what the spec was written for.

    Raises:
        UsageError: for an unknown name, variables missing for a service asked for by name, the
            embedded service with a spec that does not describe its model, or a model whose extra
            is not installed.
        ServiceError: for a TINKER_BASE_URL that is to be used and is no address.
    """
    name = asked or (EMBEDDED if spec.embedded else "url")
    profile = profile_named(name)
    if name == EMBEDDED and spec.embedded is None:
        raise UsageError(
            "the spec does not describe the embedded service's model",
            expected="an embedded section with base_model_sha256",
            found="none",
            where="--service embedded",
            fix="use specs/local.json, or --service url for this spec",
        )
    if name == EMBEDDED and spec.base_model == SMOLLM:
        smollm_path()
    if asked and (absent := profile.missing(os.environ)):
        raise missing_error(profile, absent)
    if name != EMBEDDED and (address := os.environ.get(BASE_URL_VARIABLE)):
        require_address(address)
    return name


def service_address(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the address of a service that is not embedded; "" where nothing says it."""
    address = environ.get(BASE_URL_VARIABLE, "")
    if not address and BASE_URL_VARIABLE not in profile_named(name).variables:
        # Imported here: the SDK knows the address of the service it is made for.
        from tinker.lib.base_url import resolve_base_url

        return resolve_base_url()
    return address


def service_identity(name: str, spec: ExperimentSpec) -> dict[str, Any]:
    """Return what identifies the service, without contacting it.

    For the embedded service this is complete: its code is part of the binding, and its model, its
    arithmetic and its seed are here. For another service it is the address.
    """
    if name != EMBEDDED:
        return {"service": name, "base_url": public_address(service_address(name))}
    if spec.embedded is None:
        raise UsageError("the spec does not describe the embedded service's model")
    return {
        "service": "embedded",
        "base_model": spec.base_model,
        "model_sha256": _model_sha256(spec),
        "dtype": spec.embedded.dtype,
        "service_seed": spec.embedded.service_seed,
    }


def _model_sha256(spec: ExperimentSpec) -> str:
    if spec.base_model == SMOLLM:
        return sha256_file(smollm_path())
    path = MODEL_DIR / "model.safetensors"
    return sha256_file(path) if path.is_file() else "missing: run make local-model"


class ServiceAccess:
    """Starts the service at the first use and stops what it started.

    Args:
        name: a profile's name.
        spec: describes the embedded model.
        folder: where the embedded service keeps checkpoints and its log.
    """

    def __init__(self, name: str, spec: ExperimentSpec, folder: Path) -> None:
        self.name = name
        self.spec = spec
        self.folder = folder
        self._embedded: EmbeddedService | None = None
        self._headers: ExitStack | None = None

    def environment(self) -> Mapping[str, str]:
        """Return the variables an SDK program needs, starting the service if need be.

        An embedded service that has died is started again on its folder, with all it had saved.

        Raises:
            ServiceError: when the service cannot be started or reached, or serves another model.
        """
        if self.name != EMBEDDED:
            return self._environment_of_profile()
        if self._embedded is not None and not self._embedded.running:
            self.stop()
        if self._embedded is None:
            self._embedded = self._start()
        return self._embedded.environment()

    def stop(self) -> None:
        """Stop the embedded service if this session started it, and send no headers any more."""
        if self._headers is not None:
            self._headers.close()
            self._headers = None
        if self._embedded is not None:
            self._embedded.stop()
            self._embedded = None

    def _environment_of_profile(self) -> Mapping[str, str]:
        profile = profile_named(self.name)
        if missing := profile.missing(os.environ):
            raise ServiceError(
                "the environment does not say which service to use",
                expected=" and ".join(profile.needed),
                found=f"missing: {', '.join(missing)}",
                fix="set them; specs/local.json needs none",
            )
        address = service_address(self.name)
        if self._headers is None:
            self._headers = ExitStack()
            values = profile.header_values(os.environ)
            self._headers.enter_context(headers_sent(address, values))
        require_health(address)
        values = {BASE_URL_VARIABLE: address, KEY_VARIABLE: os.environ[KEY_VARIABLE]}
        return {**values, **environment_of(self.name), "TINKER_TELEMETRY": "0"}

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
                fix="restore harness/local_service/model (SmolLM2: make smollm), or write a"
                " revised spec",
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        return start_service(
            self.folder / "data",
            dtype=described.dtype,
            seed=described.service_seed,
            model_dir=smollm_path() if self.spec.base_model == SMOLLM else None,
            base_model=self.spec.base_model,
            log_path=self.folder / "service.log",
            timeout_s=START_TIMEOUT_S,
        )
