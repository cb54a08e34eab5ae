"""The one error that becomes an HTTP answer, and its JSON form.

The SDK reads a refused request's body as ``{"error": text, "category": "user" | "server"}``.
Statuses 408, 409, 429 and 5xx make it retry for minutes, so a user's mistake that is only found
while a queued request runs travels inside the future (HTTP 200) with the status it would have had.
"""

from __future__ import annotations

from typing import Any, Literal

from harness.errors import ServiceError

Category = Literal["user", "server"]


class RefusalError(ServiceError):
    """A request this service will not carry out.

    Args:
        problem: the rule that was broken, in one sentence.
        status: the HTTP status of the refusal.
        expected, found, where, fix: as in HarnessError.
    """

    def __init__(
        self,
        problem: str,
        *,
        status: int = 400,
        expected: str = "",
        found: str = "",
        where: str = "",
        fix: str = "",
    ) -> None:
        super().__init__(problem, expected=expected, found=found, where=where, fix=fix)
        self.status = status


def error_body(text: str, *, status: int, category: Category = "user") -> dict[str, Any]:
    """Return the JSON object that the SDK understands as a refused request."""
    return {"error": text, "category": category, "status": status}
