"""What a service needs is named before anything starts; its headers go to it and nowhere else."""

from __future__ import annotations

import io
import json
import urllib.request
from http.client import HTTPMessage
from pathlib import Path

import pytest
from mini_project import ROOT, make_project

from harness.doctor import rank_check, sdk_check
from harness.errors import UsageError
from harness.proxy_headers import also_at, dressed, environment_of, headers_sent
from harness.secrets_out import without_secrets
from harness.service_access import choose_service, service_address
from harness.service_profiles import PROFILES, SdkRange, profile_named
from harness.session import HarnessSession, Options
from harness.spec import load_spec

pytest_plugins = ["pytester"]

LOCAL = load_spec(ROOT / "specs" / "local.json")
ALL_VARIABLES = {name for profile in PROFILES.values() for name in profile.needed}
SPINDLE = {
    "TINKER_BASE_URL": "https://spindle.example",
    "TINKER_API_KEY": "tml-not-for-anybody",
    "MODAL_PROXY_TOKEN_ID": "wk-the-identity",
    "MODAL_PROXY_TOKEN_SECRET": "ws-the-secret-itself",
}
HEADERS = {"Modal-Key": "wk-the-identity", "Modal-Secret": "ws-the-secret-itself"}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ALL_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("service", "missing"),
    [
        ("spindle", list(SPINDLE)),
        (
            "fork",
            ["TINKER_BASE_URL", "TINKER_API_KEY", "RUNS_PROXY_TOKEN_ID", "RUNS_PROXY_TOKEN_SECRET"],
        ),
        ("tinker", ["TINKER_API_KEY"]),
        ("url", ["TINKER_BASE_URL", "TINKER_API_KEY"]),
    ],
)
def test_missing_variables_are_named_before_anything_starts(
    service: str, missing: list[str], pytester: pytest.Pytester
) -> None:
    make_project(pytester)
    result = pytester.runpytest_inprocess("-m", "preflight", "--service", service)
    text = result.stderr.str()
    assert result.ret == 4, text
    assert f"missing: {', '.join(missing)}" in text
    assert f"--service {service}" in text
    assert not (pytester.path / "artifacts").exists(), "something was started"


def test_an_empty_variable_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SPINDLE.items():
        monkeypatch.setenv(name, value)
    assert choose_service("spindle", LOCAL.spec) == "spindle"
    monkeypatch.setenv("MODAL_PROXY_TOKEN_SECRET", "")
    with pytest.raises(UsageError, match=r"found: missing: MODAL_PROXY_TOKEN_SECRET \|"):
        choose_service("spindle", LOCAL.spec)


def test_a_fork_is_not_opened_with_the_shared_services_tokens() -> None:
    with pytest.raises(UsageError, match="RUNS_PROXY_TOKEN_ID, RUNS_PROXY_TOKEN_SECRET"):
        environment_of("fork", SPINDLE)
    assert profile_named("spindle").header_values(SPINDLE) == HEADERS


def test_the_hosted_services_address_is_the_sdks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert service_address("tinker").startswith("https://")
    monkeypatch.setenv("TINKER_BASE_URL", "https://other.example")
    assert service_address("tinker") == "https://other.example"
    assert service_address("spindle", {}) == "", "a profile that needs an address invents none"


def sent_to(url: str) -> dict[str, str]:
    request = dressed(urllib.request.Request(url))
    return {name: value for name, value in request.header_items() if name.startswith("Modal")}


def test_headers_go_to_their_address_only() -> None:
    base = SPINDLE["TINKER_BASE_URL"]
    with headers_sent(base, HEADERS):
        assert sent_to(f"{base}/api/v1/healthz") == {
            "Modal-key": HEADERS["Modal-Key"],
            "Modal-secret": HEADERS["Modal-Secret"],
        }
        assert sent_to(f"{base}:443/x"), "443 is the port of https"
        for other in ("https://storage.example/x", "http://spindle.example/", f"{base}:8443/"):
            assert sent_to(other) == {}, f"the tokens would go to {other}"
        with also_at("http://127.0.0.1:9", base):
            assert sent_to("http://127.0.0.1:9/api/v1/healthz"), "the capacity gate's own proxy"
        assert sent_to("http://127.0.0.1:9/") == {}
    assert sent_to(base) == {}, "the headers outlive their block"


def test_a_redirect_does_not_take_the_headers_along() -> None:
    base = SPINDLE["TINKER_BASE_URL"]
    with headers_sent(base, HEADERS):
        request = dressed(urllib.request.Request(f"{base}/a"))
        after = urllib.request.HTTPRedirectHandler().redirect_request(
            request, io.BytesIO(), 302, "Found", HTTPMessage(), "https://elsewhere.example/b"
        )
    assert after is not None
    assert "wk-the-identity" not in str(after.header_items())


def test_token_values_are_taken_out_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODAL_PROXY_TOKEN_ID", "RUNS_PROXY_TOKEN_ID", "RUNS_PROXY_TOKEN_SECRET"):
        monkeypatch.setenv(name, f"value-of-{name.lower()}")
        text = without_secrets(f"refused: value-of-{name.lower()}")
        assert text == f"refused: [redacted:{name}]"


@pytest.mark.parametrize(
    ("version", "inside"),
    [
        *(("0.25.0", True), ("0.33", True), ("0.33.1", True), ("0.33.1rc1", True)),
        *(("0.24.1", False), ("0.34.0", False), ("0.38.0", False), ("1.0", False)),
    ],
)
def test_an_sdk_range_includes_both_ends(version: str, inside: bool) -> None:
    assert SdkRange("0.25", "0.33").holds(version) is inside


def test_the_doctor_warns_outside_a_profiles_range_and_says_what_is_not_known() -> None:
    spindle, unknown = profile_named("spindle"), profile_named("tinker")
    assert sdk_check(spindle, "0.33.1").word == "ok"
    outside = sdk_check(spindle, "0.38.0")
    assert outside.word == "warn"
    assert "tinker 0.38.0, but spindle is known for 0.25 to 0.33" in outside.found
    assert sdk_check(spindle, None).word == "warn"
    assert "nothing is known" in sdk_check(unknown, "0.38.0").found


def test_the_doctor_warns_of_a_rank_that_is_not_offered(tmp_path: Path) -> None:
    assert list(rank_check(profile_named("spindle"), LOCAL)) == []
    raw = json.loads((ROOT / "specs" / "local.json").read_text())
    raw["lora_rank"] = 33
    for arm in raw["restoration_preflight"]["groups"][0]["arms"]:
        arm["optimizer_config"]["lora_rank"] = 33
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(raw))
    (finding,) = rank_check(profile_named("spindle"), load_spec(path))
    assert (finding.word, finding.name) == ("warn", "lora rank")


def test_gpu_hours_are_zero_only_where_nothing_has_gpus() -> None:
    counts = {name: profile.budget.gpu_count for name, profile in PROFILES.items()}
    assert counts == {"embedded": 0, "spindle": None, "fork": None, "tinker": None, "url": None}


def test_another_service_is_another_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SPINDLE.items():
        monkeypatch.setenv(name, value)
    path = ROOT / "specs" / "local.json"
    session = HarnessSession(Options(ROOT, path, "spindle"), report=[].append)
    identity = session.binding().service
    assert identity == {"service": "spindle", "base_url": "https://spindle.example"}
