"""The quick reader of JSON lines gives what the strict parser gives, or leaves the file to it."""

from __future__ import annotations

import gc
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from harness.digest import parse_json, sha256_bytes
from harness.errors import DocumentError
from harness.observations import ROW_FIELDS, read_observations
from harness.plain_rows import MAX_PLAIN_LINE, plain_rows, uncollected

FIELDS = len(ROW_FIELDS)
ROW: dict[str, Any] = {
    "item_id": "item-1",
    "arm": "new",
    "seed": 3,
    "metric": "accuracy",
    "value": 0.5,
    "evaluator_id": "e",
}
LINE = json.dumps(ROW)


def strict_rows(data: bytes) -> list[Any] | None:
    """Return the rows by the strict parser, None where it refuses one."""
    try:
        return [parse_json(line, where="row") for line in data.splitlines()]
    except DocumentError:
        return None


def test_usual_rows_are_read_at_once() -> None:
    lines = [json.dumps(ROW | {"item_id": at, "value": at / 7}).encode() for at in range(50)]
    assert plain_rows(lines, FIELDS) == strict_rows(b"\n".join(lines))


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [""],
        [LINE, ""],
        [LINE[:-1] + ', "seed": 4}'],
        [LINE.replace('"seed": 3', '"seed": 3, "seed": 3').replace('"value": 0.5, ', "")],
        [f"{LINE}, {LINE}", LINE[:40], LINE[40:]],
        [f"{LINE}, {LINE}", "{" + LINE[1:20] + "}", "{" + LINE[20:]],
        [LINE.replace("item-1", "item:1")],
        [LINE.replace("item-1", "item{1")],
        [LINE.replace("item-1", "\\ud800")],
        [LINE.replace("item-1", "é")],
        [LINE.replace("0.5", "[" * 70 + "]" * 70)],
        [LINE.replace("0.5", "9" * (MAX_PLAIN_LINE + 1))],
        [LINE.replace("0.5", "{}")],
        [LINE + " "],
        [" " + LINE],
        [LINE.replace("item-1", "item\t1")],
        ["[]"],
        ["3"],
    ],
)
def test_unusual_lines_are_left_to_the_strict_parser(lines: list[str]) -> None:
    assert plain_rows([line.encode() for line in lines], FIELDS) is None


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 309])
def test_a_number_that_is_not_finite_is_refused_by_name(tmp_path: Path, number: str) -> None:
    data = (LINE + "\n" + LINE.replace("0.5", number)).encode()
    (tmp_path / "rows").write_bytes(data)
    reference = {"name": "rows", "sha256": sha256_bytes(data)}
    with pytest.raises(DocumentError, match=r"a number JSON does not have.*rows, line 2"):
        read_observations({"version": 1, "observations_file": reference}, tmp_path)


PIECES = ["{", "}", '"', ":", ",", "[", "]", "\n", "\r", " ", "\\", "\\u0041", "\\ud800", "\t"]
PIECES += ["NaN", "1e999", "1e5", "-0", "00", "true", "null", "é", '"seed": 3, ', '"x": 1', LINE]


def edited(rng: random.Random) -> bytes:
    """Return three good lines with one or two random edits."""
    text = "\n".join([LINE, LINE.replace("new", "old"), LINE.replace("3", "4")])
    for _ in range(rng.randint(1, 2)):
        at, cut = rng.randrange(len(text)), rng.choice([0, 1, 3, 15, 120])
        piece = rng.choice([*PIECES, text[at : at + cut]])
        text = text[:at] + piece + text[at + cut :]
    return text.encode()


def test_what_is_read_at_once_is_what_the_strict_parser_reads() -> None:
    """Whatever the edits, rows that come out are the strict ones, never others."""
    rng = random.Random(7)
    read = 0
    for data in (edited(rng) for _ in range(4000)):
        found = plain_rows(data.splitlines(), FIELDS)
        numbers = [v for row in found or () for v in row.values() if isinstance(v, float)]
        if found is not None and all(map(math.isfinite, numbers)):
            read += 1
            strict = strict_rows(data)
            assert repr(found) == repr(strict), f"{data!r}: {found}, the strict parser {strict}"
    assert read > 300, f"only {read} of 4000 texts were read at once: the test shows little"


def test_the_collector_is_held_and_goes_on() -> None:
    with uncollected():
        held = gc.isenabled()
        with uncollected():
            pass
        still = gc.isenabled()
    with pytest.raises(ValueError, match="x"), uncollected():
        raise ValueError("x")
    assert (held, still, gc.isenabled()) == (False, False, True)
