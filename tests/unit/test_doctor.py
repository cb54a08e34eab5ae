"""``doctor``: each check fails on the fault it is for, says what to do, and shows no value."""

from __future__ import annotations

import shutil
import socket
from importlib.metadata import version
from pathlib import Path

import pytest
from mini_project import ROOT, pinned_local
from small_run import small_spec_json, write_rows, write_spec

from harness import pins
from harness.__main__ import main
from harness.doctor import (
    disk_check,
    exit_code,
    loopback_check,
    model_check,
    packages_check,
    pins_check,
    python_check,
    rows_check,
    service_checks,
    threads_check,
    variables_check,
)
from harness.sdk_generation import COOKBOOK_WHEELS
from harness.service_access import MODEL_DIR
from harness.spec import load_spec

LOCAL = load_spec(ROOT / "specs" / "local.json")
SAVED = load_spec(ROOT / "specs" / "exp_6ba12d6b47.json")
KEY = "tml-not-for-anybody-0123456789"


def test_an_old_python_fails() -> None:
    assert python_check((3, 10, 9)).word == "fail"
    assert python_check((3, 11, 0)).word == "ok"


def test_packages_are_compared_with_the_pinned_versions() -> None:
    constraints = "# pinned\ntorch==2.13.0\n\nnumpy==2.4.6\n"
    same = {"torch": "2.13.0+cpu", "numpy": "2.4.6"}
    assert packages_check(constraints, same.get).word == "ok", "a build tag is the same version"
    other = packages_check(constraints, {**same, "numpy": "2.4.5"}.get)
    assert (other.word, other.found) == ("warn", "numpy 2.4.5 instead of 2.4.6")
    missing = packages_check(constraints, {"torch": "2.13.0"}.get)
    assert (missing.word, missing.found) == ("fail", "missing: numpy")
    assert missing.fix


def test_thread_pools_are_named_with_the_export() -> None:
    held = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    assert threads_check(held).word == "ok"
    finding = threads_check({**held, "OMP_NUM_THREADS": "8"})
    assert (finding.word, finding.fix) == ("warn", "export OMP_NUM_THREADS=1")


def test_a_full_disk_and_a_file_in_the_way_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert disk_check(tmp_path / "artifacts").word in {"ok", "warn"}
    (tmp_path / "file").write_text("")
    assert disk_check(tmp_path / "file").word == "fail"
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    assert disk_check(tmp_path).word == "fail"


def test_variables_are_said_to_be_set_and_never_shown() -> None:
    finding = variables_check({"TINKER_API_KEY": KEY})
    said = "TINKER_BASE_URL not set, TINKER_API_KEY set, MODAL_PROXY_TOKEN_ID not set"
    assert finding.found.startswith(said), finding.found


@pytest.fixture
def pinned(tmp_path: Path) -> Path:
    """The local spec with pins of what is installed: the repository's name one cookbook."""
    return pinned_local(tmp_path)


def test_changed_code_fails_the_pins(tmp_path: Path, pinned: Path) -> None:
    loaded = load_spec(pinned)
    assert pins_check(loaded, ROOT).word == "ok"
    shutil.copytree(ROOT / "harness", tmp_path / "harness", ignore=lambda *_: ["model"])
    with (tmp_path / "harness" / "reference.py").open("a") as stream:
        stream.write("# reviewed again\n")
    finding = pins_check(loaded, tmp_path)
    assert finding.word == "fail"
    assert finding.fix == f"python -m harness pin {pinned}"


def test_pins_of_the_other_generation_fail_by_name(
    pinned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_spec(pinned)
    here = version("tinker-cookbook")
    (other,) = set(COOKBOOK_WHEELS) - {here}
    monkeypatch.setattr(pins.metadata, "version", lambda _name: other)
    finding = pins_check(loaded, ROOT)
    assert finding.word == "fail"
    assert f"pinned to 'tinker-cookbook {here} wheel" in finding.found
    assert f"installed is tinker-cookbook {other};" in finding.found


def test_rows_are_counted_offline_and_unknown_where_they_need_a_network(tmp_path: Path) -> None:
    assert rows_check(LOCAL, None).found == "7473 train rows, 1319 test rows"
    assert rows_check(SAVED, None).word == "unknown"
    loaded = write_spec(tmp_path, small_spec_json())
    rows = write_rows(tmp_path / "rows")
    assert rows_check(loaded, rows).found == "12 train rows, 40 test rows"
    (rows / "test.jsonl").write_text('{"question": "q", "answer": "#### 1"}\n')
    finding = rows_check(loaded, rows)
    assert finding.word == "fail"
    assert "expected: 40 rows | found: 1 rows" in finding.found


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_one_changed_byte_of_model_or_tokenizer_fails(tmp_path: Path, name: str) -> None:
    assert model_check(LOCAL, MODEL_DIR).word == "ok"
    folder = tmp_path / "model"
    shutil.copytree(MODEL_DIR, folder)
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    finding = model_check(LOCAL, folder)
    assert (finding.word, finding.found) == ("fail", f"not as recorded: {name}")
    (folder / name).unlink()
    assert model_check(LOCAL, folder).word == "fail"
    assert model_check(SAVED, MODEL_DIR).found == "not the one that the spec was written for"


def test_a_service_that_is_needed_and_not_named_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TINKER_BASE_URL", "TINKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    findings = list(service_checks(SAVED, None, {"TINKER_API_KEY": KEY}))
    sdk, named = findings
    assert sdk.name == "sdk"
    assert (named.word, named.found) == ("fail", "not set: TINKER_BASE_URL")
    assert exit_code(findings) == 1


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("http://127.0.0.1:{port}", marks=pytest.mark.live),
        "http://[bad",
        "nothing at all",
    ],
)
def test_a_service_that_does_not_answer_fails_where_it_is_used(address: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"TINKER_BASE_URL": address.format(port=port), "TINKER_API_KEY": KEY}
    used = list(service_checks(SAVED, None, environment))
    assert [finding.word for finding in used] == ["ok", "fail"]
    assert used[1].fix
    unused = list(service_checks(LOCAL, None, environment))
    assert [finding.word for finding in unused] == ["ok", "ok", "ok", "warn"]
    assert KEY not in "\n".join(map(str, [*used, *unused]))


def test_a_machine_without_loopback_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("harness.doctor.socket.socket", refuse)
    finding = loopback_check()
    assert (finding.word, finding.found) == ("fail", "Permission denied")


def test_the_command_prints_one_line_a_check_and_their_sum(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pinned: Path,
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    assert main(["doctor", str(pinned)]) == 0
    out = capsys.readouterr().out
    names = [line.split(":")[0].split()[-1] for line in out.splitlines()[:-2]]
    assert names == [
        *("python", "packages", "threads", "disk", "variables"),
        *("spec", "pins", "rows", "sdk", "model", "loopback"),
    ]
    assert out.splitlines()[-2].startswith("11 checks: ")
    assert out.splitlines()[-1].startswith("next: python -m harness status ")
    assert KEY not in out
    assert main(["doctor", str(ROOT / "specs" / "exp_6ba12d6b47.json")]) == 1
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    assert main(["doctor", str(bad)]) == 1
    assert "fail     spec: " in capsys.readouterr().out
