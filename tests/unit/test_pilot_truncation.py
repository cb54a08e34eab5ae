"""A pilot whose rollouts are often cut off says so before the run."""

from __future__ import annotations

import pytest

from harness.gates.pilot_truncation import truncation_by_arm, truncation_warning

STEPS = {
    "grpo": [{"truncation": 0.0}, {"truncation": 0.03125}, {"truncation": 0.0}],
    "gs1": [{"truncation": 0.25}, {"truncation": 0.125}, {"truncation": 0.0}],
}


def test_an_arm_that_is_often_cut_off_is_named_with_its_share() -> None:
    by_arm = truncation_by_arm(STEPS)
    assert by_arm == pytest.approx({"grpo": 0.03125 / 3, "gs1": 0.125})
    warning = truncation_warning(by_arm, 512)
    assert warning is not None
    assert "max_tokens 512: gs1 12.5% (said from 10%)" in warning
    assert "grpo" not in warning


@pytest.mark.parametrize(("share", "said"), [(0.0999, False), (0.10, True), (1.0, True)])
def test_it_is_said_from_a_tenth_on(share: float, said: bool) -> None:
    assert (truncation_warning({"gs1": share}, 64) is not None) is said
