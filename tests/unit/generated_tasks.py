"""A small set of generated tasks, and the sampling order written from contract §9 alone."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def task(number: int, disposition: str = "accepted") -> dict[str, Any]:
    prompt, answer = f"What is {number} + {number}?", str(2 * number)
    return {
        "item_id": f"t{number}",
        "prompt": prompt,
        "answer": answer,
        "disposition": disposition,
    }


TASKS = [*(task(n) for n in range(8)), task(8, "rejected"), task(9, "execution_error")]


def reference_order(seed: int | str, ids: list[str]) -> list[str]:
    """Contract §9 with the standard library only."""

    def digest(item: str) -> str:
        text = json.dumps([seed, item], separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    return sorted(ids, key=digest)
