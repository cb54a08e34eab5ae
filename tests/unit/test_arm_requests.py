"""What the two arms send to the service differs in prompts and advantages, and in nothing else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tinker.proto.tinker_public_pb2 as pb
import zstandard
from mini_project import ROOT
from recording_proxy import Exchange, recording_proxy

from harness.experiment import Experiment
from harness.local_service.process import start_service
from harness.rollout_seeds import rollout_seed
from harness.session import HarnessSession, Options

pytestmark = pytest.mark.live
STEPS = 2
ROLLOUTS = 64
Requests = dict[str, list[Exchange]]


@pytest.fixture(scope="module")
def requests_by_arm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Requests]:
    """Two steps of each arm through the arms' own processes, seen from the wire."""
    folder = tmp_path_factory.mktemp("requests")
    with (
        pytest.MonkeyPatch.context() as patch,
        start_service(folder / "service", base_model="embedded/gradeschool") as service,
        recording_proxy(service.base_url) as recording,
    ):
        patch.setenv("TINKER_BASE_URL", recording.base_url)
        patch.setenv("TINKER_API_KEY", service.api_key)
        options = Options(ROOT, ROOT / "specs" / "local.json", "url", artifacts=folder)
        session = HarnessSession(options, report=[].append)
        pilot = Experiment(session).pilot(STEPS)
        pilot.ensure_initial_state()
        found: Requests = {}
        for arm in session.loaded.spec.arms:
            before = len(recording.exchanges)
            pilot.train(arm.name)
            found[arm.name] = recording.exchanges[before:]
        yield found


def endpoint(exchange: Exchange) -> str:
    return exchange.path.removeprefix("/api/v1/").split("/")[0]


def of(exchanges: list[Exchange], name: str) -> list[Exchange]:
    return [exchange for exchange in exchanges if endpoint(exchange) == name]


def forward_backward(exchange: Exchange) -> pb.ForwardBackwardRequest:
    body = exchange.body
    if exchange.headers.get("Content-Encoding") == "zstd":
        body = zstandard.decompress(body)
    return pb.ForwardBackwardRequest.FromString(body)


def passes(exchanges: list[Exchange]) -> list[pb.ForwardBackwardRequest]:
    return [forward_backward(exchange) for exchange in of(exchanges, "forward_backward")]


POLLS = {"retrieve_future", "session_heartbeat", "client", "healthz"}


def test_both_arms_make_the_same_calls(requests_by_arm: Requests) -> None:
    kinds = [
        Counter(endpoint(e) for e in exchanges if endpoint(e) not in POLLS)
        for exchanges in requests_by_arm.values()
    ]
    assert kinds[0] == kinds[1], f"calls by endpoint differ: {kinds[0]} and {kinds[1]}"
    assert kinds[0]["asample"] == STEPS * ROLLOUTS, kinds[0]
    assert kinds[0]["optim_step"] == STEPS, kinds[0]
    for arm, exchanges in requests_by_arm.items():
        forward_only = [request.forward_only for request in passes(exchanges)]
        assert forward_only == [True] + [False] * STEPS, (
            f"{arm}: one proof of the start and then one pass a step, found {forward_only}"
        )


def test_sampling_parameters_are_equal(requests_by_arm: Requests) -> None:
    seen = {
        arm: {
            json.dumps([{**e.json()["sampling_params"], "seed": 0}, e.json()["num_samples"]])
            for e in of(exchanges, "asample")
        }
        for arm, exchanges in requests_by_arm.items()
    }
    first, second = seen.values()
    assert first == second, f"sampling parameters differ: {seen}"
    assert len(first) == 1, f"one set of parameters for every rollout, found {first}"


def test_every_rollout_has_a_seed_of_its_own_the_same_in_both_arms(
    requests_by_arm: Requests,
) -> None:
    seen = [
        sorted(e.json()["sampling_params"]["seed"] for e in of(exchanges, "asample"))
        for exchanges in requests_by_arm.values()
    ]
    planned = sorted(rollout_seed(0, step, i) for step in range(STEPS) for i in range(ROLLOUTS))
    assert seen == [planned, planned], f"seeds sent {seen[0][:3]}…, planned {planned[:3]}…"
    assert len(set(planned)) == STEPS * ROLLOUTS, "a seed is used twice"


def test_a_state_to_go_on_from_is_saved_after_every_step(requests_by_arm: Requests) -> None:
    for arm, exchanges in requests_by_arm.items():
        saved = [e.json()["path"] for e in of(exchanges, "save_weights")]
        assert sorted(saved) == ["000001", "000002", "final"], f"{arm}: states saved {saved}"


def test_the_optimizer_is_asked_for_the_same_step(requests_by_arm: Requests) -> None:
    seen = [
        [e.json()["adam_params"] for e in of(exchanges, "optim_step")]
        for exchanges in requests_by_arm.values()
    ]
    assert seen[0] == seen[1], f"Adam parameters differ: {seen}"
    assert seen[0][0]["learning_rate"] == 3e-4


def test_both_arms_load_one_state_without_optimizer(requests_by_arm: Requests) -> None:
    loads: list[dict[str, Any]] = [
        e.json() for exchanges in requests_by_arm.values() for e in of(exchanges, "load_weights")
    ]
    assert len(loads) == 2
    assert len({load["path"] for load in loads}) == 1, "the arms started from different states"
    assert [load["optimizer"] for load in loads] == [False, False]


def shape_of(request: pb.ForwardBackwardRequest) -> dict[str, Any]:
    """Everything a training request says but prompts, samples and advantages."""
    return {
        "loss_fn": request.loss_fn,
        "loss_fn_config": dict(request.loss_fn_config),
        "loss_fn_config_v2": str(dict(request.loss_fn_config_v2)),
        "forward_only": request.forward_only,
        "inputs": sorted({key for datum in request.data for key in datum.loss_fn_inputs}),
        "dtypes": sorted(
            {
                (key, tensor.dtype)
                for datum in request.data
                for key, tensor in datum.loss_fn_inputs.items()
            }
        ),
        "datums": len(request.data),
    }


def test_training_requests_differ_in_content_only(requests_by_arm: Requests) -> None:
    shapes = [
        [shape_of(request) for request in passes(exchanges) if not request.forward_only]
        for exchanges in requests_by_arm.values()
    ]
    assert shapes[0] == shapes[1], f"training requests differ in form: {shapes}"
    assert shapes[0][0]["loss_fn"] == "importance_sampling"
    assert shapes[0][0]["inputs"] == ["advantages", "logprobs", "target_tokens"]
    assert shapes[0][0]["datums"] == ROLLOUTS


def prompts(exchanges: list[Exchange]) -> Counter[tuple[int, ...]]:
    return Counter(
        tuple(token for chunk in e.json()["prompt"]["chunks"] for token in chunk["tokens"])
        for e in of(exchanges, "asample")
    )


def test_prompts_are_grouped_as_planned(requests_by_arm: Requests) -> None:
    grpo, gs1 = prompts(requests_by_arm["grpo_gs8_seed0"]), prompts(requests_by_arm["gs1_seed0"])
    assert set(grpo.values()) == {8}, f"grpo samples each prompt 8 times, found {grpo.values()}"
    assert set(gs1.values()) == {1}, f"gs1 samples each prompt once, found {set(gs1.values())}"
    assert (len(grpo), len(gs1)) == (STEPS * 8, STEPS * 64)
    assert set(grpo) < set(gs1), "the arms do not take their prompts from one order"


def test_no_request_was_refused(requests_by_arm: Requests) -> None:
    refused = {
        (endpoint(e), e.status)
        for exchanges in requests_by_arm.values()
        for e in exchanges
        if e.status >= 400 and e.status != 408
    }
    assert not refused, f"the service refused {refused}"


def test_no_telemetry_left(requests_by_arm: Requests) -> None:
    sent = [e for exchanges in requests_by_arm.values() for e in of(exchanges, "telemetry")]
    assert not sent, f"{len(sent)} telemetry requests left the process"


def test_paths_stay_under_the_api(requests_by_arm: Requests) -> None:
    outside = {
        e.path
        for exchanges in requests_by_arm.values()
        for e in exchanges
        if not Path(e.path).is_relative_to("/api/v1")
    }
    assert not outside, f"requests outside the API: {outside}"
