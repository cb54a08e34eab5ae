"""What credentials look like, for those whose value is not known to this process.

Every pattern is tied to its own prefix and bounded, so time stays linear in the text. Where a
prefix also begins ordinary words ("tml-renderers", "sk-learn") a digit must follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[abfnrtv])|(?<=%[0-9A-Fa-f]{2}))"
"""A token begins at a boundary, after an escaped control character or after a quoted one."""
_DIGIT_AHEAD = r"(?=[A-Za-z0-9_-]{0,99}[0-9])"
_SEPARATOR = r"(?:\\?[\"'])?\s{0,3}[:=,]\s{0,3}b?(?:\\?[\"'])?"


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of credential.

    Attributes:
        pattern: what it looks like; a group ``secret`` is the part to remove.
        marks: lower-case substrings of which every match holds one; a text without any is not
            searched, which keeps redaction fast.
    """

    pattern: re.Pattern[str]
    marks: tuple[str, ...]

    def spans(self, text: str, lowered: str) -> Iterator[tuple[int, int]]:
        """Yield where ``text`` holds the credential; ``lowered`` is the text in lower case."""
        if any(mark in lowered for mark in self.marks):
            group = "secret" if "secret" in self.pattern.groupindex else 0
            yield from (found.span(group) for found in self.pattern.finditer(text))


def _token(pattern: str, *marks: str) -> Shape:
    return Shape(re.compile(f"{_START}(?:{pattern})"), marks)


SHAPES: Mapping[str, Shape] = {
    "tinker_key": _token(rf"tml-(?:{_DIGIT_AHEAD}[A-Za-z0-9_-]{{8,}}|[A-Za-z0-9_]{{20,}})", "tml-"),
    "hugging_face_token": _token(r"hf_[A-Za-z0-9]{16,}", "hf_"),
    "modal_token": _token(r"[aw][ks]-[A-Za-z0-9]{16,}", "ak-", "as-", "wk-", "ws-"),
    "sk_key": _token(rf"sk-{_DIGIT_AHEAD}[A-Za-z0-9_-]{{16,}}", "sk-"),
    "github_token": _token(
        r"gh[opsru]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}",
        *("gho_", "ghp_", "ghs_", "ghr_", "ghu_", "github_pat_"),
    ),
    "aws_key_id": _token(r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])", "akia", "asia"),
    "google_api_key": _token(r"AIza[A-Za-z0-9_-]{35}", "aiza"),
    "slack_token": _token(r"xox[abeprs]-[A-Za-z0-9-]{10,}", "xox"),
    "jwt": _token(
        r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,3}",
        "eyj",
    ),
    "auth_header": Shape(
        re.compile(
            r"(?i)(?:authorization|x-api-key|modal-key|modal-secret|cf-access-client-secret)"
            rf"{_SEPARATOR}(?:(?:bearer|basic|token)\s{{1,3}})?"
            r"(?P<secret>(?=[A-Za-z0-9._~+/=-]{0,99}[0-9])[A-Za-z0-9._~+/=-]{8,})"
        ),
        ("authorization", "x-api-key", "modal-key", "modal-secret", "cf-access-client-secret"),
    ),
    "url_password": Shape(
        re.compile(r"://[^\s/:@\"']{0,99}:(?!\[redacted:)(?P<secret>[^\s/@\"']{1,200})@"), ("://",)
    ),
}
"""Every kind by the name that stands in the placeholder."""

SIGNED_QUERY = "signed_query"
"""Placeholder of a whole query string that carries a signature or a credential."""
_QUERY = re.compile(r"(?:[?&]|%3[Ff])(?P<secret>(?:[^\s\"'<>\\]|\\u0026){3,})")
_PARAMETER = re.compile(
    r"(?:^|[?&;]|%26|%3[Ff]|\\u0026)([A-Za-z0-9_.-]{2,60})(?:=|%3[Dd])(?!\[redacted:)"
)
_SIGNING_PREFIXES = ("x-amz-", "x-goog-", "x-ms-")
_SIGNING = frozenset(
    (
        *("signature", "sig", "policy", "key-pair-id", "awsaccesskeyid", "googleaccessid"),
        *("token", "access_token", "id_token", "refresh_token", "auth"),
        *("key", "api_key", "apikey", "secret", "client_secret", "password"),
    )
)


def shape_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and name of everything in ``text`` that looks like a credential."""
    lowered = text.lower()
    for name, shape in SHAPES.items():
        yield from ((start, stop, name) for start, stop in shape.spans(text, lowered))
    for found in _QUERY.finditer(text):
        if is_signed(found["secret"]):
            yield (*found.span("secret"), SIGNED_QUERY)


def is_signed(query: str) -> bool:
    """Return whether a query string carries a signature, a token or another credential."""
    return any(
        name in _SIGNING or name.startswith(_SIGNING_PREFIXES)
        for name in map(str.lower, _PARAMETER.findall(query))
    )


def credential_shapes(text: str) -> list[str]:
    """Return the names of the shapes found in ``text``, without what was found."""
    return sorted({name for _, _, name in shape_spans(text)})
