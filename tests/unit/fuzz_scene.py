"""A session of the embedded service to fuzz in, with a valid request of every endpoint."""

from __future__ import annotations

from typing import Any

from memory_service import MemoryService
from toy_qwen import MODEL

FINISH = {"reason": {"type": "success"}}
BODIES_A_SESSION = 50
ADAM = {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
SAMPLE_SEED = 1234


class Scene:
    """A session with a model, a sampler and a checkpoint, made anew now and then."""

    def __init__(self, served: MemoryService) -> None:
        self.served = served
        self.session = ""
        self.used = 0

    def open(self) -> None:
        """Begin or renew: what accepted requests made is released with the session."""
        if self.used % BODIES_A_SESSION == 0:
            if self.session:
                self.served.post(f"sessions/{self.session}/finish", FINISH)
            self.session = self.served.post("create_session", {}).json()["session_id"]
            self.model = f"{self.session}:train:0"
            self.served.result(self.served.post("create_model", self.bodies()["create_model"]))
            saved = {"model_id": self.model, "seq_id": 1, "path": "kept"}
            self.served.result(self.served.post("save_weights", saved))
            sampler = self.bodies()["create_sampling_session"]
            assert self.served.post("create_sampling_session", sampler).status == 200
        self.used += 1

    def bodies(self) -> dict[str, dict[str, Any]]:
        """A valid request of each JSON endpoint."""
        ordered = {"model_id": self.model, "seq_id": 2}
        checkpoint = f"tinker://{self.model}/weights/kept"
        return {
            "create_session": {"tags": ["a"], "user_metadata": {"k": 1}, "sdk_version": "0.38.0"},
            "session_heartbeat": {"session_id": self.session},
            "create_model": {
                "session_id": self.session,
                "model_seq_id": 0,
                "base_model": MODEL,
                "lora_config": {"rank": 2, "seed": 1},
            },
            "get_info": {"model_id": self.model},
            "optim_step": {**ordered, "adam_params": ADAM},
            "save_weights": {**ordered, "path": "p", "ttl_seconds": 3600},
            "save_weights_for_sampler": {**ordered, "path": "p"},
            "save_weights_external": {**ordered, "path": "p"},
            "load_weights": {
                "session_id": self.session,
                "model_seq_id": 1,
                "path": checkpoint,
                "optimizer": True,
            },
            "create_sampling_session": {
                "session_id": self.session,
                "sampling_session_seq_id": 0,
                "model_path": checkpoint,
            },
            "asample": self.sample(self.session),
            "retrieve_future": {"request_id": "req-none"},
            "weights_info": {"tinker_path": checkpoint},
            "client/config": {},
            "telemetry": {"events": []},
        }

    def sample(self, session: str, seq_id: int = 0) -> dict[str, Any]:
        return {
            "sampling_session_id": f"{session}:sample:0",
            "seq_id": seq_id,
            "prompt": {"chunks": [{"tokens": [5, 6, 7]}]},
            "sampling_params": {"max_tokens": 4, "seed": SAMPLE_SEED, "temperature": 1.0},
        }
