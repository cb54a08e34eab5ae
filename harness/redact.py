"""Secrets out of every text before it is written: values of the environment and token shapes.

What is known is removed by value (plain, Base64 at any alignment, URL-quoted, escaped as in JSON
or ``repr``); what is not known is removed by shape (:mod:`harness.secret_shapes`). A piece that
two findings share is removed as a whole, so no rest of a secret stays behind.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus

from harness.secret_shapes import SHAPES, SIGNED_QUERY, shape_spans

NAME_PATTERNS = ("*_KEY", "*_TOKEN*", "*_SECRET*", "*_PASSWORD*", "MODAL_*", "HF_*")
"""Environment variables, in upper case, whose values are secrets."""
SHORTEST_SECRET = 6
"""Fewest characters of a value that is redacted; "main" or "1" would blot out ordinary text."""
PUBLIC_VALUES = frozenset(
    (
        *("enabled", "disabled", "enable", "disable", "default", "offline", "online"),
        *("production", "development", "staging", "testing", "warning", "critical"),
        *("accuracy", "embedded", "reward", "answer", "format"),
        *("https://huggingface.co", "https://api.modal.com", "127.0.0.1", "localhost"),
    )
)
"""Values, in lower case, that are settings and no secrets whatever their variable is called."""
_SHORTEST_LINE = 16

Span = tuple[int, int, str]
"""Start, end and name of something to remove."""


class Redactor:
    """Replaces secrets by ``[redacted:NAME]``.

    Its own ``repr`` shows no secret, and it refuses to be pickled.

    Args:
        forms: every spelling to remove, and the name that stands in its place.
    """

    def __init__(self, forms: Mapping[str, str]) -> None:
        self._forms = dict(forms)
        self._placeholders = _placeholder_pattern({*forms.values(), *SHAPES, SIGNED_QUERY})

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Redactor holds secrets and is not pickled; build one from os.environ")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Redactor:
        """Return a redactor of the secrets in ``environ`` and of all known token shapes."""
        return cls.from_values((name, environ[name]) for name in filter(is_secret_name, environ))

    @classmethod
    def from_values(cls, secrets: Iterable[tuple[str, str]]) -> Redactor:
        """Return a redactor of ``(variable, value)`` pairs and of all known token shapes."""
        forms: dict[str, str] = {}
        for variable, value in sorted(secrets):
            name = re.sub(r"[^A-Za-z0-9_.-]", "_", variable)
            for form in _spellings(value):
                forms.setdefault(form, name)
        return cls(forms)

    def values_in(self, text: str) -> list[str]:
        """Return the names of the variables whose values the text holds, in any spelling."""
        return sorted({name for form, name in self._forms.items() if form in text})

    def redact(self, text: str) -> str:
        """Return ``text`` without secrets; redacting twice changes nothing more.

        A text is judged as a whole: give complete lines, since a secret cut in two is no longer
        recognised.
        """
        pieces = self._placeholders.split(text)
        # Odd pieces are placeholders of this redactor; what they name is not secret.
        return "".join(p if at % 2 else self._redacted(p) for at, p in enumerate(pieces))

    def redact_json(self, value: Any) -> Any:
        """Return a JSON value with every string and key redacted; numbers stay as they are.

        For documents this is the way, because a secret made of digits inside a JSON text could
        also be the digits of a measurement.
        """
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, Mapping):
            return {self.redact(str(key)): self.redact_json(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.redact_json(item) for item in value]
        return value

    def _redacted(self, text: str) -> str:
        kept: list[str] = []
        end = 0
        for start, stop, name in merged([*self._value_spans(text), *shape_spans(text)]):
            kept += [text[end:start], f"[redacted:{name}]"]
            end = stop
        return "".join((*kept, text[end:]))

    def _value_spans(self, text: str) -> Iterator[Span]:
        for form, name in self._forms.items():
            yield from ((start, stop, name) for start, stop in _occurrences(text, form))


def _placeholder_pattern(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"(\[redacted:(?:{'|'.join(map(re.escape, sorted(names)))})\])")


def _occurrences(text: str, form: str) -> Iterator[tuple[int, int]]:
    """Yield the stretches that a form covers, overlapping ones as one: "abcabc" in "abcabcabc"."""
    start = at = text.find(form)
    while at >= 0:
        stop = at + len(form)
        at = text.find(form, at + 1)
        if not 0 <= at < stop:
            yield start, stop
            start = at


def is_secret_name(variable: str) -> bool:
    """Return whether an environment variable of this name holds a secret."""
    return any(fnmatchcase(variable.upper(), pattern) for pattern in NAME_PATTERNS)


def merged(spans: list[Span]) -> list[Span]:
    """Return spans joined where they overlap; a joint one has the name of the first."""
    joined: list[Span] = []
    for start, stop, name in sorted(spans, key=lambda span: (span[0], -span[1], span[2])):
        if joined and start < joined[-1][1]:
            first = joined[-1]
            joined[-1] = (first[0], max(first[1], stop), first[2])
        else:
            joined.append((start, stop, name))
    return joined


def _spellings(value: str) -> Iterator[str]:
    """Yield every spelling of a secret value; nothing for one that is too short."""
    secret = value.strip()
    if len(secret) < SHORTEST_SECRET or secret.lower() in PUBLIC_VALUES:
        return
    yield secret
    yield from _quoted(secret)
    yield from _base64_forms(secret.encode("utf-8", "surrogateescape"))
    # A key of several lines is also logged line by line.
    yield from (line for line in secret.splitlines() if len(line) >= _SHORTEST_LINE)


def _quoted(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogateescape")
    for safe in ("", "/"):
        for quoted in (quote(data, safe=safe), quote_plus(data, safe=safe)):
            yield quoted
            yield re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), quoted)
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]


def _base64_forms(data: bytes) -> Iterator[str]:
    """Yield the characters that the bytes fix in any Base64 text holding them.

    Where they begin one or two bytes into a group of three, or end inside one, the first and last
    characters also depend on the neighbours and are left out. The bytes alone come first, whole.
    """
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(data).decode()
        for offset in range(3):
            text = encode(b"\0" * offset + data).decode().rstrip("=")
            head = (0, 2, 3)[offset]
            tail = 0 if (offset + len(data)) % 3 == 0 else 1
            yield text[head : len(text) - tail]
