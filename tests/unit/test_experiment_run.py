"""A run's folder and its ``result.json``, stage by stage, with stand-ins for the processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from mini_project import make_project
from small_run import GRPO, GS1, TEST_ITEMS, small_spec_json, write_rows

import harness.experiment
import harness.stage_runner
from harness.arm import arm_folder
from harness.errors import StoreError
from harness.evaluate import BASE_ARM, freeze_evaluator, predictions_path
from harness.experiment import Experiment
from harness.manifest import check_manifest
from harness.plan import effective_config, read_plan
from harness.result import read_result
from harness.service import register_model_tokenizer
from harness.session import HarnessSession, Options
from harness.store import write_jsonl_new
from harness.timings import read_timings

CORRECT = {BASE_ARM: 10, GRPO: 20, GS1: 22}
REPORTED = {"model_name": "embedded/gradeschool", "lora_rank": 8}
START = {
    "adapter_sha256": "a" * 64,
    "batch_sha256": "b" * 64,
    "output_sha256": "c" * 64,
    "reported": REPORTED,
}
STEP = dict.fromkeys(
    ("reward_mean", "accuracy", "format", "truncation", "loss_sum", "step_s"), 0.5
) | {"sampler_trainer_gap": {"max_abs": 0.0}}
INITIAL = {
    "checkpoint_uri": "tinker://initial/weights/x",
    "adapter_sha256": "a" * 64,
    "seed": 0,
    "lora_rank": 8,
    "reported": REPORTED,
}


class StubAccess:
    """A service that is never there."""

    def environment(self) -> dict[str, str]:
        return {"TINKER_BASE_URL": "http://127.0.0.1:9", "TINKER_API_KEY": "tml-stub"}

    def stop(self) -> None:
        return


@pytest.fixture
def root(pytester: pytest.Pytester) -> Path:
    made = make_project(pytester)
    write_rows(made / "rows")
    save_spec(made, small_spec_json())
    return made


def save_spec(root: Path, raw: Mapping[str, Any]) -> None:
    (root / "specs" / "local.json").write_text(json.dumps(raw))


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the processes by what they leave behind; return what was run."""
    ran: list[str] = []

    def run_stage(
        module: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        log_path: Path,
        on_poll: Callable[[], None],
    ) -> float:
        del log_path
        folder, arm, *rest = arguments
        assert environment["TINKER_API_KEY"] not in arguments, "a key is never an argument"
        ran.append(f"{module} {arm}")
        run = read_plan(Path(folder), Path(rest[rest.index("--gsm8k-dir") + 1]))
        (train if module == "harness.arm" else evaluate)(run, arm)
        on_poll()
        return 1.5

    def train(run: Any, arm: str) -> None:
        steps = run.plan["pilot_steps"] or 2
        done = arm_folder(run.folder, arm) / "done.json"
        done.parent.mkdir(parents=True, exist_ok=True)
        done.write_text(
            json.dumps({"steps": steps, "attempt": 1, "sampler_uri": f"tinker://{arm}"})
        )
        start = {"arm": arm, **START}
        (done.parent / "attempt-01").mkdir(exist_ok=True)
        attempt = done.parent / "attempt-01"
        (attempt / "start.json").write_text(json.dumps(start))
        config = {**effective_config(run.spec, run.spec.arm(arm)), "steps": steps}
        (attempt / "effective_config.json").write_text(json.dumps(config))
        about = {"arm": arm, "attempt": 1, "rollouts": run.spec.batch_size, **STEP}
        rows = [{"step": step, **about} for step in range(steps)]
        (attempt / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def evaluate(run: Any, arm: str) -> None:
        register_model_tokenizer(run.spec)
        about = {"arm": arm, "seed": 0, "metric": "accuracy", "evaluator_id": freeze_evaluator(run)}
        about |= {"checkpoint": "final", "reference": "1"}
        rows = [
            {
                "item_id": problem.item_id,
                **about,
                "value": float(number < CORRECT[arm]),
                "finished": number != 39,
                "prediction": None if number >= 38 else "1",
            }
            for number, problem in enumerate(run.test_problems())
        ]
        write_jsonl_new(predictions_path(run.folder, arm), rows)

    monkeypatch.setattr(harness.stage_runner, "run_stage", run_stage)
    monkeypatch.setattr(Experiment, "ensure_initial_state", ensure_initial_state)
    return ran


def ensure_initial_state(experiment: Experiment) -> dict[str, Any]:
    (experiment.run.folder / "initial.json").write_text(json.dumps(INITIAL))
    return INITIAL


def experiment_of(root: Path, *, fresh: bool = False) -> tuple[Experiment, list[str]]:
    said: list[str] = []
    options = Options(
        root,
        root / "specs" / "local.json",
        artifacts=root / "artifacts",
        gsm8k_dir=root / "rows",
        fresh=fresh,
    )
    session = HarnessSession(options, said.append)
    vars(session)["service"] = StubAccess()
    return Experiment(session), said


def finish(experiment: Experiment) -> None:
    experiment.evaluate(BASE_ARM)
    for arm in (GRPO, GS1):
        experiment.train(arm)
        experiment.evaluate(arm)
    experiment.decide()


def test_a_new_run_is_planned_before_anything_is_done(root: Path) -> None:
    experiment, said = experiment_of(root)
    folder = experiment.run.folder
    names = {"plan.json", "spec.json", "spec.pins.json", "result.json"}
    assert {path.name for path in folder.iterdir() if path.is_file()} == names
    assert (folder / "spec.json").read_bytes() == (root / "specs" / "local.json").read_bytes()
    assert said == [f"run {folder.name}: the first of this spec"]
    result = read_result(folder / "result.json").to_json()
    assert (result["status"], result["metrics"]) == ("running", {"arms": {}})
    gates = experiment.run.plan["gates"]
    assert set(gates) == set(experiment.session.required)
    assert {gate["outcome"] for gate in gates.values()} == {"unknown"}, "the truth at the plan"


@pytest.mark.usefixtures("stages")
def test_no_record_names_the_machine(root: Path) -> None:
    experiment, _ = experiment_of(root)
    finish(experiment)
    records = [path for path in experiment.run.folder.rglob("*") if path.is_file()]
    assert len(records) >= 10, "nothing was written"
    naming = [path.name for path in records if str(root) in path.read_text()]
    assert naming == []


def test_a_title_of_many_sentences_is_no_obstacle(root: Path) -> None:
    save_spec(root, small_spec_json() | {"title": "GS1 vs. GRPO. A test! Is it so? It is."})
    experiment, _ = experiment_of(root)
    assert read_result(experiment.result_path).summary == "local: planned, nothing trained yet."


@pytest.mark.usefixtures("stages")
def test_numbers_appear_as_each_stage_ends(root: Path) -> None:
    experiment, _ = experiment_of(root)
    assert experiment.evaluate(BASE_ARM) == 10 / TEST_ITEMS
    metrics = read_result(experiment.result_path).to_json()["metrics"]
    base = {"accuracy": 0.25, "items": TEST_ITEMS, "unfinished": 1, "unanswered": 2}
    assert metrics == {**base, "arms": {}}
    experiment.train(GS1)
    experiment.evaluate(GS1)
    document = read_result(experiment.result_path).to_json()
    assert document["metrics"]["accuracy"] == 0.25, "the base model's number stays"
    assert document["metrics"]["arms"] == {GS1: {**base, "accuracy": 22 / TEST_ITEMS}}
    assert document["completed_arms"] == [GS1]
    assert document["summary"] == "local: 1 of 2 arms trained and scored, no verdict yet."
    posted = {file["name"]: file["content"] for file in document["evidence"]["files"]}
    assert set(posted) >= {f"predictions.{GS1}.jsonl", f"effective_config.{GS1}.json"}
    own = (experiment.run.folder / f"predictions/{GS1}.jsonl").read_text()
    assert posted[f"predictions.{GS1}.jsonl"] == own, "byte for byte the run's"
    assert document["evidence"]["per_arm_metrics"] == document["metrics"]["arms"]
    stages = [(row["stage"], row["arm"]) for row in read_timings(experiment.run.folder)]
    assert stages == [("evaluate", BASE_ARM), ("arm", GS1), ("evaluate", GS1)]


@pytest.mark.usefixtures("stages")
def test_what_is_not_scored_is_named_base_model_included(root: Path) -> None:
    experiment, _ = experiment_of(root)
    assert experiment.missing_scores() == [BASE_ARM, GRPO, GS1]
    experiment.evaluate(BASE_ARM)
    experiment.train(GRPO)
    assert experiment.missing_scores() == [GRPO, GS1], "trained is not scored"
    experiment.evaluate(GRPO)
    assert experiment.missing_scores() == [GS1]


@pytest.mark.usefixtures("stages")
def test_a_whole_run_ends_with_a_verdict_capped_by_its_gates(root: Path) -> None:
    experiment, _ = experiment_of(root)
    finish(experiment)
    result = read_result(experiment.result_path).to_json()
    assert (result["status"], result["verdict"]) == ("succeeded", "inconclusive")
    assert result["metrics"]["primary_noninferiority.mean"] == pytest.approx(2 / TEST_ITEMS)
    lines = experiment.closing_lines()
    assert "verdict: inconclusive (insufficient_evidence)" in lines
    assert f"files: {experiment.run.folder.relative_to(Path.cwd())}" in lines
    assert "stage evaluate base: 1.5 s" in lines


def test_a_second_session_continues_and_repeats_nothing(root: Path, stages: list[str]) -> None:
    first, _ = experiment_of(root)
    first.evaluate(BASE_ARM)
    first.train(GRPO)
    second, said = experiment_of(root)
    assert second.run.folder == first.run.folder
    assert said[0].endswith(": continued")
    finish(second)
    assert stages == [
        "harness.evaluate base",
        "harness.arm grpo_small",
        "harness.evaluate grpo_small",
        "harness.arm gs1_small",
        "harness.evaluate gs1_small",
    ]


def ended(root: Path, stages: list[str]) -> str:
    del stages
    finish(experiment_of(root)[0])
    return "has ended"


def edited_code(root: Path, stages: list[str]) -> str:
    del stages
    assert experiment_of(root)[0].run
    (root / "harness" / "code.py").write_text("VALUE = 2\n")
    return "spec, code or service changed"


def damaged_plan(root: Path, stages: list[str]) -> str:
    del stages
    (experiment_of(root)[0].run.folder / "plan.json").write_text("{")
    return "has no readable plan and result"


@pytest.mark.parametrize("change", [ended, edited_code, damaged_plan])
def test_a_run_that_cannot_go_on_is_left_alone(
    root: Path, stages: list[str], change: Callable[[Path, list[str]], str]
) -> None:
    reason = change(root, stages)
    before = {path: path.read_bytes() for path in root.glob("artifacts/runs/local/2*/*.json")}
    experiment, said = experiment_of(root)
    assert experiment.run.folder not in {path.parent for path in before}
    assert reason in said[0]
    assert {path: path.read_bytes() for path in before} == before


def test_a_run_killed_between_its_verdict_and_its_seal_is_sealed(
    root: Path, stages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: Path) -> str:
        raise KeyboardInterrupt

    first, _ = experiment_of(root)
    with monkeypatch.context() as patch:
        patch.setattr(harness.experiment, "seal", killed)
        with pytest.raises(KeyboardInterrupt):
            finish(first)
    before = (first.result_path.read_bytes(), list(stages))
    second, said = experiment_of(root)
    finish(second)
    assert said[0] == f"run {first.run.folder.name}: continued: only its seal is missing"
    assert (second.result_path.read_bytes(), stages) == before, (
        "verdict and stages stay as they are"
    )
    assert check_manifest(first.run.folder) == []
    third, said = experiment_of(root)
    assert third.run.folder != first.run.folder
    assert said[0].endswith("has ended")


def test_fresh_starts_a_new_run_beside_an_unfinished_one(root: Path) -> None:
    unfinished = experiment_of(root)[0].run.folder
    second, said = experiment_of(root, fresh=True)
    assert second.run.folder != unfinished
    assert said[0].endswith("new, as --fresh asks")
    third, _ = experiment_of(root)
    assert third.run.folder == second.run.folder, "the newest unfinished one is continued"


@pytest.mark.usefixtures("stages")
def test_a_pilot_is_a_run_of_its_own(root: Path) -> None:
    experiment, _ = experiment_of(root)
    real = experiment.run.folder
    pilot = experiment.pilot(1)
    assert pilot.train(GS1)["steps"] == 1
    assert pilot.run.folder.parent == root / "artifacts" / "pilot" / "runs" / "local"
    assert not (real / "arms").exists(), "a pilot trains nothing of the run"
    assert experiment_of(root)[0].run.folder == real, "and is not what a session continues"


def test_an_arm_that_left_no_record_fails(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness.stage_runner, "run_stage", lambda *_, **__: 0.0)
    monkeypatch.setattr(Experiment, "ensure_initial_state", lambda _: {})
    experiment, _ = experiment_of(root)
    with pytest.raises(StoreError, match=r"expected: arms/gs1_small/done\.json.*\.log"):
        experiment.train(GS1)


def test_a_session_that_touched_no_run_has_nothing_to_say(root: Path) -> None:
    assert experiment_of(root)[0].closing_lines() == []
    assert not (root / "artifacts").exists()
