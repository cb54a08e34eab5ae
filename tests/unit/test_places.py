"""A run's logs name no folder of the machine it was made on."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from harness.places import known_places, without_places
from harness.stage_log import LogCopy, scrub_files

PROJECT = Path(__file__).parents[2]


def test_each_known_folder_has_a_name_and_the_longest_wins(tmp_path: Path) -> None:
    run = PROJECT / "artifacts" / "runs" / "local" / "one"
    places = known_places(run)
    text = f"{run}/logs {PROJECT}/harness/arm.py {sys.prefix}/lib elsewhere/file"
    said = without_places(text, places)
    assert said.startswith("<run>/logs <project>/harness/arm.py <python>/lib"), said
    assert said.endswith(" elsewhere/file"), "other paths stay"
    assert str(tmp_path) in known_places(tmp_path)


def test_a_stages_log_and_the_loops_files_hold_none(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    line = f"saved to {tmp_path}/arms/a by {PROJECT}/harness/arm.py\n"
    LogCopy(io.BytesIO(line.encode()), logs / "arm.log").join()
    assert (logs / "arm.log").read_text() == "saved to <run>/arms/a by <project>/harness/arm.py\n"
    cookbook = tmp_path / "cookbook"
    cookbook.mkdir()
    (cookbook / "config.json").write_text(f'{{"log_path": "{tmp_path}/cookbook"}}')
    assert scrub_files(cookbook, tmp_path) == [], "a path is no secret"
    assert (cookbook / "config.json").read_text() == '{"log_path": "<run>/cookbook"}'
