"""The golden report of the small complete run, with what differs from day to day left out.

Renew it after a wanted change, and read the difference: ``python tests/unit/report_golden.py``.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from complete_run import complete_run

from harness.report import JSON_NAME, MARKDOWN_NAME

GOLDEN = Path(__file__).parent / "golden"
NAMES = (JSON_NAME, MARKDOWN_NAME)
VOLATILE = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "SHA256"),
    (re.compile(r"\b[0-9a-f]{12}…"), "SHA256…"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+\+00:00)?"), "TIME"),
)


def stable(data: bytes) -> str:
    """Return a report's text without digests of the code and times of the gates."""
    text = data.decode()
    for pattern, word in VOLATILE:
        text = pattern.sub(word, text)
    return text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        run = complete_run(Path(scratch)).folder
        for name in NAMES:
            (GOLDEN / name).write_text(stable((run / name).read_bytes()), encoding="utf-8")
