"""A gateway's lock before the embedded service, as Spindle's deployments have one.

Every request, the health check and signed links included, must carry the headers of a profile;
without them, or with another gateway's, the answer is 401 before anything else is looked at. The
values are this start's own: drawn by the parent, handed over in one variable, never printed by the
service.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping

from harness.digest import parse_json
from harness.errors import UsageError
from harness.local_service.refusals import RefusalError
from harness.service_profiles import profile_named

GATEWAY_VARIABLE = "HARNESS_SERVICE_GATEWAY_TOKENS"
"""JSON of header → value; its name makes the redactor treat it as a secret."""


def draw_tokens(profile_name: str) -> tuple[dict[str, str], str]:
    """Draw a gateway's tokens.

    Returns:
        The variables a client needs, and the text of :data:`GATEWAY_VARIABLE`.

    Raises:
        UsageError: for a profile without headers.
    """
    profile = profile_named(profile_name)
    if not profile.headers:
        raise UsageError("this profile has no gateway", found=profile_name, where="--gateway")
    variables = {name: f"wk-{secrets.token_urlsafe(24)}" for name in profile.headers.values()}
    values = {header: variables[name] for header, name in profile.headers.items()}
    return variables, json.dumps(values)


def parse_tokens(text: str | None) -> dict[str, str]:
    """Return header → value; none when there is no gateway."""
    if not text:
        return {}
    values: dict[str, str] = parse_json(text.encode(), where=GATEWAY_VARIABLE)
    return values


def check_gateway(headers: Mapping[str, str], demanded: Mapping[str, str]) -> None:
    """Raise a 401 RefusalError unless every demanded header is right (compared in constant time).

    No value appears in the message.
    """
    wrong = [
        name
        for name, value in demanded.items()
        if not hmac.compare_digest(
            headers.get(name, "").encode("utf-8", "surrogateescape"), value.encode()
        )
    ]
    if wrong:
        raise RefusalError(
            "the gateway does not let this request pass",
            status=401,
            expected=" and ".join(demanded),
            found=f"missing or wrong: {', '.join(wrong)}",
            fix="set the variables of this service's gateway (python -m harness doctor)",
        )
