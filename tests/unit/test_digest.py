"""Canonical JSON, strict parsing and digests, against bytes written out by hand."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.digest import MAX_DEPTH, canonical_json, parse_json, sha256_file, sha256_json
from harness.errors import DocumentError

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
finite = scalars.filter(lambda value: value not in {float("inf"), float("-inf")})
documents = st.recursive(
    finite, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)


def test_the_canonical_form_is_the_contracts() -> None:
    document = {"b": [1, 2.5, True, None], "a": "é\n", "c": {"z": 1e-08, "y": -0.0}}
    expected = b'{"a":"\\u00e9\\n","b":[1,2.5,true,null],"c":{"y":-0.0,"z":1e-08}}'
    assert canonical_json(document) == expected
    assert sha256_json(document) == hashlib.sha256(expected).hexdigest()


@settings(derandomize=True, deadline=None, max_examples=200)
@given(documents)
def test_parsing_the_canonical_form_gives_the_value_back(document: Any) -> None:
    parsed = parse_json(canonical_json(document), where="sample")
    assert parsed == document
    assert canonical_json(parsed) == canonical_json(document)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_key_order_does_not_change_the_digest(document: dict[str, int]) -> None:
    assert sha256_json(dict(reversed(list(document.items())))) == sha256_json(document)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), {"a": [float("-inf")]}, {1, 2}, b"x", object()]
)
def test_a_value_without_a_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(DocumentError):
        canonical_json(value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1, "a": 1}', "'a' again"),
        ('{"deep": [{"k": 1, "k": 2}]}', "'k' again"),
        ("[NaN]", "NaN"),
        ("[Infinity]", "Infinity"),
        ("[-Infinity]", "-Infinity"),
        ("[1e400]", "1e400"),
        ("[1,]", "strict JSON"),
        ("{'a': 1}", "strict JSON"),
        ("1 2", "strict JSON"),
        ("", "strict JSON"),
        (b'"\xff"', "UTF-8"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested too deeply"),
        ("[" * 100_000 + "]" * 100_000, "strict JSON|nested too deeply"),
    ],
)
def test_what_is_not_strict_json_is_refused(text: str | bytes, found: str) -> None:
    with pytest.raises(DocumentError, match=found) as caught:
        parse_json(text, where="trial.json")
    assert "trial.json" in str(caught.value)


def test_the_deepest_allowed_nesting_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert json.dumps(parse_json(text, where="deep")) == text


def test_one_key_in_two_objects_is_no_duplicate() -> None:
    assert parse_json('[{"a": 1}, {"a": 2}]', where="rows") == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_a_files_digest_covers_every_byte(size: int, tmp_path: Path) -> None:
    content = bytes(index * 31 % 251 for index in range(size))
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    assert sha256_file(path) == hashlib.sha256(content).hexdigest()
