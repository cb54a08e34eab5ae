"""Reading a small record takes little memory, whatever the limit of its kind is."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from harness.errors import StoreError
from harness.reading import MAX_ROWS_BYTES, read_regular


def test_a_small_file_takes_no_buffer_of_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    tracemalloc.start()
    data = read_regular(path, max_bytes=MAX_ROWS_BYTES)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data == b'{"a": 1}\n'
    assert peak < 2**20, f"peak {peak} bytes for a file of {len(data)}, allowed 1 MiB"


@pytest.mark.parametrize(("size", "fits"), [(10, True), (11, False), (5000, False)])
def test_the_limit_is_kept_to_the_byte(tmp_path: Path, size: int, fits: bool) -> None:
    path = tmp_path / "document"
    path.write_bytes(b"x" * size)
    if fits:
        assert len(read_regular(path, max_bytes=10)) == size
    else:
        with pytest.raises(StoreError, match="at most 10 bytes"):
            read_regular(path, max_bytes=10)
