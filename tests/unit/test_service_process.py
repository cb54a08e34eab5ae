"""Starting, stopping and restarting the service; models it must refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toy_qwen import CONFIG, MODEL, Wire, write_toy_model

from harness.errors import ServiceError, UsageError
from harness.local_service import __main__ as program
from harness.local_service.base_model import load_base_model
from harness.local_service.process import EmbeddedService, instructions, start_service

pytestmark = pytest.mark.live


def load(folder: Path) -> None:
    load_base_model(folder, name="toy", dtype_name="float32")


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"no config.json.*local-model"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("attention_bias", True), ("use_sliding_window", True), ("model_type", "llama")],
)
def test_an_architecture_the_sampler_cannot_write_out_is_refused(
    tmp_path: Path, key: str, value: Any
) -> None:
    write_toy_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {key: value}))
    with pytest.raises(ServiceError, match=key):
        load(tmp_path)


def test_a_damaged_weights_file_is_refused(tmp_path: Path) -> None:
    write_toy_model(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(ServiceError, match="weights cannot be loaded"):
        load(tmp_path)


def test_weights_that_do_not_fit_the_config_are_refused(tmp_path: Path) -> None:
    write_toy_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"hidden_size": 32}))
    with pytest.raises(ServiceError, match="weights cannot be loaded"):
        load(tmp_path)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "::", "localhost.example", ""])
def test_only_loopback_is_listened_on(host: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        program.check_loopback(host)
    assert program.main(["--data-dir", str(tmp_path), "--host", host]) == 4


def test_a_service_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"exit code 1.*no config.json"):
        start_service(tmp_path / "data", model_dir=tmp_path)


def test_the_key_is_told_to_the_client_only(toy_service: EmbeddedService) -> None:
    key = toy_service.environment()["TINKER_API_KEY"]
    assert key.startswith("tml-")
    assert key not in json.dumps(toy_service.identity) + repr(toy_service)
    assert key not in toy_service.log_path.read_text()
    shown = instructions(toy_service)
    assert f"export TINKER_BASE_URL={toy_service.base_url}\n" in shown
    assert f"export TINKER_API_KEY={key}\n" in shown


def test_a_checkpoint_survives_a_restart_and_the_child_ends_with_its_parent(
    toy_service: EmbeddedService, toy_model: Path, wire: Wire
) -> None:
    session = wire.post("create_session", {"tags": []}).json()["session_id"]
    lora = {"rank": 2, "seed": 6}
    creation = {"session_id": session, "model_seq_id": 0, "base_model": MODEL, "lora_config": lora}
    model = wire.result(wire.post("create_model", creation))["model_id"]
    path = wire.result(wire.post("save_weights", {"model_id": model, "seq_id": 1, "path": "a"}))[
        "path"
    ]
    saved = wire.post("weights_info", {"tinker_path": path}).json()

    data_dir = toy_service.log_path.parent
    with start_service(data_dir, model_dir=toy_model, base_model=MODEL) as second:
        other = Wire(second.base_url, second.api_key)
        assert other.get(f"training_runs/{model}").json()["lora_rank"] == 2
        session = other.post("create_session", {"tags": []}).json()["session_id"]
        load_body = {"session_id": session, "model_seq_id": 0, "path": path, "optimizer": True}
        loaded = other.result(other.post("load_weights", load_body))["model_id"]
        again = {"model_id": loaded, "seq_id": 1, "path": "b"}
        copy = other.result(other.post("save_weights", again))["path"]
        copied = other.post("weights_info", {"tinker_path": copy}).json()
        assert copied["adapter_sha256"] == saved["adapter_sha256"]
        assert copied["init_seed"] == 6
        assert wire.get("get_server_capabilities").status_code == 200
        assert other.base_url != wire.base_url
        stranger = Wire(second.base_url, toy_service.api_key)
        assert stranger.get("sessions").status_code == 401, "every start has its own key"
        # The pipe closes just so when the parent is killed.
        second.close_pipe()
        assert second.wait(timeout_s=60) == 0, (
            "the child must leave by itself when its parent is gone"
        )
