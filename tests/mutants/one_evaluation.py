"""One arm evaluated offline: the harness's own evaluation against a sampler that keeps notes.

What must hold is read from the arm's ``done.json`` and from the spec, not from the evaluation:
the final checkpoint is asked for, greedily, once an item, and no item is missing from the rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import tinker

from harness import evaluate
from harness.arm_dataset import renderer_for
from harness.plan import PlannedRun
from harness.problems import Problem
from tests.mutants.one_step import local_spec

ITEMS = [
    Problem(f"item-{n}", f"what is {n} plus {n}", f"#### {2 * n}", str(2 * n)) for n in range(8)
]
FINAL = "tinker://run/sampler_weights/final"


class Sampler:
    """Answers right, cut off, and wrong, in turn."""

    def __init__(self) -> None:
        self.parameters: list[tinker.SamplingParams] = []
        self.models: list[Any] = []

    def create_sampling_client(self, **asked: Any) -> SimpleNamespace:
        self.models.append(asked)
        return SimpleNamespace(result=lambda: self)

    async def sample_async(
        self, prompt: tinker.ModelInput, num_samples: int, sampling_params: tinker.SamplingParams
    ) -> tinker.SampleResponse:
        kind = len(self.parameters) % 3
        self.parameters.append(sampling_params)
        words = ["so \\boxed{0}", "then 1", "\\boxed{999}"][kind]
        tokens = renderer_for(local_spec()).tokenizer.encode(words, add_special_tokens=False)
        answer = tinker.SampledSequence(
            stop_reason="length" if kind == 1 else "stop",
            sequence_id=f"{prompt.length}",
            tokens_np=np.asarray(tokens, dtype=np.int64),
            logprobs_np=np.zeros(len(tokens), dtype=np.float32),
        )
        return tinker.SampleResponse(sequences=[answer] * num_samples)


def planned_run(folder: Path, arm_name: str) -> PlannedRun:
    """Return a run with a finished arm."""
    spec = local_spec()
    done = folder / "arms" / arm_name / "done.json"
    done.parent.mkdir(parents=True)
    done.write_text(json.dumps({"steps": spec.arm(arm_name).steps, "sampler_uri": FINAL}))
    run = SimpleNamespace(spec=spec, folder=folder, test_problems=lambda: tuple(ITEMS))
    return cast(PlannedRun, run)


def evaluation_alarms(folder: Path) -> list[str]:
    """Evaluate the treatment's arm and return what is not as planned."""
    name = local_spec().arms[-1].name
    run, sampler = planned_run(folder, name), Sampler()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "sdk_client", lambda: sampler)
        rows = evaluate.evaluate_arm(run, name)
    found = {
        "models asked for": (sampler.models, [{"model_path": FINAL}]),
        "checkpoints of the rows": ({row["checkpoint"] for row in rows}, {FINAL}),
        "temperatures": ([p.temperature for p in sampler.parameters], [0.0] * len(ITEMS)),
        "items": ([row["item_id"] for row in rows], [problem.item_id for problem in ITEMS]),
        "values": ([row["value"] for row in rows], [1.0] + [0.0] * (len(ITEMS) - 1)),
    }
    return [f"{what}: {got}, planned {want}" for what, (got, want) in found.items() if got != want]
