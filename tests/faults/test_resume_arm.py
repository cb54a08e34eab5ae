"""An arm that is killed and started again ends as one that never was."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.arm import arm_folder, read_done
from harness.attempts import read_attempts
from harness.conclusion import restores_of_arms
from harness.evaluate import predictions_path
from harness.local_service.process import EmbeddedService, start_service
from harness.plan import PlannedRun
from harness.store import read_jsonl
from tests.faults.resume_arena import (
    ARM,
    ROLLOUTS,
    STEPS,
    TEST_ROWS,
    Arena,
    Kill,
    Outcome,
    open_arena,
)

pytestmark = pytest.mark.live
KILLED = -9


@pytest.fixture(scope="module")
def arena(service: EmbeddedService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    folder = tmp_path_factory.mktemp("arena")
    with open_arena(folder, service.log_path.parent, service) as opened:
        yield opened


@pytest.fixture
def arena_to_break(tmp_path: Path) -> Iterator[Arena]:
    """An arena with a service of its own."""
    data_dir = tmp_path / "service"
    service = start_service(data_dir, base_model="embedded/gradeschool")
    with open_arena(tmp_path, data_dir, service) as opened:
        try:
            yield opened
        finally:
            opened.service.stop()


class Reference:
    """A run that nothing interrupted, and how many requests each of its stages made."""

    def __init__(self, arena: Arena) -> None:
        run = arena.new_run("uninterrupted")
        assert arena.stage(run, "arm") == 0, (run.folder / "arm.log").read_text()[-2000:]
        self.arm_requests = arena.requests_seen
        assert arena.stage(run, "evaluate") == 0
        self.evaluate_requests = arena.requests_seen
        self.outcome = arena.outcome(run)


@pytest.fixture(scope="module")
def reference(arena: Arena) -> Reference:
    made = Reference(arena)
    start = arena.new_run("start")
    assert made.outcome.adapter_sha256 != start.initial_state()["adapter_sha256"]
    advantages = [row["advantage"] for row in made.outcome.rollouts]
    assert any(advantages), "no reward differs: nothing would be trained"
    return made


def at_request(number: int) -> Kill:
    return lambda seen, *_: seen >= number


def at(endpoint: str, occurrence: int = 1, method: str = "POST", text: bytes = b"") -> Kill:
    """Kill at the n-th request to an endpoint whose body holds ``text``."""
    left = [occurrence]

    def due(_: int, found_method: str, found: str, body: bytes) -> bool:
        if (found_method, found) == (method, endpoint) and text in body:
            left[0] -= 1
        return left[0] <= 0

    return due


def equal(arena: Arena, run: PlannedRun, expected: Outcome) -> None:
    """Finish a run and compare it with the uninterrupted one; no step and no item counts twice."""
    found = arena.finish(run)
    differing = found.differences(expected)
    assert not differing, f"interrupted and uninterrupted differ in {differing}"
    assert [row["step"] for row in found.steps] == list(range(STEPS))
    assert len(found.rollouts) == STEPS * ROLLOUTS
    assert len({row["item_id"] for row in found.predictions}) == TEST_ROWS
    first = read_attempts(arm_folder(run.folder, ARM))
    restored = restores_of_arms(run)[ARM]
    assert [row["after_restore"] for row in restored] == list(range(1, len(restored) + 1))
    assert len(restored) <= len(first) - 1, "a restore without an attempt"


def test_killed_twice_an_arm_ends_as_if_it_never_was(arena: Arena, reference: Reference) -> None:
    run = arena.new_run("twice")
    assert arena.stage(run, "arm", at("optim_step", 2)) == KILLED
    assert arena.stage(run, "arm", at("optim_step", 2), when="after") == KILLED
    equal(arena, run, reference.outcome)
    attempts = read_attempts(arm_folder(run.folder, ARM))
    found = [(one.number, one.first_step, one.continues) for one in attempts]
    assert found == [(1, 0, None), (2, 1, 1), (3, 2, 2)], found
    restored = restores_of_arms(run)[ARM]
    assert [(row["step"], row["after_restore"]) for row in restored] == [(1, 1), (2, 2)], restored


@pytest.mark.slow
def test_a_killed_service_on_its_folder_serves_what_it_had(
    arena_to_break: Arena, reference: Reference
) -> None:
    arena = arena_to_break
    run = arena.new_run("service")
    assert arena.stage(run, "arm", at("optim_step", 2)) == KILLED
    arena.restart_service()
    equal(arena, run, reference.outcome)
    (restored,) = restores_of_arms(run)[ARM]
    assert restored["step"] == 1, "the state after the first step outlived the service"


def test_a_killed_score_asks_for_the_missing_items_only(arena: Arena, reference: Reference) -> None:
    """Files as they are when a score was killed while it wrote its rows."""
    run = arena.new_run("score")
    assert arena.stage(run, "arm", at("optim_step", 2)) == KILLED
    arena.finish(run)
    predictions_path(run.folder, ARM).unlink()
    (part,) = (run.folder / "predictions" / "parts").glob("*.jsonl")
    kept = part.read_bytes().splitlines(keepends=True)[:17]
    part.write_bytes(b"".join(kept) + b'{"item_id": "small-te')
    before = len(arena.proxy.exchanges)
    equal(arena, run, reference.outcome)
    asked = [e for e in arena.proxy.exchanges[before:] if e.path.endswith("/asample")]
    prompts = {json.dumps(e.json()["prompt"]) for e in asked}
    assert len(prompts) == TEST_ROWS - 17, f"{len(prompts)} items asked for, {17} kept"


@pytest.mark.slow
def test_without_a_kept_state_the_arm_starts_over(arena: Arena, reference: Reference) -> None:
    run = arena.new_run("gone")
    assert arena.stage(run, "arm", at("optim_step", 3)) == KILLED
    attempt = arm_folder(run.folder, ARM) / "attempt-01"
    for row in read_jsonl(attempt / "cookbook" / "checkpoints.jsonl"):
        folder, kind, name = row["state_path"].removeprefix("tinker://").split("/")
        saved = arena.data_dir / "runs" / folder.replace(":", ".") / kind / name
        if saved.exists():
            saved.rename(saved.with_name(f".{name}.gone"))
    equal(arena, run, reference.outcome)
    attempts = read_attempts(arm_folder(run.folder, ARM))
    assert [one.first_step for one in attempts] == [0, 0]
    assert restores_of_arms(run)[ARM] == []
    assert "does not keep" in (run.folder / "arm.log").read_text()


BOUNDARIES = {
    "load of the initial state": at("load_weights"),
    "proof of the start": at("forward_backward", 1),
    "first rollout": at("asample", 1),
    "rollout inside the second step": at("asample", ROLLOUTS + ROLLOUTS // 2),
    "gradient of the first step": at("forward_backward", 2),
    "update of the first step": at("optim_step", 1),
    "sampler of the second step": at("save_weights_for_sampler", 2),
    "first saved state": at("save_weights", 1),
    "second saved state": at("save_weights", 2),
    "deletion of the first state": at("training_runs", 1, "DELETE"),
    "final state": at("save_weights", 1, text=b'"final"'),
    "final sampler": at("save_weights_for_sampler", 1, text=b'"final"'),
    "deletion of the last state": at("training_runs", STEPS, "DELETE"),
}


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("boundary", sorted(BOUNDARIES))
def test_at_every_boundary_of_an_arm(
    arena: Arena, reference: Reference, boundary: str, when: str
) -> None:
    run = arena.new_run(f"{boundary.replace(' ', '-')}-{when}")
    kill = BOUNDARIES[boundary]
    assert arena.stage(run, "arm", kill, when) == KILLED, f"never killed at the {boundary}"
    equal(arena, run, reference.outcome)


@pytest.mark.slow
def test_at_random_moments(arena: Arena, reference: Reference) -> None:
    """Twenty-five moments, seeded, five in a row of each of five runs."""
    moments = random.Random(20261130)
    killed = 0
    for number in range(5):
        run = arena.new_run(f"random-{number}")
        for _ in range(5):
            if read_done(run.folder, ARM) is None:
                kill = at_request(moments.randint(1, reference.arm_requests // 2))
                status = arena.stage(run, "arm", kill, moments.choice(["before", "after"]))
            else:
                kill = at_request(moments.randint(1, reference.evaluate_requests // 2))
                status = arena.stage(run, "evaluate", kill, moments.choice(["before", "after"]))
            assert status in (KILLED, 0)
            killed += status == KILLED
        equal(arena, run, reference.outcome)
    assert killed == 25, f"{killed} of 25 starts were killed"


@pytest.mark.slow
def test_after_the_last_state_only_the_end_is_made_up(arena: Arena, reference: Reference) -> None:
    """Files as they are when an arm was killed after its last state, before the final one."""
    run = arena.new_run("no-final")
    assert arena.stage(run, "arm") == 0
    arm: Path = arm_folder(run.folder, ARM)
    done = read_done(run.folder, ARM)
    assert done is not None
    (arm / "done.json").unlink()
    listed = arm / "attempt-01" / "cookbook" / "checkpoints.jsonl"
    row = {"name": "000003", "batch": STEPS, "state_path": done["state_uri"]}
    listed.write_text(json.dumps(row) + "\n")
    equal(arena, run, reference.outcome)
    (restored,) = restores_of_arms(run)[ARM]
    assert (restored["step"], restored["attempt"]) == (STEPS, 2)


@pytest.mark.slow
def test_with_the_final_state_only_the_record_is_made_up(
    arena: Arena, reference: Reference
) -> None:
    run = arena.new_run("no-record")
    assert arena.stage(run, "arm") == 0
    arm = arm_folder(run.folder, ARM)
    before = read_done(run.folder, ARM)
    (arm / "done.json").unlink()
    equal(arena, run, reference.outcome)
    assert read_done(run.folder, ARM) == before
    assert len(read_attempts(arm)) == 1, "nothing was left to train"
