"""The plan fixes rows, order, configuration and spec; a later stage works on nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_run import BINDING, GRPO, GS1, LOCAL_SPEC, plan_run, small_spec_json

from harness.arm_dataset import prompt_ids_sha256
from harness.errors import DocumentError, StoreError
from harness.plan import PLAN_NAME, PlannedRun, effective_config, read_plan


@pytest.fixture
def run(tmp_path: Path) -> PlannedRun:
    return plan_run(tmp_path)


def reread(run: PlannedRun) -> PlannedRun:
    return read_plan(run.folder, run.gsm8k_dir)


def rows_file(run: PlannedRun, split: str) -> Path:
    assert run.gsm8k_dir is not None
    return run.gsm8k_dir / f"{split}.jsonl"


def test_equal_inputs_give_an_equal_plan(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = (plan_run(tmp_path / name) for name in ("a", "b"))
    texts = [(run.folder / PLAN_NAME).read_bytes() for run in (first, second)]
    assert texts[0] == texts[1], "a plan must not depend on where or when it is made"


def test_the_plan_names_no_machine_path(run: PlannedRun, tmp_path: Path) -> None:
    assert str(tmp_path) not in (run.folder / PLAN_NAME).read_text()


def test_the_plan_names_spec_rows_service_and_content(run: PlannedRun) -> None:
    plan = run.plan
    assert plan["spec_digest"] == run.loaded.digest
    assert plan["binding_digest"] == BINDING.digest()
    assert plan["service"] == {"service": "embedded"}
    assert set(plan["problems"]) == {"train", "test"}
    assert set(plan["arms"]) == {GRPO, GS1}


def test_the_order_digest_covers_every_prompt_in_order(run: PlannedRun) -> None:
    for arm in run.spec.arms:
        batches = run.train_batches(arm)
        order = [problem for batch in batches for problem in batch]
        assert len(order) == arm.steps * arm.groups_per_batch
        planned = run.plan["arms"][arm.name]["prompts_sha256"]
        assert planned == prompt_ids_sha256(order)
        assert planned != prompt_ids_sha256(order[::-1]), "order must matter"


def test_the_effective_configuration_leaves_no_default_open() -> None:
    """Contract §12's figures where the local spec keeps them; every arm difference is here."""
    found = {arm.name: effective_config(LOCAL_SPEC, arm) for arm in LOCAL_SPEC.arms}
    grpo, gs1 = found["grpo_gs8_seed0"], found["gs1_seed0"]
    assert grpo["optimizer"] == {
        "name": "adam",
        "learning_rate": 3e-4,
        "beta1": 0.9,
        "beta2": 0.95,
        "eps": 1e-8,
    }
    assert (grpo["rollouts_per_step"], gs1["rollouts_per_step"]) == (64, 64)
    assert (grpo["num_substeps"], grpo["kl_penalty_coef"]) == (1, 0.0)
    assert grpo["remove_constant_reward_groups"] is False
    differing = {name for name in grpo if grpo[name] != gs1[name]}
    assert differing == {
        "arm",
        "advantage_mode",
        "group_size",
        "groups_per_batch",
        "tau",
        "similarity",
        "similarity_parameters",
    }


def test_changed_train_rows_are_refused(run: PlannedRun) -> None:
    path = rows_file(run, "train")
    path.write_text(path.read_text().replace("11 plus", "11 and"))
    with pytest.raises(StoreError, match=r"train rows.*plan\.json.*--fresh"):
        reread(run).train_batches(run.spec.arms[0])


def test_changed_test_rows_are_refused(run: PlannedRun) -> None:
    path = rows_file(run, "test")
    path.write_text(path.read_text().replace("#### 78", "#### 79"))
    with pytest.raises(StoreError, match="test rows"):
        reread(run).test_problems()


def test_another_prompt_order_is_refused(run: PlannedRun) -> None:
    changed = json.loads((run.folder / PLAN_NAME).read_text())
    changed["arms"][GS1]["prompts_sha256"] = "0" * 64
    (run.folder / PLAN_NAME).write_text(json.dumps(changed))
    with pytest.raises(StoreError, match=f"prompt order of {GS1}"):
        reread(run).train_batches(run.spec.arm(GS1))
    assert reread(run).train_batches(run.spec.arm(GRPO)), "the other arm's order is untouched"


def test_an_edited_copy_of_the_spec_is_refused(run: PlannedRun) -> None:
    raw = small_spec_json()
    raw["decision_rule"]["criteria"][0]["margin"] = -0.5
    (run.folder / "spec.json").write_text(json.dumps(raw))
    with pytest.raises(StoreError, match="spec's contents are not the ones"):
        reread(run)


def test_a_run_without_a_plan_says_so(run: PlannedRun) -> None:
    (run.folder / PLAN_NAME).unlink()
    with pytest.raises(StoreError, match=r"no readable plan.*--fresh"):
        reread(run)


def test_a_plan_that_is_not_json_is_refused(run: PlannedRun) -> None:
    (run.folder / PLAN_NAME).write_text('{"version": 1,')
    with pytest.raises(DocumentError, match=PLAN_NAME):
        reread(run)
