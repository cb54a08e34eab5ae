"""Three arms and two seeds are data: trained once a seed, decided on two arms, verified whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from complete_run import NOTES, complete_run, edit_json, reseal
from many_arms import RLOO, SEEDS, three_arms_two_seeds
from mini_project import as_checkout, make_project
from small_run import GRPO, GS1, LOCAL_SPEC, TEST_ITEMS, write_rows

from harness.__main__ import main
from harness.evaluate import BASE_ARM
from harness.evaluation_record import judge_evaluation
from harness.experiment import Experiment
from harness.gates.evidence import EvidenceWriter
from harness.gates.verdict import Outcome
from harness.redact import Redactor
from harness.report import build_report
from harness.result import read_result
from harness.run_state import read_run_state
from harness.session import HarnessSession, Options
from harness.spec import parse_spec
from harness.store import read_jsonl
from harness.verify import verify_run

TRAININGS = [f"{arm}.seed{seed}" for seed in SEEDS for arm in (GRPO, GS1, RLOO)]


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return complete_run(tmp_path_factory.mktemp("many"), three_arms_two_seeds()).folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "run")
    shutil.copytree(original.parent / "rows", tmp_path / "rows")
    return tmp_path / "run"


def false_or_open(run: Path) -> dict[str, tuple[str, str]]:
    checks = verify_run(run, run.parent / "rows")
    return {c.name: (c.outcome.value, c.detail) for c in checks if c.outcome is not Outcome.PASS}


def test_every_arm_is_planned_once_a_seed_and_single_seed_runs_keep_their_names() -> None:
    spec = parse_spec(three_arms_two_seeds(), where="trial")
    assert [training.name for training in spec.trainings] == TRAININGS
    assert [training.seed for training in spec.trainings] == [0, 0, 0, 3, 3, 3]
    assert [spec.arm_of(name) for name in TRAININGS] == [GRPO, GS1, RLOO] * 2
    assert spec.arm(TRAININGS[4]).advantage_mode == "gs1"
    assert LOCAL_SPEC.trainings == LOCAL_SPEC.arms
    with pytest.raises(KeyError):
        spec.arm_of("gs1_small.seed9")


def test_a_run_of_three_arms_and_two_seeds_is_proven_by_every_check(run: Path) -> None:
    assert false_or_open(run) == {}
    names = {check.name for check in verify_run(run, run.parent / "rows")}
    assert {f"advantages {name}" for name in TRAININGS} <= names, sorted(names)


def test_seeds_are_averaged_inside_the_item_and_the_third_arm_decides_nothing(run: Path) -> None:
    decision = json.loads((run / "decision.json").read_text())
    first, second = decision["criteria"]
    # Seed 0 answers 22 against 20 of 40, seed 3 answers 19 against 17: mean effect 2/40 with both.
    assert first["mean"] == pytest.approx(2 / TEST_ITEMS, rel=1e-12)
    assert first["n"] == TEST_ITEMS, "pooling seeds as items would count them twice"
    assert (first["state"], second["state"]) == ("open", "fail")
    rows = read_jsonl(run / "observations.jsonl")
    assert {row["arm"] for row in rows} == {GRPO, GS1}
    assert {row["seed"] for row in rows} == set(SEEDS)
    assert len(rows) == 2 * 2 * TEST_ITEMS


def test_the_third_arm_is_scored_and_reported(run: Path) -> None:
    result = read_result(run / "result.json")
    numbers = result.metrics.model_dump()["arms"]
    wanted = {GRPO: 37 / 80, GS1: 41 / 80, RLOO: 39 / 80}
    assert {arm: found["accuracy"] for arm, found in numbers.items()} == pytest.approx(wanted)
    assert {found["items"] for found in numbers.values()} == {TEST_ITEMS}
    assert sorted(result.completed_arms) == sorted([GRPO, GS1, RLOO])
    record: Any = result.evaluation
    assert len(record["scores"]) == 7, "base model and six trainings"
    rows = [row for path in (run / "predictions").glob("*.jsonl") for row in read_jsonl(path)]
    assert judge_evaluation(record, rows, seeds=SEEDS).outcome is Outcome.PASS
    provenance: Any = result.initialization_provenance
    assert sorted(provenance["arms"]) == sorted([GRPO, GS1, RLOO])
    assert "seeds [0, 3]" in result.summary


def test_status_and_report_show_every_training_by_its_name(run: Path) -> None:
    state = read_run_state(run)
    assert [arm.name for arm in state.arms] == TRAININGS
    assert {(arm.steps_done, arm.is_trained) for arm in state.arms} == {(2, True)}
    accuracy = {arm.name: arm.accuracy for arm in state.arms}
    assert accuracy[f"{GS1}.seed3"] == pytest.approx(41 / 80), "the arm's, over both seeds"
    report = build_report(run, run.parent / "rows", Redactor({}))
    assert [arm.arm for arm in report.training] == TRAININGS
    assert {len(arm.steps) for arm in report.training} == {2}
    facts = {fact.name for fact in report.provenance}
    assert {f"final weights of {name}" for name in TRAININGS} <= facts


def other_seed(run: Path) -> None:
    shutil.rmtree(run / "initial_adapter.seed3")
    shutil.copytree(run / "initial_adapter", run / "initial_adapter.seed3")


def swapped_seeds(run: Path) -> None:
    files = [run / "predictions" / f"{GS1}.seed{seed}.jsonl" for seed in SEEDS]
    texts = [path.read_text().replace('"seed":3', '"seed":0') for path in files]
    files[1].write_text(texts[1])


def lost_seed(run: Path) -> None:
    (run / "predictions" / f"{RLOO}.seed3.jsonl").unlink()


def changed_third_arm(run: Path) -> None:
    path = run / "arms" / f"{RLOO}.seed3" / "attempt-01" / "rollouts.jsonl"
    row, *rest = path.read_text().splitlines()
    document = json.loads(row) | {"advantage": 0.123}
    path.write_text("\n".join([json.dumps(document), *rest]) + "\n")


def other_start(run: Path) -> None:
    start = run / "arms" / f"{GRPO}.seed3" / "attempt-01" / "start.json"
    edit_json(start, "output_sha256", value="d" * 64)


@pytest.mark.parametrize(
    ("forge", "check"),
    [
        (other_seed, f"start {GS1}.seed3"),
        (swapped_seeds, "items"),
        (lost_seed, "items"),
        (changed_third_arm, f"advantages {RLOO}.seed3"),
        (other_start, "provenance"),
    ],
)
def test_a_forged_seed_or_third_arm_is_named(run: Path, forge: Any, check: str) -> None:
    forge(run)
    reseal(run)
    found = false_or_open(run)
    assert check in found, f"{forge.__name__} passed {check}: {found}"


def session_of(root: Path, *arms: str) -> HarnessSession:
    options = Options(
        root,
        root / "specs" / "local.json",
        arms=arms,
        artifacts=root / "artifacts",
        gsm8k_dir=root / "rows",
    )
    return HarnessSession(options, lambda _: None)


def many_arms_project(pytester: pytest.Pytester) -> Path:
    root = make_project(pytester)
    write_rows(root / "rows")
    (root / "specs" / "local.json").write_text(json.dumps(three_arms_two_seeds()))
    return root


def test_one_word_selects_an_arm_of_all_seeds_or_one_training(pytester: pytest.Pytester) -> None:
    root = many_arms_project(pytester)
    assert list(session_of(root).selected_arms()) == TRAININGS
    both = (f"{GS1}.seed0", f"{GS1}.seed3")
    assert session_of(root, GS1).selected_arms() == both
    assert session_of(root, "gs1").selected_arms() == both
    assert session_of(root, f"{RLOO}.seed3").selected_arms() == (f"{RLOO}.seed3",)


def test_the_plugin_makes_one_case_a_training(pytester: pytest.Pytester) -> None:
    many_arms_project(pytester)
    found = pytester.runpytest_inprocess("-m", "full", "--collect-only", "-q", "tests/full")
    lines = [line for line in found.outlines if "::test_arm[" in line]
    assert [line.partition("[")[2].rstrip("]") for line in lines] == TRAININGS, found.outlines


@pytest.mark.live
@pytest.mark.slow
def test_three_arms_and_two_seeds_run_and_decide_on_the_embedded_service(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    root = many_arms_project(pytester)
    as_checkout(root)
    session = session_of(root)
    try:
        prove_by_decree(session)
        experiment = Experiment(session)
        experiment.evaluate(BASE_ARM)
        for name in TRAININGS:
            assert experiment.train(name)["steps"] == 2
            experiment.evaluate(name)
        assert experiment.missing_scores() == []
        document = experiment.decide()
        adapters = {experiment.run.initial_state(seed)["adapter_sha256"] for seed in SEEDS}
    finally:
        session.close()
    assert len(adapters) == 2, "each seed starts from an adapter of its own"
    assert document.verdict is not None
    assert document.outcome_reason != "incomplete_execution", document.summary
    assert sorted(document.completed_arms) == sorted([GRPO, GS1, RLOO])
    folder = experiment.run.folder
    for command in ("verify", "report"):
        code = main([command, str(folder), "--gsm8k-dir", str(root / "rows")])
        assert code == 0, f"{command} of the run: {capsys.readouterr().out}"
    page = (folder / "report.html").read_text()
    assert [name for name in TRAININGS if name not in page] == []


def prove_by_decree(session: HarnessSession) -> None:
    """Write evidence of passed gates: this test is about the run, not about its gates."""
    writer = EvidenceWriter(session.gates_folder, session.loaded.name, session.binding(), {})
    for gate_id in session.required:
        measure = {"name": "decree", "value": 0.5, "rule": {"at_most": 1.0}, "where": ""}
        writer.gate_started(gate_id)
        writer.gate_finished(
            gate_id,
            {
                "outcome": "pass",
                "reason": "by decree",
                "measures": [measure],
                "notes": NOTES.get(gate_id, {}),
            },
        )
    writer.closing(session.binding())
    writer.close()
