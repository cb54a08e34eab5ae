"""The data sets that are generated from a seed: their names in a spec, their sizes, their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.local_service.one_step import ONE_STEP_SIZES, one_step_rows
from harness.local_service.task import SPLIT_SIZES, Row, Split, generate_rows


@dataclass(frozen=True)
class GeneratedData:
    """Rows of each split, and what makes them from a split and a task seed."""

    sizes: Mapping[str, int]
    rows: Callable[[Split, int], list[Row]]


GENERATED: Mapping[str, GeneratedData] = {
    "embedded:gradeschool": GeneratedData(SPLIT_SIZES, generate_rows),
    "embedded:one-step": GeneratedData(ONE_STEP_SIZES, one_step_rows),
}
"""By ``dataset.hf_path``."""
