"""A service behind a gateway: every request carries its headers, and every session is finished."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests
import tinker
from mini_project import ROOT
from recording_proxy import Exchange, Recording, recording_proxy
from toy_qwen import MODEL

from harness.errors import ServiceError
from harness.experiment import Experiment
from harness.health import require_health
from harness.local_service.gateway import draw_tokens
from harness.local_service.process import EmbeddedService, instructions, start_service
from harness.pins import record_pins
from harness.proxy_headers import headers_sent
from harness.sdk_generation import training_client
from harness.service import export_adapter
from harness.service_profiles import profile_named
from harness.session import HarnessSession, Options
from tests.faults.small_experiment import ARM, GRPO, small_spec, write_rows

pytestmark = pytest.mark.live
SHARED, FORK = profile_named("spindle"), profile_named("fork")


@pytest.fixture(scope="module")
def guarded(toy_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedService]:
    folder = tmp_path_factory.mktemp("guarded")
    with start_service(folder, model_dir=toy_model, base_model=MODEL, gateway="spindle") as service:
        yield service


def test_the_printed_command_names_the_gateways_profile(guarded: EmbeddedService) -> None:
    shown = instructions(guarded)
    assert "pytest -m preflight --service spindle" in shown
    assert {f"export {name}=" in shown for name in guarded.gateway} == {True}


def capabilities(service: EmbeddedService, headers: dict[str, str]) -> requests.Response:
    url = f"{service.base_url}/api/v1/get_server_capabilities"
    return requests.get(url, headers={"X-API-Key": service.api_key, **headers}, timeout=60)


def test_each_gateway_takes_its_own_tokens_only(guarded: EmbeddedService) -> None:
    own = SHARED.header_values(guarded.environment())
    others = FORK.header_values(draw_tokens("fork")[0])
    found = {
        "own": capabilities(guarded, own).status_code,
        "the fork's": capabilities(guarded, others).status_code,
        "none": capabilities(guarded, {}).status_code,
        "half": capabilities(guarded, {"Modal-Key": own["Modal-Key"]}).status_code,
        "half wrong": capabilities(guarded, {**own, "Modal-Secret": "x"}).status_code,
    }
    expected = {"own": 200, "the fork's": 401, "none": 401, "half": 401, "half wrong": 401}
    assert found == expected
    refused = capabilities(guarded, others).text
    assert "Modal-Key and Modal-Secret" in refused
    assert not [value for value in (*own.values(), *others.values()) if value in refused]


@pytest.mark.slow
def test_a_fork_refuses_the_shared_token(tmp_path: Path, toy_model: Path) -> None:
    with start_service(tmp_path, model_dir=toy_model, base_model=MODEL, gateway="fork") as fork:
        assert set(fork.gateway) == {"RUNS_PROXY_TOKEN_ID", "RUNS_PROXY_TOKEN_SECRET"}
        shared = SHARED.header_values(draw_tokens("spindle")[0])
        assert capabilities(fork, shared).status_code == 401
        assert capabilities(fork, FORK.header_values(fork.environment())).status_code == 200


def test_the_health_check_is_behind_the_gateway_too(guarded: EmbeddedService) -> None:
    with pytest.raises(ServiceError, match=r"Unauthorized.*correct the service's key and tokens"):
        require_health(guarded.base_url)
    with headers_sent(guarded.base_url, SHARED.header_values(guarded.environment())):
        require_health(guarded.base_url)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_sdks_own_clients_all_carry_the_headers(
    guarded: EmbeddedService, tmp_path: Path
) -> None:
    headers = SHARED.header_values(guarded.environment())
    with recording_proxy(guarded.base_url, keep_host=True) as recording:
        with headers_sent(recording.base_url, headers):
            base_url, key = recording.base_url, guarded.api_key
            with tinker.ServiceClient(base_url=base_url, api_key=key) as client:
                training = training_client(
                    client.create_lora_training_client(MODEL, rank=2, seed=1)
                )
                export_adapter(client, training, "one", tmp_path / "adapter")
                client.get_server_capabilities()
            # Not in every SDK generation (harness/sdk_generation.py).
            if (standalone := getattr(tinker, "RestClient", None)) is not None:
                standalone(base_url=base_url, api_key=key).get_server_capabilities().result()
        seen = recording.exchanges
    assert lacking(seen, headers) == []
    assert {"create_session", "create_model", "sessions", "client", "downloads"} <= {
        kind(e) for e in seen
    }


def kind(exchange: Exchange) -> str:
    return exchange.path.removeprefix("/api/v1/").split("/")[0]


def lacking(seen: list[Exchange], headers: dict[str, str]) -> list[str]:
    """Requests without the headers; names of headers are compared without case."""
    wanted = {name.lower(): value for name, value in headers.items()}
    return [
        f"{exchange.method} {exchange.path}"
        for exchange in seen
        if not wanted.items()
        <= {name.lower(): value for name, value in exchange.headers.items()}.items()
    ]


@dataclass
class Whole:
    """A whole small experiment, seen from the wire."""

    recording: Recording
    service: EmbeddedService
    folder: Path
    headers: dict[str, str]
    open_before_arms: dict[str, list[str]] = field(default_factory=dict)
    status: str = ""

    def open_sessions(self) -> list[str]:
        url = f"{self.service.base_url}/api/v1/sessions"
        reply = requests.get(
            url, headers={"X-API-Key": self.service.api_key, **self.headers}, timeout=60
        )
        return reply.json()["sessions"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    """Initial state, both arms, every score and the verdict, each stage in its own process."""
    folder = tmp_path_factory.mktemp("whole")
    spec = folder / "small.json"
    spec.write_text(json.dumps(small_spec()))
    record_pins(spec, ROOT)
    base_model = small_spec()["base_model"]
    with (
        pytest.MonkeyPatch.context() as patch,
        start_service(folder / "data", base_model=base_model, gateway="spindle") as service,
        recording_proxy(service.base_url, keep_host=True) as recording,
    ):
        for name, value in service.environment().items():
            patch.setenv(name, value)
        patch.setenv("TINKER_BASE_URL", recording.base_url)
        rows = write_rows(folder / "rows")
        options = Options(ROOT, spec, "spindle", (), folder / "artifacts", rows)
        session = HarnessSession(options, report=[].append)
        experiment = Experiment(session)
        found = Whole(recording, service, folder, SHARED.header_values(service.environment()))
        experiment.ensure_initial_state()
        for arm in (GRPO, ARM):
            found.open_before_arms[arm] = found.open_sessions()
            experiment.train(arm)
        for arm in ("base", GRPO, ARM):
            experiment.evaluate(arm)
        found.status = experiment.decide().status
        session.close()
        yield found


@pytest.mark.slow
def test_no_request_of_a_whole_experiment_lacks_the_headers(whole: Whole) -> None:
    seen = whole.recording.exchanges
    assert whole.status == "succeeded"
    assert lacking(seen, whole.headers) == []
    assert not [exchange.path for exchange in seen if exchange.status == 401]
    kinds = {kind(exchange) for exchange in seen}
    assert {
        "healthz",
        "asample",
        "forward_backward",
        "optim_step",
        "load_weights",
        "downloads",
    } <= kinds, kinds


@pytest.mark.slow
def test_no_token_is_in_any_file(whole: Whole) -> None:
    files = [path for path in (whole.folder / "artifacts").rglob("*") if path.is_file()]
    files += list((whole.folder / "data").rglob("*.log"))
    assert len(files) > 20
    secrets = [*whole.service.gateway.values(), whole.service.api_key]
    holding = [p.name for p in files if any(value.encode() in p.read_bytes() for value in secrets)]
    assert holding == [], f"a token was written to {holding}"


@pytest.mark.slow
def test_set_up_clients_are_closed_before_the_arms_and_every_session_in_the_end(
    whole: Whole,
) -> None:
    assert whole.open_before_arms == {GRPO: [], ARM: []}
    opened = [e for e in whole.recording.exchanges if kind(e) == "create_session"]
    assert len(opened) >= 6, f"initial state, two arms and three scores opened {len(opened)}"
    assert whole.open_sessions() == []
