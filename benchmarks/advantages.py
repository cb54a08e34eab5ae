"""gs1 advantages: milliseconds at 64 prompts, time and memory at 16 384."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from benchmarks import ROOT
from benchmarks.measure import in_turns, peak_bytes, timed
from benchmarks.rows import Row
from harness.advantages import ArmParams, RolloutBatch, compute
from harness.local_service.task import generate_rows
from harness.similarity import BatchFitted
from harness.spec import load_spec

SIMILARITY = "tfidf_prompt_cosine"
MIB = 2**20
_BARE_ROWS = 64


@cache
def questions() -> tuple[str, ...]:
    """Return 16 384 different questions of the embedded task, of several seeds."""
    found: dict[str, None] = {}
    seed = 0
    while len(found) < 16_384:
        found |= dict.fromkeys(row["question"] for row in generate_rows("train", seed))
        seed += 1
    return tuple(found)[:16_384]


def batch_of(prompts: int) -> tuple[RolloutBatch, ArmParams]:
    """Return a batch of different prompts with made-up rewards, and the local arm's parameters."""
    rewards = np.random.default_rng(0).random((prompts, 1)).tolist()
    tau = next(arm.tau for arm in load_spec(ROOT / "specs" / "local.json").spec.arms if arm.tau)
    params = ArmParams(1, prompts, tau=tau, similarity=SIMILARITY)
    return RolloutBatch.of(rewards, questions()[:prompts]), params


def bare(texts: Sequence[str]) -> None:
    """Do only what the advantages need: the vectors' float64 products and exp, block by block."""
    vectors = BatchFitted().vectors(texts)
    columns = vectors.T.tocsr()
    for first in range(0, len(texts), _BARE_ROWS):
        np.exp((vectors[first : first + _BARE_ROWS] @ columns).toarray())


def small(quick: bool) -> Row:
    """Measure 64 prompts."""
    batch, params = batch_of(64)
    compute("gs1", batch, params)
    times = [timed(lambda: compute("gs1", batch, params)) for _ in range(20 if quick else 200)]
    milliseconds = statistics.median(sample.cpu_s for sample in times) * 1e3
    facts = {"calls": len(times), "wall_ms": statistics.median(s.wall_s for s in times) * 1e3}
    return Row("gs1 advantages, 64 prompts", "–", milliseconds, "ms", most=5.0, facts=facts)


def large(quick: bool) -> list[Row]:
    """Measure 16 384 prompts (4096 for a try)."""
    prompts = 4096 if quick else 16_384
    batch, params = batch_of(prompts)
    pairs = in_turns(
        lambda: compute("gs1", batch, params), lambda: bare(batch.prompts_P), 2 if quick else 5
    )
    facts: dict[str, Any] = pairs.facts() | {"prompts": prompts}
    name = f"gs1 advantages, {prompts} prompts"
    mebibytes = peak_bytes(lambda: compute("gs1", batch, params)) / MIB
    return [
        Row(
            f"{name}: time",
            "float64 products of the TF-IDF vectors and exp, same blocks (CPU time)",
            facts["cpu_s"]["ratio"],
            "x",
            most=1.5,
            facts=facts,
        ),
        Row(f"{name}: extra memory", "–", mebibytes, "MiB", most=1024.0),
    ]
