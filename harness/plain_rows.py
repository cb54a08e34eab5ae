"""JSON lines of flat rows, parsed in one call where nothing in them needs the strict parser.

The strict parser (:mod:`harness.digest`) looks at every object and number in Python. A file of the
usual kind (plain ASCII, short lines, one flat object a line, no constant JSON lacks) can be shown
to be strict from its text as a whole, and the standard library's scanner then reads it in one go.
Where anything is unusual the answer is None, and the strict parser reads and words the refusal.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

MAX_PLAIN_LINE = 308
"""Longest plain line in bytes: no integer in it can exceed float64 (``harness.digest``)."""
_SCANNER = json.JSONDecoder()


def plain_rows(lines: Sequence[bytes], fields: int) -> list[dict[str, Any]] | None:
    """Return the rows of lines that each hold one flat object of ``fields`` fields, or None.

    A float that overflows, and NaN, are not looked for: whoever takes the rows checks that values
    are finite and of the right types, and asks the strict parser where they are not.

    Why this is strict: with one brace to open at the start of each line and one to close at its
    end, each line is one object with no other inside. With ``fields`` colons a line on average and
    ``fields`` distinct keys in every row, no row can have one colon, or one key, too many.

    Args:
        lines: without their line feeds.
        fields: how many fields a row has.
    """
    if not lines or max(map(len, lines)) > MAX_PLAIN_LINE:
        return None
    if {line[:1] for line in lines} != {b"{"} or {line[-1:] for line in lines} != {b"}"}:
        return None
    text = b"[" + b",\n".join(lines) + b"]"
    # With an escape or beyond ASCII a text may hold half a surrogate pair.
    if not text.isascii() or b"\\" in text:
        return None
    wanted = {b"[": 1, b"{": len(lines), b"}": len(lines), b":": fields * len(lines)}
    if any(text.count(mark) != count for mark, count in wanted.items()):
        return None
    try:
        rows = _SCANNER.decode(text.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    return rows if set(map(len, rows)) == {fields} else None


@contextmanager
def uncollected() -> Iterator[None]:
    """Hold the garbage collector while rows are made by the 100 000.

    None of them is part of a cycle, and the collector would walk all of them again and again as
    they grow. It goes on afterwards, whatever happens.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
