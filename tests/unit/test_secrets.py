"""Canary values in the environment reach no record, log, message, report or traceback."""

from __future__ import annotations

import base64
import io
import json
import logging
import pickle
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from canaries import canaries, leaks, leaks_under
from mini_project import make_project

from harness.__main__ import main
from harness.errors import ArmError, DocumentError, HarnessError, SecretError
from harness.gates.binding import Binding
from harness.gates.evidence import EvidenceWriter, read_session
from harness.output_guard import SecretFreeRecord, redacted_result
from harness.secrets_out import add_secret, current_redactor, without_secrets
from harness.stage import run_stage
from harness.stage_log import clean_lines, scrub_files
from harness.store import append_jsonl, read_jsonl, write_json_atomic, write_jsonl_new, write_new

VALUES = canaries()
ANY = VALUES["HF_TOKEN"]
SHAPE = "sk-" + "a1B2c3D4" * 4


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VALUES.items():
        monkeypatch.setenv(name, value)


def spoken(value: str) -> str:
    """A text that gives a value away in several ways."""
    coded = base64.b64encode(f"user:{value}".encode()).decode()
    return f"plain {value} url https://h/?q={quote(value, '')} basic {coded} end"


ALL = " | ".join(map(spoken, VALUES.values()))


def test_the_search_finds_what_is_there() -> None:
    assert {leak.split(" ")[0] for leak in leaks(ALL.encode(), VALUES)} == set(VALUES)
    assert leaks(without_secrets(ALL).encode(), VALUES) == []
    assert without_secrets(ALL).startswith("plain [redacted:TINKER_CANARY_KEY] url ")


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_json_atomic(path, {"deep": [{"text": spoken(ANY)}]}),
        lambda path: write_json_atomic(path, {ANY: 1}),
        lambda path: write_jsonl_new(path, [{"a": 1}, {"text": spoken(ANY)}]),
        lambda path: append_jsonl(path, {"text": spoken(ANY)}),
        lambda path: write_new(path, spoken(ANY).encode()),
        lambda path: write_new(path, f"key {SHAPE}".encode()),
    ],
    ids=["document", "key", "rows", "appended", "bytes", "bytes with a token"],
)
def test_a_record_with_a_secret_is_refused_and_nothing_is_written(
    tmp_path: Path, write: Any
) -> None:
    path = tmp_path / "record.json"
    with pytest.raises(SecretError, match=r"record\.json") as caught:
        write(path)
    assert leaks(str(caught.value).encode(), VALUES) == []
    assert [*tmp_path.iterdir()] == []


def test_a_made_up_token_becomes_a_placeholder_that_says_so(tmp_path: Path) -> None:
    append_jsonl(tmp_path / "rows.jsonl", {"text": f"my key is {SHAPE}, so 42", "reward": 1.0})
    row = {"text": "my key is [redacted:sk_key], so 42", "reward": 1.0}
    assert read_jsonl(tmp_path / "rows.jsonl") == (row,)


def test_rows_without_a_secret_keep_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret made of digits does not touch numbers, and settings are no secrets."""
    monkeypatch.setenv("DIGITS_KEY", "123456")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("MODAL_ENVIRONMENT", "accuracy")
    row = {"accuracy": 0.123456, "tokens": [123456], "text": "1 and offline"}
    append_jsonl(tmp_path / "rows.jsonl", row)
    data = (tmp_path / "rows.jsonl").read_bytes()
    assert data == json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def test_evidence_holds_no_secret_and_its_chain_still_holds(tmp_path: Path) -> None:
    writer = EvidenceWriter(tmp_path, "spec", Binding({}, {}, {}), {})
    writer.gate_finished("g", {"reason": f"failed with {SHAPE}"})
    with pytest.raises(SecretError):
        writer.gate_finished("g", {"reason": spoken(ANY)})
    writer.close()
    found = read_session(writer.path)
    assert (found.broken, found.torn, len(found.events)) == ("", False, 2)
    assert leaks_under(tmp_path, VALUES) == []


@pytest.mark.parametrize("part", ["problem", "expected", "found", "where", "fix"])
def test_no_part_of_an_error_holds_a_secret(part: str) -> None:
    parts = {"problem": "p"} | {part: ALL}
    error = DocumentError(parts.pop("problem"), **parts)
    for text in (
        str(error),
        repr(error),
        str(vars(error)),
        pickle.dumps(vars(error)).decode("latin-1"),
    ):
        assert leaks(text.encode(), VALUES) == []


def test_log_records_are_clean_whoever_formats_them() -> None:
    def record(**keywords: Any) -> str:
        made = SecretFreeRecord("n", logging.ERROR, "p", 1, "said %s", (ALL,), **keywords)
        return logging.Formatter("%(message)s").format(made)

    try:
        raise ValueError(ALL)
    except ValueError:
        text = record(exc_info=sys.exc_info(), sinfo=ALL)
    assert "ValueError: plain [redacted:" in text
    assert leaks(text.encode(), VALUES) == []


STAGE = """
import base64, logging, os, sys, threading
from harness.output_guard import guard_output
value = os.environ["HF_TOKEN"]
print("printed", value, base64.b64encode(value.encode()).decode())
os.write(2, b"past Python " + value.encode() + b"\\n")
print("x" * 70000, value, "y" * 70000)
logging.basicConfig()
logging.error("logged %s", value)
print("given", os.environ["TINKER_API_KEY"])
if len(sys.argv) > 1: guard_output()
raise RuntimeError("raised " + value)
"""


@pytest.mark.parametrize("arguments", [[], ["guarded"]])
def test_a_failing_stage_leaves_no_secret_in_its_log_or_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "made_up_stage.py").write_text(STAGE)
    log = tmp_path / "logs" / "stage.log"
    given = "only-the-child-has-this-7"
    with pytest.raises(ArmError) as caught:
        run_stage(
            "made_up_stage",
            arguments,
            environment={"TINKER_API_KEY": given},
            log_path=log,
            on_poll=lambda: None,
        )
    said = log.read_text()
    for words in ("printed [red", "past Python [red", "logged [red", "given [red", "raised [red"):
        assert words in said, f"{words!r} is not in the log: {said[-600:]}"
    assert given not in said + str(caught.value)
    assert leaks(said.encode() + str(caught.value).encode(), VALUES) == []


def test_a_long_line_is_cut_but_never_through_a_secret() -> None:
    for before in range(2**20 - 60, 2**20 + 10, 7):
        line = b"a" * before + ANY.encode() + b"b" * 3_000_000 + b"\nnext\n"
        cut, following = clean_lines(io.BytesIO(line))
        assert leaks(cut.encode(), VALUES) == [], f"a secret is left after {before} bytes"
        assert ANY[:4] not in cut, f"a piece of a secret is left after {before} bytes"
        assert cut.endswith("aaa [the rest of this line was left out]\n")
        assert following == "next\n"


def test_files_of_a_library_are_gone_through(tmp_path: Path) -> None:
    (tmp_path / "code.diff").write_bytes(b"+key = " + ANY.encode() + b"\n\xff")
    (tmp_path / "metrics.jsonl").write_text('{"reward": 0.5}\n')
    assert scrub_files(tmp_path, tmp_path) == ["code.diff"]
    assert (tmp_path / "code.diff").read_bytes() == b"+key = [redacted:HF_TOKEN]\n\xff"
    assert (tmp_path / "metrics.jsonl").read_text() == '{"reward": 0.5}\n'
    assert redacted_result(lambda: ANY)() == "[redacted:HF_TOKEN]"


def test_a_secret_may_come_later_and_the_redactor_is_never_pickled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert without_secrets("late-value-1") == "late-value-1"
    monkeypatch.setenv("LATE_TOKEN", "late-value-1")
    assert without_secrets("late-value-1") == "[redacted:LATE_TOKEN]"
    add_secret("CHILD_KEY", "child-value-2")
    assert without_secrets("child-value-2") == "[redacted:CHILD_KEY]"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(current_redactor())


FAILING = """
import logging, os, sys, pytest
SECRET = os.environ["HF_TOKEN"]

def test_assertion():
    print("printed", SECRET)
    print("warned", SECRET, file=sys.stderr)
    logging.getLogger().error("logged %s", SECRET)
    assert SECRET == "something else"

def test_raised():
    raise RuntimeError(SECRET)

def test_skipped():
    pytest.skip("because " + SECRET)

@pytest.fixture
def broken():
    raise ValueError(SECRET)

def test_broken(broken):
    pass
"""


@pytest.mark.parametrize(
    "option",
    [
        "--showlocals",
        pytest.param("--tb=native", marks=pytest.mark.slow),
        pytest.param("--tb=line", marks=pytest.mark.slow),
    ],
)
def test_pytest_says_no_secret_whatever_fails(pytester: pytest.Pytester, option: str) -> None:
    root = make_project(pytester)
    (root / "tests" / "preflight" / "test_leaks.py").write_text(FAILING)
    (root / "tests" / "preflight" / "test_collect.py").write_text(
        "import os\nraise RuntimeError(os.environ['HF_TOKEN'])\n"
    )
    result = pytester.runpytest_subprocess(
        "-rA", "--junitxml=junit.xml", "--continue-on-collection-errors", option
    )
    out = result.outlines + result.errlines
    assert any("[redacted:HF_TOKEN]" in line for line in out)
    assert leaks("\n".join(out).encode(), VALUES) == []
    assert leaks((root / "junit.xml").read_bytes(), VALUES) == []
    for name in ("stdout", "stderr"):
        (root / name).unlink(missing_ok=True)
    assert leaks_under(root, VALUES) == []


@pytest.mark.parametrize("command", ["spec", "grade", "verify", "result", "bundle"])
def test_no_command_repeats_a_secret_from_what_it_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    for name in ("spec.json", "plan.json", "result.json"):
        (tmp_path / name).write_text(json.dumps({"title": ALL, ALL: 1}))
    path = tmp_path / "spec.json" if command in ("spec", "grade") else tmp_path
    extra = [str(tmp_path / "out")] if command == "bundle" else []
    assert main([command, str(path), *extra]) in (1, 3, 4)
    said = capsys.readouterr()
    assert said.out + said.err
    assert leaks((said.out + said.err).encode(), VALUES) == []


def test_a_refusal_says_which_variable_and_what_to_do() -> None:
    with pytest.raises(HarnessError, match=r"HF_TOKEN.*unset or rename the variable"):
        write_new(Path("never-written"), ANY.encode())
