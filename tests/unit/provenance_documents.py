"""Complete provenance records for specs/local.json, to be broken a field at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.restoration_rules import Finding, judge_provenance
from harness.spec import load_spec
from harness.spec_model import ExperimentSpec

SPEC = load_spec(Path(__file__).parents[2] / "specs" / "local.json").spec
GRPO, GS1 = "grpo_gs8_seed0", "gs1_seed0"
CONFIG: dict[str, Any] = {
    "learning_rate": 3e-4,
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-8,
    "lora_rank": 8,
    "init_seed": 0,
}
HASH, OTHER = "a" * 64, "b" * 64
URI = "tinker://run:train:0/weights/initial"
Document = dict[str, Any]


def row(after_restore: int = 0) -> Document:
    return {
        "after_restore": after_restore,
        "before_next_update": True,
        "optimizer": "adam",
        "requested_config": dict(CONFIG),
        "actual": "adam",
        "actual_config": dict(CONFIG),
        "source": "server_response",
        "evidence_ref": "response 7",
    }


def by_hash(sha256: str = HASH) -> Document:
    return {
        "base_checkpoint": "embedded/gradeschool",
        "adapter_sha256": sha256,
        "source": "local_hash",
        "evidence_ref": "export 1",
        "before_first_update": True,
    }


def by_uri(uri: str = URI, **more: Any) -> Document:
    return {
        "base_checkpoint": "embedded/gradeschool",
        "source": "server_response",
        "checkpoint_uri": uri,
        "checkpoint_immutable": True,
        "checkpoint_scope": "full_initialization",
        "loaded_checkpoint_uri": uri,
        "load_succeeded": True,
        "evidence_ref": "load response 2",
        "before_first_update": True,
        **more,
    }


def arm() -> Document:
    return {
        "initialization": by_hash(),
        "restore_count": 0,
        "optimizer_checks": [row()],
        "initial_output": {
            "available": True,
            "batch_sha256": "c" * 64,
            "output_sha256": "d" * 64,
            "evidence_ref": "forward 3",
            "before_first_update": True,
        },
    }


def good() -> Document:
    return {"version": 1, "arms": {GRPO: arm(), GS1: arm()}}


def place(record: Document, path: str, value: Any) -> None:
    """Set the field at a dotted path; ``...`` removes it."""
    *parents, last = path.split(".")
    part: Any = record
    for name in parents:
        part = part[int(name)] if isinstance(part, list) else part[name]
    if value is ...:
        del part[last]
    else:
        part[last] = value


def judged(record: Document | None, spec: ExperimentSpec = SPEC) -> list[Finding]:
    return judge_provenance(record, spec)
