"""Every reader, every kind of hostile file: an error that names the file, soon, and no traceback.

A reader is run in this process on a file that was put in place of the right one. What it may do:
refuse with a HarnessError that names the file, or, for rows and records that judge for themselves
(evidence, manifest), report the file as broken.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from complete_run import complete_run
from mini_project import ROOT

from harness.__main__ import grade_command, main
from harness.arm import read_done
from harness.correctness_record import read_record
from harness.digest import sha256_file
from harness.errors import HarnessError
from harness.gates.evidence import read_session
from harness.manifest import check_manifest
from harness.observations import read_observations
from harness.pins import load_pins
from harness.plan import read_plan
from harness.problems import load_problems
from harness.reading import MAX_DOCUMENT_BYTES, read_regular
from harness.result import read_result
from harness.spec import load_spec
from harness.store import append_jsonl, read_jsonl

SECONDS_ALLOWED = 20.0
"""For one file, on a slow machine; what waits for a pipe or reads a device never ends."""
BYTES_ALLOWED = 300 * 1024 * 1024

Put = Callable[[Path], None]


def text(data: bytes) -> Put:
    return lambda path: put_bytes(path, data)


def put_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def big(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(50 * 1024 * 1024)


def outside(path: Path) -> None:
    other = path.parent.parent / "outside.json"
    other.write_text("{")
    path.symlink_to(other)


DEEP = b"[" * 100_000
CONTENTS: dict[str, Put] = {
    "empty": text(b""),
    "no JSON": text(b"{"),
    "deep lists": text(DEEP),
    "deep, closed": text(b"[" * 500 + b"]" * 500),
    "deep objects": text(b'{"a":' * 20_000),
    "huge float": text(b'{"a": 1e400}\n'),
    "5000 digits": text(b'{"a": ' + b"9" * 5000 + b"}\n"),
    "400 digits": text(b'{"a": ' + b"9" * 400 + b"}\n"),
    "a key twice": text(b'{"a": 1, "a": 1}\n'),
    "bad UTF-8": text(b'{"a": "\xff\xc0\xae"}\n'),
    "UTF-16": text('{"a": 1}'.encode("utf-16")),
    "BOM": text(b'\xef\xbb\xbf{"a": 1}\n'),
    "NaN": text(b'{"a": NaN}\n'),
    "Infinity": text(b'{"a": -Infinity}\n'),
    "half a surrogate pair": text(b'{"a": "\\ud800"}\n'),
    "half a pair as key": text(b'{"\\udfff": 1}\n'),
    "NUL": text(b"\x00" * 100),
    "escape codes": text(b'{"a": "\x1b[2J\x1b]0;owned\x07"}'),
    "one line of 5 MB": text(b'{"a": "' + b"x" * 5_000_000),
    "many values": text(b"[" + b"[]," * 3_000_000 + b"[]]"),
    "50 MB": big,
}
KINDS: dict[str, Put] = {
    "folder": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link outside": outside,
}
HOSTILE = CONTENTS | KINDS


def pins_of(path: Path) -> None:
    load_pins(path.with_name("hostile.json"))


def observations(path: Path) -> None:
    digest = sha256_file(path) if path.is_file() else "0" * 64
    reference = {"name": path.name, "sha256": digest}
    read_observations({"version": 1, "observations_file": reference}, path.parent)


def offline_rows(path: Path) -> None:
    spec = load_spec(ROOT / "specs" / "exp_6ba12d6b47.json").spec
    load_problems(spec, "train", path.parent)


def evidence(path: Path) -> None:
    found = read_session(path)
    if found.broken or found.torn:
        raise HarnessError(found.broken or "torn", where=path.name)
    if found.events == ():
        raise HarnessError("no event", where=path.name)


def manifest(path: Path) -> None:
    found = check_manifest(path.parent)
    if any(finding.kind == "chain" for finding in found):
        raise HarnessError(str(found), where=path.name)


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "spec": ("hostile.json", load_spec),
    "pins": ("hostile.pins.json", pins_of),
    "result": ("result.json", read_result),
    "plan": ("plan.json", lambda path: read_plan(path.parent, None)),
    "correctness": ("preflight.json", read_record),
    "rows": ("steps.jsonl", read_jsonl),
    "checkpoints of the stock loop": ("checkpoints.jsonl", read_jsonl),
    "observations": ("rows.jsonl", observations),
    "offline rows": ("train.jsonl", offline_rows),
    "evidence": ("session.jsonl", evidence),
    "manifest": ("manifest.jsonl", manifest),
    "done": ("done.json", lambda path: read_done(path.parents[2], path.parent.name)),
    "grade": ("answers.jsonl", lambda path: grade_command([str(path)])),
}
EMPTY_IS_RIGHT = {"rows", "checkpoints of the stock loop", "observations", "offline rows"}
"""Where no row is no error here; that rows are missing is said by who needs them."""


LARGE = {"50 MB", "many values", "one line of 5 MB", "deep lists", "link to a device"}


@pytest.fixture
def bounded(kind: str) -> Iterator[None]:
    """Fail when a reader takes more than the time or the memory that one file may cost."""
    if kind in LARGE:
        tracemalloc.start()
    started_s = time.monotonic()
    yield
    spent_s = time.monotonic() - started_s
    peak = tracemalloc.get_traced_memory()[1] if kind in LARGE else 0
    tracemalloc.stop()
    assert peak <= BYTES_ALLOWED, f"peak memory {peak} bytes, allowed {BYTES_ALLOWED}"
    assert spent_s <= SECONDS_ALLOWED, f"took {spent_s:.1f} s, allowed {SECONDS_ALLOWED} s"


@pytest.mark.parametrize("kind", sorted(HOSTILE))
@pytest.mark.parametrize("reader", sorted(READERS))
@pytest.mark.usefixtures("bounded")
def test_every_reader_refuses_every_hostile_file_by_name(
    tmp_path: Path, reader: str, kind: str
) -> None:
    name, read = READERS[reader]
    path = tmp_path / "run" / "arms" / "a" / name
    path.parent.mkdir(parents=True)
    HOSTILE[kind](path)
    if kind == "empty" and reader in EMPTY_IS_RIGHT - {"offline rows"}:
        read(path)
        return
    with pytest.raises(HarnessError) as caught:
        read(path)
    said = str(caught.value)
    assert path.stem in said or path.name in said or "train" in said, f"no file named: {said[:300]}"
    assert len(said) < 25_000, f"a message of {len(said)} characters"
    assert "\x1b" not in said, "an escape code reaches the terminal"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run; its folder's parent holds the offline rows."""
    return complete_run(tmp_path_factory.mktemp("hostile")).folder


FILES = (
    *(
        "plan.json",
        "spec.json",
        "spec.pins.json",
        "result.json",
        "manifest.jsonl",
        "evaluator.json",
    ),
    *("decision.json", "observations.jsonl", "predictions/base.jsonl", "initial.json"),
    *("arms/gs1_small/done.json", "arms/gs1_small/attempt-01/steps.jsonl"),
    *("arms/gs1_small/attempt-01/rollouts.jsonl", "arms/gs1_small/attempt-01/start.json"),
    "arms/gs1_small/attempt-01/effective_config.json",
    *("arms/gs1_small/attempt-01/start_adapter/adapter_model.safetensors", "gates"),
)
WRONG_FORMS: dict[str, Put] = {
    "null": text(b"null\n"),
    "a number": text(b"1\n"),
    "texts": text(b'["a", "b"]\n'),
    "other fields": text(b'{"a": {"b": []}}\n'),
}
IN_A_RUN = WRONG_FORMS | {
    kind: HOSTILE[kind]
    for kind in (
        "pipe",
        "folder",
        "link to a device",
        "link to itself",
        "deep lists",
        "5000 digits",
    )
}


QUICK = {"pipe", "other fields"}
"""What the normal profile puts in place of each file; the rest is for the slow one."""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow)
        for kind in sorted(IN_A_RUN)
    ],
)
@pytest.mark.parametrize("name", FILES)
def test_no_command_ends_in_a_traceback_on_a_damaged_run(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    shutil.copytree(finished.parent, tmp_path / "copy")
    run = tmp_path / "copy" / "run"
    if (run / name).is_dir():
        shutil.rmtree(run / name)
    else:
        (run / name).unlink(missing_ok=True)
    IN_A_RUN[kind](run / name)
    rows = str(run.parent / "rows")
    codes = {
        "verify": main(["verify", str(run), "--gsm8k-dir", rows]),
        "bundle": main(["bundle", str(run), str(tmp_path / "out")]),
        "result": main(["result", str(run)]),
    }
    said = capsys.readouterr()
    allowed = {"verify": {1, 3, 4}, "bundle": {0, 3, 4}, "result": {0, 4}}
    for command, code in codes.items():
        assert code in allowed[command], (
            f"{command} gave {code}, allowed {allowed[command]}: {said}"
        )
    assert "Traceback" not in said.out + said.err


def test_a_run_that_is_a_link_out_of_itself_is_not_believed(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished.parent, tmp_path / "copy")
    run = tmp_path / "copy" / "run"
    (run / "predictions").rename(tmp_path / "elsewhere")
    (run / "predictions").symlink_to(tmp_path / "elsewhere")
    assert main(["verify", str(run), "--gsm8k-dir", str(run.parent / "rows")]) == 1
    assert "predictions: a link or special file is no evidence" in capsys.readouterr().out


def test_rows_are_never_appended_through_a_link_or_into_a_pipe(tmp_path: Path) -> None:
    target = tmp_path / "target.jsonl"
    target.write_text('{"a": 1}\n')
    (tmp_path / "link.jsonl").symlink_to(target)
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name in ("link.jsonl", "pipe.jsonl"):
        with pytest.raises(HarnessError, match=name):
            append_jsonl(tmp_path / name, {"b": 2})
    assert target.read_text() == '{"a": 1}\n'


def test_the_limit_is_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "full.json"
    path.write_bytes(b" " * MAX_DOCUMENT_BYTES)
    assert len(read_regular(path)) == MAX_DOCUMENT_BYTES
    path.write_bytes(b" " * (MAX_DOCUMENT_BYTES + 1))
    with pytest.raises(HarnessError, match=r"full\.json"):
        read_regular(path)


def test_a_name_no_terminal_can_print_ends_nothing(tmp_path: Path) -> None:
    """The whole program, since only a real standard output is strict about characters."""
    path = tmp_path / os.fsdecode(b"bad-\xff-\x1b[2J.json")
    path.write_text("{")
    done = subprocess.run(
        [sys.executable, "-m", "harness", "spec", str(path)],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"\x1b" not in done.stderr
