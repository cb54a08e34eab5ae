"""What a run used is what its stages took, and nothing where nothing was timed."""

from __future__ import annotations

from pathlib import Path

from harness.timings import read_timings, record_timing, with_observed_usage

CPU = {"measurements": {"training": {"gpu_count": 0}}, "observed_usage": None}
SHARED = {"measurements": {"training": {"gpu_count": None}}}


def test_usage_is_the_sum_of_the_stages(tmp_path: Path) -> None:
    for stage, arm, seconds in (("arm", "a", 2.5), ("evaluate", "a", 1.0), ("arm", "a", 0.5)):
        record_timing(tmp_path, stage, arm, seconds)
    assert [row["seconds"] for row in read_timings(tmp_path)] == [2.5, 1.0, 0.5]
    usage = with_observed_usage(CPU, tmp_path)["observed_usage"]
    assert usage["wall_seconds"] == 4.0
    assert usage["stages"] == {"arm a": 3.0, "evaluate a": 1.0}, "a second attempt adds to its arm"
    assert usage["gpu_hours"] == 0.0, "work on the CPU alone uses no GPU"


def test_a_shared_service_shows_no_gpu_hours(tmp_path: Path) -> None:
    record_timing(tmp_path, "arm", "a", 3600.0)
    assert with_observed_usage(SHARED, tmp_path)["observed_usage"]["gpu_hours"] is None


def test_nothing_timed_is_not_measured(tmp_path: Path) -> None:
    assert with_observed_usage(CPU, tmp_path)["observed_usage"] is None
