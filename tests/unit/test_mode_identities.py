"""Every registered advantage mode: its declared identities hold, and no other one does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import harness.advantages as advantages_module
from harness.advantage_domain import DOMAINS, outside
from harness.advantages import MODES, ArmParams, RolloutBatch, compute
from harness.errors import AdvantageError, GateError
from harness.gates.mode_identities import IDENTITIES, OBEYS, Case, mode_violations
from harness.reference_modes import REFERENCE_MODES

TOLERANCE = 1e-12
QUICK = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
REWARDS = st.sampled_from([1.0, 0.9, 0.0, -0.1])
PROMPTS = ["Tom has red apples", "Ann has red pears", "a blue train left", "Tom left Ann"]


def case_of(mode: str, rewards: list[list[float]]) -> Case:
    groups, size = len(rewards), len(rewards[0])
    weighs = DOMAINS[mode].weighs_prompts
    params = ArmParams(
        size,
        groups,
        tau=0.3 if weighs else None,
        similarity="tfidf_prompt_cosine" if weighs else None,
        distinct_prompts=False,
    )
    return Case(mode, params, [PROMPTS[i % 4] for i in range(groups)], np.array(rewards))


def shapes(mode: str) -> st.SearchStrategy[tuple[int, int]]:
    domain = DOMAINS[mode]
    return st.tuples(
        st.integers(max(2, domain.least_groups), 6),
        st.integers(domain.least_group_size, domain.most_group_size or 5),
    )


def test_every_registered_mode_has_domain_identities_and_reference() -> None:
    for name, table in (("domain", DOMAINS), ("identities", OBEYS), ("reference", REFERENCE_MODES)):
        assert set(table) == set(MODES), f"{name}: {set(table) ^ set(MODES)} on one side only"
    for mode, names in OBEYS.items():
        assert names <= set(IDENTITIES), f"{mode} declares unknown {names - set(IDENTITIES)}"
        assert "|advantage - reference|" in names, f"{mode} is compared with no reference"


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_mode_obeys_what_it_declares_on_any_batch_of_its_domain(mode: str) -> None:
    @QUICK
    @given(
        shapes(mode).flatmap(
            lambda shape: st.lists(
                st.lists(REWARDS, min_size=shape[1], max_size=shape[1]),
                min_size=shape[0],
                max_size=shape[0],
            )
        )
    )
    def check(rewards: list[list[float]]) -> None:
        for name, worst in mode_violations(case_of(mode, rewards)).items():
            assert worst <= TOLERANCE, f"{name} = {worst} > {TOLERANCE} on {rewards}"

    check()


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_mode_breaks_every_identity_it_does_not_declare(mode: str) -> None:
    """So the declared sets are complete, and every identity is one that can be broken."""
    size = DOMAINS[mode].most_group_size or 3
    rows = [[1.0, 0.0, 0.9], [0.0, 0.0, 0.0], [1.0, -0.1, 0.0], [0.9, 0.9, 1.0]]
    # A group that is all but decided by one reward puts a group mean outside the others' rewards.
    peak = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    cases = [case_of(mode, [row[:size] for row in table]) for table in (rows, peak)]
    trivial = set()
    if size == 1:
        # With one rollout a prompt a sum over a group says the reward is its own baseline.
        trivial = {"|A(rollouts reversed) - reversed A|"}
    for name in sorted(set(IDENTITIES) - OBEYS[mode] - trivial):
        worst = max(IDENTITIES[name](case) for case in cases)
        assert worst > 1e-3, f"{mode} obeys {name!r} (violation {worst}) but does not declare it"


def test_every_identity_is_declared_by_a_mode_and_broken_by_another() -> None:
    everywhere = {"|advantage - reference|", "|A(r + 1) - A(r)|", "|A(equal rewards)|"}
    everywhere |= {"|A(groups reversed) - reversed A|", "|A(rollouts reversed) - reversed A|"}
    for name in IDENTITIES:
        declared = {mode for mode, names in OBEYS.items() if name in names}
        assert declared, f"no mode declares {name!r}"
        assert (declared == set(MODES)) == (name in everywhere), f"{name!r} declared by {declared}"


def test_a_mode_without_declared_identities_cannot_be_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(advantages_module, "MODES", {**MODES, "new": MODES["grpo"]})
    case = case_of("grpo", [[1.0, 0.0]])
    with pytest.raises(GateError, match="declares no identities"):
        mode_violations(Case("new", case.params, case.prompts_P, case.rewards_PG))


# --- worked by hand ---------------------------------------------------------------------------

ROWS = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
ROOT_3 = 3**0.5
WORKED = {
    # Batch sum 4 of 8: a reward of 1 meets others' mean 3/7, a reward of 0 meets 4/7.
    "uniform_loo": [[4 / 7, -4 / 7], [4 / 7, 4 / 7], [-4 / 7, -4 / 7], [4 / 7, -4 / 7]],
    "rloo": [[1.0, -1.0], [0.0, 0.0], [0.0, 0.0], [1.0, -1.0]],
    # Mean 1/2 and deviation 1/2 where rewards differ, 0 where they do not.
    "grpo_std": [[1.0, -1.0], [0.0, 0.0], [0.0, 0.0], [1.0, -1.0]],
    "reinforce_batch_norm": [[1.0, -1.0], [1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]],
    # Group 0: others' means 1, 0, 1/2, so s = 1/6; variances of a mean 0, 0, 1/4, so v = 1/12 and
    # L = 1/3 with target 1/2: baselines 2/3 * other + 1/6. Group 3 is its mirror image. Group 1:
    # means 1/2, 0, 1/2, s = 1/18; v = 1/6, L = 3/4, target 1/3: baseline 1/4 * 1 + 1/4 = 1/2.
    # Group 2: means 1/2, 1, 1/2, s = 1/18, L = 3/4, target 2/3: baseline 0 + 1/2.
    "james_stein": [[5 / 6, -5 / 6], [0.5, 0.5], [-0.5, -0.5], [5 / 6, -5 / 6]],
}


@pytest.mark.parametrize("mode", sorted(WORKED))
def test_the_worked_example(mode: str) -> None:
    case = case_of(mode, ROWS)
    wanted = np.array(WORKED[mode])
    for name, found in (
        ("mode", case.found),
        ("reference", np.array(REFERENCE_MODES[mode](PROMPTS, ROWS, case.params))),
    ):
        gap = float(np.abs(found - wanted).max())
        assert gap <= 1e-15, f"{name}: {found.tolist()}, by hand {wanted.tolist()}"


def test_uniform_loo_is_gs1_with_equal_weights() -> None:
    rewards = [[1.0], [0.0], [0.9], [-0.1]]
    same = ["one word", "one word", "one word", "one word"]
    params = ArmParams(1, 4, tau=0.2, similarity="tfidf_prompt_cosine", distinct_prompts=False)
    batch = RolloutBatch.of(rewards, same)
    gap = np.abs(np.stack(compute("gs1", batch, params)) - case_of("uniform_loo", rewards).found)
    assert float(gap.max()) <= 1e-15, f"largest difference {gap.max()}"


@pytest.mark.parametrize("mode", ["grpo_std", "reinforce_batch_norm"])
@pytest.mark.parametrize("unit", [5e-324, 1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_normalised_advantages_have_no_unit(mode: str, unit: float) -> None:
    found = case_of(mode, [[unit, 0.0], [0.0, unit]]).found
    assert np.abs(found - [[1, -1], [-1, 1]]).max() <= 1e-15, f"unit {unit}: {found.tolist()}"


def test_james_stein_does_not_shrink_on_rounding() -> None:
    """All other groups equal: no variance and no spread, so L is 0, whatever the value's bits."""
    for value in (0.1, 0.9, 1 / 3, 0.7):
        rewards = [[1.0, 0.0, 0.0], *([[value] * 3] * 6)]
        found, plain = case_of("james_stein", rewards).found[0], case_of("rloo", rewards).found[0]
        assert np.abs(found - plain).max() <= 1e-15, f"{value}: {found} is not rloo's {plain}"


# --- domains ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("groups", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_mode_refuses_exactly_what_is_outside_its_domain(
    mode: str, groups: int, size: int
) -> None:
    case = case_of(mode, [[float((i + j) % 2) for j in range(size)] for i in range(groups)])
    wrong = list(outside(mode, size, groups))
    allowed = {
        "grpo": size >= 2,
        "gs1": size == 1 and groups >= 2,
        "uniform_loo": size * groups >= 2,
        "rloo": size >= 2,
        "grpo_std": size >= 2,
        "reinforce_batch_norm": size * groups >= 2,
        "james_stein": size >= 2 and groups >= 3,
    }[mode]
    assert (not wrong) == allowed, f"{groups} groups of {size}: {wrong}"
    if allowed:
        assert np.isfinite(case.found).all(), f"{case.found}"
    else:
        with pytest.raises(AdvantageError, match=f"{mode} is undefined for this batch"):
            assert case.found is None
