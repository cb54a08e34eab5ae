"""A whole small run with canaries planted, failures included: every byte it wrote is searched.

The service is the embedded one behind a recording proxy, so that what left on the wire is seen
too: no request is telemetry and no canary is in any request or answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from canaries import canaries, leaks, leaks_under
from mini_project import ROOT
from recording_proxy import Recording, recording_proxy
from small_run import GRPO, GS1, all_standing, small_spec_json, write_rows

from harness.errors import ServiceError
from harness.evaluate import BASE_ARM
from harness.experiment import Experiment
from harness.local_service.process import start_service
from harness.session import HarnessSession, Options

pytestmark = [pytest.mark.live, pytest.mark.slow]
URL_PASSWORD = "Cnry-pass-in-url-9"
VALUES = canaries() | {"URL_PASSWORD_KEY": URL_PASSWORD}
LOUD_SITE = """
import os, sys
# Every stage of the run says each secret as it starts.
if any(part in " ".join(sys.orig_argv) for part in ("harness.arm", "harness.evaluate")):
    print("started with", {k: v for k, v in os.environ.items() if "CANARY" in k or "TOKEN" in k})
"""


@dataclass(frozen=True)
class Ran:
    """What a run left: its folder, what it said, what it sent."""

    folder: Path
    said: list[str]
    recording: Recording


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("canary-run")
    spec = folder / "canary.json"
    spec.write_text(json.dumps(small_spec_json()))
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(LOUD_SITE)
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in VALUES.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(site))
        patch.setenv("TINKER_TELEMETRY", "1")
        with (
            start_service(folder / "service", base_model="embedded/gradeschool") as service,
            recording_proxy(service.base_url) as recording,
        ):
            patch.setenv("TINKER_BASE_URL", recording.base_url)
            patch.setenv("TINKER_API_KEY", service.api_key)
            rows = write_rows(folder / "rows")
            options = Options(ROOT, spec, "url", artifacts=folder / "artifacts", gsm8k_dir=rows)
            session = HarnessSession(options, report=said.append)
            vars(session)["standings"] = lambda: all_standing(*session.required)
            experiment = Experiment(session)
            experiment.ensure_initial_state()
            experiment.evaluate(BASE_ARM)
            for arm in (GRPO, GS1):
                experiment.train(arm)
                experiment.evaluate(arm)
            experiment.decide()
            said += failures(experiment, patch)
        VALUES["TINKER_API_KEY"] = service.api_key
        yield Ran(folder, said, recording)


def failures(experiment: Experiment, patch: pytest.MonkeyPatch) -> list[str]:
    """Let an arm fail in its own process and one on a service that is not there."""
    said: list[str] = []
    pilot = experiment.pilot(1)
    start = '{"checkpoint_uri": "tinker://none", "adapter_sha256": "0"}'
    (pilot.run.folder / "initial.json").write_text(start)
    with pytest.raises(ServiceError, match="not a checkpoint") as failed:
        pilot.train(GRPO)
    said.append(str(failed.value))
    patch.setenv("TINKER_BASE_URL", f"http://user:{URL_PASSWORD}@127.0.0.1:9")
    with pytest.raises(ServiceError, match="does not answer") as unreachable:
        pilot.stages.run_arm_stage("harness.arm", GS1, lambda: lambda: None)
    return [*said, str(unreachable.value)]


def test_the_processes_did_say_their_secrets(ran: Ran) -> None:
    logs = [*(ran.folder / "artifacts").rglob("*.log")]
    stages = [log for log in logs if log.name.startswith(("arm-", "evaluate-"))]
    assert len(stages) == 6, f"two arms, three scores, one failure: {[p.name for p in stages]}"
    silent = [log.name for log in stages if "[redacted:HF_TOKEN]" not in log.read_text()]
    assert silent == [], f"stages whose secret was not there to be taken out: {silent}"


def test_no_byte_of_the_run_holds_a_secret(ran: Ran) -> None:
    files = [path for path in ran.folder.rglob("*") if path.is_file()]
    assert len(files) >= 40, f"{len(files)} files"
    assert leaks_under(ran.folder, VALUES) == []
    assert len(ran.said) >= 10, f"the run said {ran.said}"
    assert leaks("\n".join(ran.said).encode(), VALUES) == []


def test_nothing_left_on_the_wire_but_the_key_in_its_header(ran: Ran) -> None:
    exchanges = ran.recording.exchanges
    assert len(exchanges) >= 50, f"{len(exchanges)} requests"
    telemetry = [seen.path for seen in exchanges if "telemetry" in seen.path]
    assert telemetry == [], "telemetry left the process although the harness turns it off"
    for seen in exchanges:
        others = {k: v for k, v in seen.headers.items() if k.lower() != "x-api-key"}
        sent = seen.body + seen.path.encode() + json.dumps(others).encode()
        assert leaks(sent, VALUES) == [], f"in {seen.method} {seen.path}"
