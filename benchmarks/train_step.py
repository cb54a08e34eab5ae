"""The embedded service's train step, against a bare torch forward and backward.

Both train the same network with the same sequences and the importance-sampling loss in float32. The
bare one is one padded batch, torch's own AdamW and nothing else: no request, no finite check, no
order by content, no exactly rounded sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tinker
import torch

from benchmarks.decoding import SPEC, prompts
from benchmarks.measure import in_turns
from benchmarks.rows import Row
from harness.local_service import lora
from harness.local_service.base_model import load_base_model
from harness.local_service.lora import Adapter, AdapterConfig
from harness.local_service.process import EmbeddedService
from harness.service_access import MODEL_DIR

SEQUENCES = 64


def datums() -> list[tinker.Datum]:
    """Return 64 sequences of the lengths that training has, with made-up numbers on each token."""
    rng = np.random.default_rng(0)
    found = []
    for number, prompt in enumerate(prompts()[:SEQUENCES]):
        tokens = [*prompt, *prompts()[number + SEQUENCES][: 10 + number % 40]]
        size = len(tokens) - 1
        inputs = {
            "target_tokens": tinker.TensorData.from_numpy(np.asarray(tokens[1:], dtype=np.int64)),
            "logprobs": tinker.TensorData.from_numpy(np.full(size, -1.0, dtype=np.float32)),
            "advantages": tinker.TensorData.from_numpy(rng.normal(size=size).astype(np.float32)),
        }
        model_input = tinker.ModelInput.from_ints(tokens[:-1])
        found.append(tinker.Datum(model_input=model_input, loss_fn_inputs=inputs))
    return found


class BareStep:
    """One optimizer step written down plainly.

    Args:
        data: the sequences; how long each is decides the padding.
    """

    def __init__(self, data: Sequence[tinker.Datum]) -> None:
        base = load_base_model(MODEL_DIR, name=SPEC.spec.base_model, dtype_name="float32")
        switch, shapes = lora.attach(base.network)
        adapter = Adapter(AdapterConfig(SPEC.spec.lora_rank, 0), shapes, base.dtype)
        lora.initialize(adapter)
        switch.active = adapter
        self.network = base.network
        parameters = [part for pair in adapter.pairs.values() for part in pair]
        self.optimizer = torch.optim.AdamW(parameters, lr=3e-4, betas=(0.9, 0.95), eps=1e-8)
        rows = [
            (
                datum.model_input.to_ints(),
                datum.loss_fn_inputs["target_tokens"].to_torch(),
                datum.loss_fn_inputs["logprobs"].to_torch(),
                datum.loss_fn_inputs["advantages"].to_torch(),
            )
            for datum in data
        ]
        size = max(len(row[0]) for row in rows)
        self.tokens = torch.zeros(len(rows), size, dtype=torch.long)
        self.mask = torch.zeros(len(rows), size, dtype=torch.bool)
        for at, row in enumerate(rows):
            self.tokens[at, : len(row[0])] = torch.tensor(row[0])
            self.mask[at, : len(row[0])] = True
        self.targets = torch.cat([row[1] for row in rows])
        self.given = torch.cat([row[2] for row in rows])
        self.advantages = torch.cat([row[3] for row in rows])

    def __call__(self) -> None:
        """Forward, backward and an AdamW step."""
        logits = self.network(input_ids=self.tokens, use_cache=False).logits[self.mask]
        logprobs = logits.log_softmax(-1).gather(1, self.targets[:, None])[:, 0]
        loss = -((logprobs - self.given).exp() * self.advantages).sum()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)


def train_step(service: EmbeddedService, quick: bool) -> Row:
    """Measure one forward-backward with its optimizer step."""
    torch.set_num_threads(1)
    data = datums()
    with tinker.ServiceClient(base_url=service.base_url, api_key=service.api_key) as client:
        making = client.create_lora_training_client(
            service.base_model, rank=SPEC.spec.lora_rank, seed=0
        )
        training = making.result()

        def ours() -> None:
            passed = training.forward_backward(data, "importance_sampling")
            stepped = training.optim_step(tinker.AdamParams(learning_rate=3e-4))
            passed.result()
            stepped.result()

        pairs = in_turns(ours, BareStep(data), 5 if quick else 15)
    facts: dict[str, Any] = pairs.facts() | {"sequences": len(data)}
    return Row(
        f"embedded train step, {SEQUENCES} sequences",
        "a bare torch forward, backward and AdamW step, same sequences (wall time)",
        facts["wall_s"]["ratio"],
        "x",
        most=1.15,
        why="encoding, HTTP and polling take a fixed time beside a step this small",
        facts=facts,
    )
