"""``python -m harness plan SPEC --substitute``: ask the service what it serves, propose, write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.errors import UsageError
from harness.health import get_json
from harness.model_substitution import (
    closest_model,
    is_served,
    reason_for,
    served_models,
    write_revision,
)
from harness.service_access import EMBEDDED, ServiceAccess, choose_service
from harness.service_profiles import BASE_URL_VARIABLE, KEY_VARIABLE
from harness.spec import LoadedSpec


def substitute(loaded: LoadedSpec, service: str | None, artifacts: Path) -> Iterator[str]:
    """Yield what was found, and write a revised spec when the planned model is not served.

    Args:
        loaded: the original spec; its file is not touched.
        service: ``--service``, or None for the spec's own.
        artifacts: where a service keeps its files.

    Raises:
        UsageError: for a spec of the embedded service, or when nothing of the family is served.
        ServiceError: when the service does not answer.
    """
    name = choose_service(service, loaded.spec)
    if name == EMBEDDED:
        raise UsageError(
            "the embedded service serves the one model that comes with it",
            expected="a spec for a service that is named by its address",
            found=loaded.name,
            where="--substitute",
            fix="leave --substitute out",
        )
    access = ServiceAccess(name, loaded.spec, artifacts / "service" / loaded.name)
    try:
        environment = access.environment()
        address, key = environment[BASE_URL_VARIABLE], environment[KEY_VARIABLE]
        served = served_models(get_json(address, "get_server_capabilities", key))
    finally:
        access.stop()
    planned = loaded.spec.base_model
    if is_served(planned, served):
        yield f"{planned} is served: nothing to substitute, nothing written"
        return
    model = closest_model(planned, served, loaded.spec.max_seq_len)
    if model is None:
        raise UsageError(
            "the service serves no model of the planned one's family",
            expected=f"a model close to {planned}, with room for {loaded.spec.max_seq_len} tokens",
            found=", ".join(sorted(row.name for row in served)) or "no model",
            where="get_server_capabilities",
            fix="use a service that serves it, or write a new spec",
        )
    reason = reason_for(planned, model.name, served)
    path = write_revision(loaded, model.name, reason)
    yield reason
    yield f"written: {path}, a revision of {loaded.name}, which stays refused"
    yield f"next: python -m harness spec {path}; python -m harness pin {path}; pytest -m preflight"
    yield f"      --spec {path}. Learning rates and budget are the original's: look at both."
